"""What a broker does not store for its groups, or cannot load.

Commits that are too large are refused, and offsets expire. An append fails if the broker has no
replica of the partition. A record that cannot be read ends a load.

`lab` is a cluster of three brokers in virtual time. `lab.client.call(2, request)` returns the
answer of broker 2. Ids such as MM-36 are scenarios of Kafka's own tests (docs/kafka, BEHAVIOUR 10).
"""

import msgspec
import pytest

from cluster.broker.channels import BrokerIdentity, ControllerChannel
from cluster.broker.control.metadata_cache import MetadataCache
from cluster.broker.coordination.appends import CoordinatorAppends
from cluster.broker.replication.replica_manager import ReplicaManager
from cluster.client.admin.orders import move_leader
from cluster.spec import PreloadSpec
from protocol.config import BrokerConfig, JavaSwitches
from protocol.effects import Append, AppendCompleted
from protocol.errors import ErrorCode
from protocol.ids import AppendId, BrokerId, TopicPartition, offsets_partition
from protocol.messages.offset import OffsetCommitResponse, OffsetFetchResponse
from protocol.partitioner import partition_for
from protocol.records.batch import Record
from protocol.records.offsets import (
    GroupMetadataValue,
    OffsetCommitValue,
    encode_group_metadata_key,
    encode_group_metadata_value,
    encode_offset_commit_key,
    encode_offset_commit_value,
)
from protocol.trace import TraceKind
from tests.support.builders.requests import (
    GROUP,
    offset_commit,
    offset_fetch,
)
from tests.support.harness.brokers import ORDERS, BrokerLab, broker_cluster
from tests.support.harness.controllers import NO_BALANCING
from tests.support.harness.virtual_hosts import HostLab

COORDINATOR = partition_for(GROUP, 3)
"""The broker that coordinates the group, because it leads the group's offsets partition.

Broker n leads partition n of the offsets topic, so this is also the number of the partition.
"""
NEXT_COORDINATOR = BrokerId((COORDINATOR + 1) % 3)
"""The broker to which a test moves the group's offsets partition."""


def config_with_small_messages() -> BrokerConfig:
    """Return a configuration with which logs accept batches of up to 500 bytes."""
    return msgspec.structs.replace(
        NO_BALANCING, message_max_bytes=500, group_initial_rebalance_delay_ms=0
    )


def test_too_large_commit_is_refused_as_a_whole() -> None:
    """The offsets of a commit are one batch. If the batch is too large, no offset is stored.

    Here the commit has two partitions, each with metadata of 300 bytes. So the batch exceeds
    message.max.bytes, 500 bytes. With one partition alone the batch would not exceed it.
    """

    async def story(lab: BrokerLab) -> None:
        body = offset_commit({(ORDERS, 0): 1, (ORDERS, 1): 1}, metadata="m" * 300)
        answer = await lab.client.call(COORDINATOR, body)
        assert isinstance(answer, OffsetCommitResponse)
        errors = [p.error_code for topic in answer.topics for p in topic.partitions]
        assert errors == [ErrorCode.INVALID_COMMIT_OFFSET_SIZE] * 2

    BrokerLab(broker_cluster(config=config_with_small_messages())).run(story)


@pytest.mark.parametrize(
    "record",
    [
        Record(
            encode_group_metadata_key(GROUP),
            encode_group_metadata_value(
                GroupMetadataValue(protocol_type="", generation=0, protocol=None, leader=None)
            ),
        ),
        Record(
            encode_offset_commit_key(GROUP, TopicPartition(ORDERS, 0)),
            encode_offset_commit_value(OffsetCommitValue(offset=1, commit_timestamp_ms=0)),
        ),
    ],
    ids=["group", "commit"],
)
def test_append_without_a_replica_fails_on_the_broker(record: Record) -> None:
    """If the broker has no replica of the partition, an append fails with NOT_LEADER_OR_FOLLOWER.

    The appended record is a group's record or a commit. A coordinator would turn the error into
    NOT_COORDINATOR, but this test has no coordinator.

    MM-36: storing a group without a replica
    """
    lab = HostLab()
    host = lab.host("broker-0")
    cluster = broker_cluster()
    replicas = ReplicaManager(
        host,
        BrokerIdentity(broker_id=BrokerId(0)),
        cluster,
        MetadataCache(num_offsets_partitions=3),
        ControllerChannel(host, (cluster.controllers[0].name,), "alter-partition"),
    )

    completed: list[AppendCompleted] = []
    appends = CoordinatorAppends(host, cluster, replicas, completed.append)
    appends.append(Append(append_id=AppendId(1), partition=0, records=(record,)))
    error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert completed == [AppendCompleted(append_id=AppendId(1), error=error)]
    assert [row.kind for row in lab.rows] == [TraceKind.APPEND_COMPLETED]


