"""The cluster that the command `cluster` of a transcript describes."""

import msgspec

from cluster.spec import ClusterSpec, ConsumerSpec, PreloadSpec
from protocol.config import BrokerConfig, ConsumerConfig, Guards, JavaSwitches
from protocol.ids import NodeName
from tests.support.builders.requests import GROUP
from tests.support.harness.brokers import ORDERS, broker_cluster
from tests.support.harness.transactional_client import transactional_cluster
from tests.support.transcripts.coordinator_player import take_settings
from tests.support.transcripts.words import Command


def small_cluster(command: Command) -> ClusterSpec:
    """Return the cluster of a command such as `cluster group.max.size=4 consumers=2`.

    The cluster has three brokers. There are four kinds of settings: settings of brokers, guards
    (safety rules of Kafka, which can be switched off), switches that imitate Kafka's Java
    coordinator, and these:

    - `preload=0:500`: before the run, 500 records of commits are in `__consumer_offsets-0`.
    - `consumers=2`: there is a group of two members.
    - `session=10000`: the session timeout of these members.
    - `transactional=yes`: there is the topic `__transaction_state`.
    - `offsets_partitions=3`: the number of partitions of `__consumer_offsets`.
    - `min_insync_replicas=2`: a setting of all topics.
    """
    # By default the controller never moves a leadership back by itself. A story can change this.
    values = {"auto.leader.rebalance.enable": "false", **command.settings}
    command.settings = values
    java = take_settings(JavaSwitches, values)
    preload = tuple(
        PreloadSpec(partition=int(partition), commit_records=int(records))
        for partition, _, records in (part.partition(":") for part in command.parts("preload"))
    )
    cluster = broker_cluster(
        config=take_settings(BrokerConfig, values),
        guards=take_settings(Guards, values),
        offsets_partitions=command.number("offsets_partitions", 3),
        min_insync_replicas=command.number("min_insync_replicas", 2),
        preload=preload,
    )
    if command.settings.pop("transactional", ""):
        cluster = transactional_cluster(base=cluster)
    session_timeout_ms = command.number("session", 10_000)
    consumers = tuple(
        ConsumerSpec(
            name=NodeName(f"consumer-{index}"),
            group_id=GROUP,
            index=index,
            topics=(ORDERS,),
            config=ConsumerConfig(session_timeout_ms=session_timeout_ms, enable_auto_commit=False),
            commit_interval_ms=None,
        )
        for index in range(command.number("consumers", 0))
    )
    return msgspec.structs.replace(cluster, java=java, consumers=consumers)
