"""Brokers with the features of an older version of Kafka.

The setting `inter.broker.protocol.version` makes a broker behave like a broker of that version. The
tests are about static members, that is, members with a group.instance.id. Brokers before version
2.3 refuse the requests of static members (docs/kafka, BEHAVIOUR 2.0).

`lab` is a cluster of three brokers in virtual time. `lab.client.call(2, request)` returns the
answer of broker 2.
"""

import msgspec
import pytest

from cluster.broker.coordination.static_membership import static_member_refusal
from protocol.config import BrokerConfig
from protocol.errors import ErrorCode
from protocol.messages.group import (
    HeartbeatResponse,
    JoinGroupResponse,
    MemberIdentity,
    SyncGroupResponse,
)
from protocol.messages.offset import OffsetCommitResponse
from protocol.partitioner import partition_for
from tests.support.builders.requests import (
    GROUP,
    envelope,
    heartbeat,
    join_group,
    leave_group,
    offset_commit,
    sync_group,
)
from tests.support.harness.brokers import BrokerLab, broker_cluster
from tests.support.harness.controllers import NO_BALANCING

COORDINATOR = partition_for(GROUP, num_partitions=3)
"""The broker that coordinates the group. Broker n leads offsets partition n."""


def test_static_member_is_refused_by_each_api_of_an_old_broker() -> None:
    """All group requests with a group.instance.id are refused, except LeaveGroup (BEHAVIOUR 2.0).

    `static_member_refusal` returns the answer that refuses a request, or None if the coordinator
    may get the request. A broker calls this function only if the broker's version is below 2.3.
    """
    error = ErrorCode.UNSUPPORTED_VERSION
    # Version 5 of JoinGroup is the first with a group.instance.id.
    join_refusal = static_member_refusal(envelope(join_group(instance="i"), version=5))
    assert isinstance(join_refusal, JoinGroupResponse)
    assert (join_refusal.error_code, join_refusal.member_id) == (error, "")
    assert join_refusal.generation_id == -1

    sync_refusal = static_member_refusal(envelope(sync_group("m", generation_id=1, instance="i")))
    assert isinstance(sync_refusal, SyncGroupResponse)
    assert sync_refusal.error_code is error

    heartbeat_refusal = static_member_refusal(
        envelope(heartbeat("m", generation_id=1, instance="i"))
    )
    assert isinstance(heartbeat_refusal, HeartbeatResponse)
    assert heartbeat_refusal.error_code is error

    commit_refusal = static_member_refusal(
        envelope(offset_commit({("t", 0): 1, ("u", 2): 3}, "m", generation_id=1, instance="i"))
    )
    assert isinstance(commit_refusal, OffsetCommitResponse)
    assert [
        (topic.name, entry.partition_index, entry.error_code)
        for topic in commit_refusal.topics
        for entry in topic.partitions
    ] == [("t", 0, error), ("u", 2, error)]

    leaving = MemberIdentity(member_id="m", group_instance_id="i")
    assert static_member_refusal(envelope(leave_group(leaving))) is None


def test_member_without_instance_id_is_accepted_by_an_old_broker() -> None:
    """Only static members need brokers of version 2.3."""
    for body in (
        join_group(),
        sync_group("m", generation_id=1),
        heartbeat("m", generation_id=1),
        offset_commit({("t", 0): 1}),
    ):
        assert static_member_refusal(envelope(body)) is None


@pytest.mark.parametrize(
    ("version", "error"),
    [
        ("2.2", ErrorCode.UNSUPPORTED_VERSION),
        ("2.3", ErrorCode.UNKNOWN_MEMBER_ID),
        ("3.9", ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_old_broker_refuses_static_members_before_the_coordinator(
    version: str, error: ErrorCode
) -> None:
    """Before 2.3 the broker refuses a static member's heartbeat with UNSUPPORTED_VERSION.

    From 2.3 on the coordinator gets the heartbeat, and does not know the member "m". A member
    without an instance id reaches the coordinator in every version.
    """

    async def story(lab: BrokerLab) -> None:
        answer = await lab.client.call(COORDINATOR, heartbeat("m", generation_id=1, instance="i"))
        assert isinstance(answer, HeartbeatResponse)
        assert answer.error_code is error
        without_instance = await lab.client.call(COORDINATOR, heartbeat("m", generation_id=1))
        assert isinstance(without_instance, HeartbeatResponse)
        assert without_instance.error_code is ErrorCode.UNKNOWN_MEMBER_ID

    config = msgspec.structs.replace(NO_BALANCING, inter_broker_protocol_version=version)
    BrokerLab(broker_cluster(config=config)).run(story)


def test_version_that_kafka_does_not_have_is_refused() -> None:
    """A wrong setting is refused when the experiment is read, before any node starts."""
    # The versions of Kafka 2.1 end with 2.1-IV2, so there is no 2.1-IV9.
    with pytest.raises(msgspec.ValidationError, match=r"inter\.broker\.protocol\.version"):
        msgspec.convert({"inter.broker.protocol.version": "2.1-IV9"}, BrokerConfig)
