"""The cluster of a transcript as a ClusterSpec: brokers, settings and topics.

A transcript is a recording of a scenario with a real Kafka cluster. Its replay sends each request
to the broker that got the request in the recording. So each group and each transactional id must
have the same coordinator as in the recorded cluster. A recording does not name its coordinators.
This module finds them out from the requests and answers.
"""

import msgspec

from chaos.conformance.transcript import ActionStep, Transcript, TranscriptError
from chaos.experiment.problems import Problem
from cluster.spec import (
    BrokerSpec,
    ClusterSpec,
    ControllerSpec,
    LinkModel,
    ProducerSpec,
    TopicSpec,
)
from protocol.config import BrokerConfig
from protocol.errors import ErrorCode
from protocol.ids import CONSUMER_OFFSETS, TRANSACTION_STATE, NodeName
from protocol.messages.discovery import CoordinatorType
from protocol.partitioner import partition_for

CLIENT_MACHINE = NodeName("/127.0.0.1")
"""Name of the node that stands for all clients.

The name is the address of the recorded clients, which Kafka shows as their host in DescribeGroups.
"""
CONTROLLER_ID = 100  # the ids of brokers are smaller, they count from 0
LOOPBACK = LinkModel(base_us=50, jitter_us=0, tail_us=0, tail_one_in=0)
"""Latency of messages: always 50 us.

The recorded clients and brokers were on the same machine (loopback).
"""
TRANSACTION_COORDINATOR_APIS = ("InitProducerId", "AddOffsetsToTxn", "EndTxn")
"""APIs whose requests go to the coordinator of a transactional id, not of a group."""


def cluster_of(transcript: Transcript) -> ClusterSpec:
    """Return the cluster of a transcript.

    Its only producer stands for the recorded clients: the replayer builds its ClientMachine in
    place of this producer. Settings that this project does not have are left out
    (`unknown_settings` returns them).

    Raises: TranscriptError if a setting has a value that Kafka would refuse.
    """
    config = _config(transcript)
    brokers = range(transcript.brokers)
    count = config.offsets_topic_num_partitions
    # Partitions of `__consumer_offsets` that store recorded groups, and the broker that leads them
    used_partitions = {
        partition_for(group_id, count) for group_id in recorded_group_ids(transcript)
    }
    coordinator = first_coordinator(transcript)

    offsets_topic = TopicSpec(
        name=CONSUMER_OFFSETS,
        partitions=count,
        replication_factor=transcript.brokers,
        # The recorded coordinator leads the partitions of the recorded groups. The other partitions
        # are spread over the brokers, as in the recorded cluster. So each broker has fetches of
        # followers in flight when a leader moves.
        assignments=tuple(
            _replicas(
                coordinator if partition in used_partitions else partition, transcript.brokers
            )
            for partition in range(count)
        ),
    )
    data_topics = tuple(
        TopicSpec(name=name, partitions=topic.partitions, replication_factor=transcript.brokers)
        for name, topic in transcript.topics.items()
    )
    return ClusterSpec(
        topics=(offsets_topic, *_transaction_state(transcript, config), *data_topics),
        controllers=(ControllerSpec(node_id=CONTROLLER_ID),),
        brokers=tuple(BrokerSpec(broker_id=broker_id) for broker_id in brokers),
        # Only the name of this producer has an effect. The ClientMachine in its place sends the
        # recorded requests, and produces no records.
        producers=(
            ProducerSpec(name=CLIENT_MACHINE, topic=CONSUMER_OFFSETS, records_per_second=1),
        ),
        broker_config=config,
        links=LOOPBACK,
    )