def test_periodic_expiry_traces_only_expired_offsets() -> None:
    """Offsets expire after a minute here, and the expiry runs every 10 s.

    In 100 s only the run that finds the three expired offsets writes rows and a log line.

    MM-01: cleanup tells only of what has expired
    """
    config = msgspec.structs.replace(
        NO_BALANCING, offsets_retention_minutes=1, offsets_retention_check_interval_ms=10_000
    )
    log_lines: list[str] = []

    async def story(lab: BrokerLab) -> None:
        await lab.client.commit(COORDINATOR, GROUP, 7, partitions=(0, 1, 2))
        await lab.seconds(100)
        assert len(lab.events(TraceKind.OFFSET_REMOVED)) == 3

    lab = BrokerLab(
        broker_cluster(config=config),
        log=lambda _time_us, node, line: log_lines.append(f"{node}: {line}"),
    )
    lab.run(story)
    expired = [line for line in log_lines if "expired" in line]
    assert expired == [f"broker-{COORDINATOR}: removed 3 expired offsets"]


@pytest.mark.parametrize("is_java", [False, True])
def test_unreadable_record_ends_every_load_of_its_partition(is_java: bool) -> None:
    """A load ends early, at the unreadable record, and loads no group.

    The Scala coordinator regards the load as completed, and serves the partition without any
    groups. The Java coordinator regards the load as failed, and refuses every request (docs/kafka,
    BEHAVIOUR 6.6). FindCoordinator names the leader in both cases. The next leader of the partition
    finds the same record.
    """
    # Before the run the offsets partition has 1,000 commits, and then an unreadable record.
    preload = PreloadSpec(partition=COORDINATOR, commit_records=1_000, unreadable=True)
    cluster = msgspec.structs.replace(
        broker_cluster(preload=(preload,)), java=JavaSwitches(failed_load_refuses=is_java)
    )
    load_kind = TraceKind.LOAD_FAILED if is_java else TraceKind.LOAD_COMPLETED
    commit_error = ErrorCode.NOT_COORDINATOR if is_java else ErrorCode.NONE

    async def story(lab: BrokerLab) -> None:
        partition = str(offsets_partition(COORDINATOR))
        (row,) = [row for row in lab.events(load_kind) if row.partition == partition]
        assert row.cause_text == "unknown group value version 99"  # the unreadable record

        answer = await lab.client.commit(COORDINATOR, GROUP, 7)
        assert answer.topics[0].partitions[0].error_code is commit_error
        coordinator = await lab.client.find_coordinator(0, GROUP)
        assert coordinator.node_id == COORDINATOR

        # Another broker becomes the leader of the partition, and loads its groups.
        await lab.runtime.ask_as_admin(
            move_leader, offsets_partition(COORDINATOR), NEXT_COORDINATOR
        )
        await lab.seconds(1)
        fetched = await lab.client.call(NEXT_COORDINATOR, offset_fetch((ORDERS, 0), group_id=GROUP))
        assert isinstance(fetched, OffsetFetchResponse)
        (group,) = fetched.groups
        if is_java:
            assert group.error_code is ErrorCode.NOT_COORDINATOR
        else:
            assert group.topics[0].partitions[0].committed_offset == -1

    BrokerLab(cluster).run(story)