def _transaction_state(transcript: Transcript, config: BrokerConfig) -> tuple[TopicSpec, ...]:
    """Return the topic `__transaction_state`, if the transcript uses a transaction coordinator.

    Otherwise return an empty tuple. The coordinator of each transactional id is the broker to which
    the recorded clients sent the requests with this id.
    """
    coordinators = transaction_coordinators(transcript)
    # A FindCoordinator may ask for a transaction coordinator, even if no other request needs one.
    asks_for_coordinator = any(
        step.request.get("key_type") == CoordinatorType.TRANSACTION for step in transcript.requests
    )
    if not coordinators and not asks_for_coordinator:
        return ()
    count = config.transaction_state_log_num_partitions
    leaders = {  # partition of `__transaction_state` -> its leader
        partition_for(transactional_id, count): broker
        for transactional_id, broker in coordinators.items()
    }
    return (
        TopicSpec(
            name=TRANSACTION_STATE,
            partitions=count,
            replication_factor=transcript.brokers,
            # Partitions without a recorded transactional id are spread over the brokers.
            assignments=tuple(
                _replicas(leaders.get(partition, partition), transcript.brokers)
                for partition in range(count)
            ),
        ),
    )


def transaction_coordinators(transcript: Transcript) -> dict[str, int]:
    """Return the transaction coordinator of each transactional id.

    The coordinator is the broker that got the first request of TRANSACTION_COORDINATOR_APIS with
    the id.
    """
    coordinators: dict[str, int] = {}
    for step in transcript.requests:
        transactional_id = step.request.get("transactional_id")
        if step.api in TRANSACTION_COORDINATOR_APIS and isinstance(transactional_id, str):
            coordinators.setdefault(transactional_id, step.broker)
    return coordinators


def unknown_settings(transcript: Transcript) -> tuple[str, ...]:
    """Return the names of the recorded settings that this project does not have."""
    known = _known_settings()
    return tuple(sorted(name for name in transcript.config if name not in known))


def _known_settings() -> frozenset[str]:
    return frozenset(field.encode_name for field in msgspec.structs.fields(BrokerConfig))


def _config(transcript: Transcript) -> BrokerConfig:
    """Return the settings of the brokers, without settings that this project does not have."""
    known = _known_settings()
    settings = {name: value for name, value in transcript.config.items() if name in known}
    try:
        return msgspec.convert(settings, BrokerConfig)
    except msgspec.ValidationError as error:
        problem = Problem(file=transcript.path, line=None, path="config", message=str(error))
        raise TranscriptError((problem,)) from error


def recorded_group_ids(transcript: Transcript) -> tuple[str, ...]:
    """Return every group that the requests of a transcript name, each once."""
    group_ids = (step.request.get("group_id") for step in transcript.requests)
    return tuple(
        dict.fromkeys(group_id for group_id in group_ids if isinstance(group_id, str) and group_id)
    )


def _replicas(leader: int, brokers: int) -> tuple[int, ...]:
    """Return all brokers in the order of replicas, the leader first.

    A `leader` that is no broker id, but the number of a partition, is taken modulo `brokers`.
    """
    return tuple((leader + index) % brokers for index in range(brokers))


def first_coordinator(transcript: Transcript) -> int:
    """Return the broker that coordinates the recorded groups at the start.

    A recording does not name this broker. The first answer of one of these kinds, before the first
    action, shows which broker it is:

    - An answer to FindCoordinator names the broker.
    - An answer to another request comes from this broker, unless it has the error NOT_COORDINATOR.

    If there is no such answer, the result is broker 0.
    """
    for step in transcript.steps:
        if isinstance(step, ActionStep):
            break
        if step.api in TRANSACTION_COORDINATOR_APIS:
            continue
        answer = step.response or {}
        coordinators = answer.get("coordinators")  # only FindCoordinator has this field
        if isinstance(coordinators, list) and coordinators and isinstance(coordinators[0], dict):
            node_id = coordinators[0].get("node_id")
            if isinstance(node_id, int) and 0 <= node_id < transcript.brokers:
                return node_id
        elif answer.get("error_code") != ErrorCode.NOT_COORDINATOR:
            return step.broker
    return 0
