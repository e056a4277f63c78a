"""An administrator's requests about many groups: where each is sent, lookups and retries.

To describe groups, an administrator first asks any broker for their coordinators, with a
FindCoordinator. This is called a lookup here. Then it asks the coordinators for the groups. If a
request fails, the administrator repeats the request, perhaps after another lookup.

The tests play brokers that answer an administrator with a script. `make_lab(n)` makes a `lab` with
`n` scripted brokers. By default they answer without errors, and broker 0 is the coordinator of
GROUP. `broker.answer(Request, a, b)` scripts the next answers to requests of that type. An answer
None leaves the request unanswered. `broker.of_type(Request)` returns the requests of that type that
the broker has got.
"""

import pytest

from cluster.client.admin.admin_client import AdminClient
from cluster.client.admin.admin_driver import GaveUp
from cluster.client.admin.outcomes import GroupDescription
from cluster.client.net.errors import ClientError
from protocol.errors import ErrorCode
from protocol.ids import TopicPartition, broker_name
from protocol.messages.discovery import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from protocol.messages.group_admin import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from protocol.messages.offset import OffsetCommitRequest
from tests.support.harness.scripted_broker import (
    GROUP,
    SECOND,
    TOPIC,
    ClientLab,
    LabMaker,
    commit_error,
    coordinator_is,
)

OTHER = "other"
Described = dict[str, GroupDescription | ClientError]


def describe(lab: ClientLab, *groups: str, timeout_ms: int = 15_000) -> Described:
    """Let an administrator describe groups, and return the outcome of each group."""
    admin = AdminClient(lab.client_host("admin-0"), lab.cluster, timeout_ms=timeout_ms)
    return lab.hosts.run(admin.describe_groups(groups))


def answer(*groups: str, error: ErrorCode = ErrorCode.NONE) -> DescribeGroupsResponse:
    """Return a coordinator's answer: each group is Empty, or has the error."""
    return DescribeGroupsResponse(
        groups=tuple(
            DescribedGroup(group_id=group, error_code=error, group_state="Empty")
            for group in groups
        )
    )


def coordinators_are(broker_by_group: dict[str, int]) -> FindCoordinatorResponse:
    """Return an answer to a lookup of several groups."""
    return FindCoordinatorResponse(
        coordinators=tuple(
            Coordinator(key=group, node_id=broker, host=broker_name(broker), port=9092)
            for group, broker in broker_by_group.items()
        )
    )


def state_or_error(outcome: GroupDescription | ClientError) -> str:
    """Return a group's state, or the name of its error."""
    return outcome.state if isinstance(outcome, GroupDescription) else outcome.name


def test_loading_coordinator_is_asked_again_without_another_lookup(make_lab: LabMaker) -> None:
    """A coordinator that is loading will answer soon, so the administrator asks it again.

    DescribeConsumerGroupsHandler of Kafka's AdminClient does the same.
    """
    lab = make_lab(1)
    loading = answer(GROUP, error=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    lab.brokers[0].answer(DescribeGroupsRequest, loading, loading, answer(GROUP))
    (outcome,) = describe(lab, GROUP).values()
    assert state_or_error(outcome) == "Empty"
    assert len(lab.brokers[0].of_type(FindCoordinatorRequest)) == 1
    # The two backoffs are 100 ms and 200 ms, each up to a fifth shorter or longer.
    assert 160_000 < lab.hosts.loop.now_us() < 400_000


@pytest.mark.parametrize(
    "error", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE], ids=str
)
def test_group_that_moved_is_looked_up_again(make_lab: LabMaker, error: ErrorCode) -> None:
    """After such an error the administrator forgets the group's coordinator, and looks it up again.

    Each broker answers its first lookup with broker 0, and its second lookup with broker 1. A
    lookup goes to a random broker. So the administrator's first two lookups may both give broker 0,
    and broker 0 must be able to refuse twice.
    """
    lab = make_lab(2)
    for broker in lab.brokers:
        broker.answer(FindCoordinatorRequest, coordinator_is(0), coordinator_is(1))
    lab.brokers[0].answer(DescribeGroupsRequest, *[answer(GROUP, error=error)] * 2)
    lab.brokers[1].answer(DescribeGroupsRequest, answer(GROUP))
    (outcome,) = describe(lab, GROUP).values()
    assert isinstance(outcome, GroupDescription)
    assert outcome.coordinator == 1


def test_fatal_error_belongs_to_its_group_only(make_lab: LabMaker) -> None:
    """One request asks for two groups. The error of OTHER must not hide the answer for GROUP."""
    lab = make_lab(1)
    lab.brokers[0].answer(FindCoordinatorRequest, coordinators_are({GROUP: 0, OTHER: 0}))
    refused = DescribedGroup(group_id=OTHER, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    lab.brokers[0].answer(
        DescribeGroupsRequest, DescribeGroupsResponse(groups=(*answer(GROUP).groups, refused))
    )
    outcomes = describe(lab, GROUP, OTHER)
    assert [state_or_error(outcome) for outcome in outcomes.values()] == [
        "Empty",
        "GROUP_AUTHORIZATION_FAILED",
    ]
    assert len(lab.brokers[0].of_type(DescribeGroupsRequest)) == 1


def test_silent_coordinator_does_not_delay_another_group(make_lab: LabMaker) -> None:
    """The requests of different groups are repeated independently of each other.

    The coordinator of one group is silent. An administrator waits for an answer for a third of its
    own timeout, so in 3 s it sends three requests. The coordinator of the other group is loading,
    and answers soon.
    """
    lab = make_lab(2)
    found = coordinators_are({GROUP: 0, OTHER: 1})
    for broker in lab.brokers:
        broker.answer(FindCoordinatorRequest, *[found] * 3)  # enough for all lookups
    lab.brokers[0].answer(DescribeGroupsRequest, *[None] * 9)  # more than fit into 3 s
    loading = answer(OTHER, error=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    lab.brokers[1].answer(DescribeGroupsRequest, loading, answer(OTHER))

    silent, other = describe(lab, GROUP, OTHER, timeout_ms=3_000).values()
    assert state_or_error(other) == "Empty"
    assert isinstance(silent, GaveUp)
    assert silent.name == "TIMED_OUT"
    assert silent.waited_us == 3 * SECOND
    assert len(lab.brokers[0].of_type(DescribeGroupsRequest)) == 3


def test_loading_broker_lists_its_loaded_groups_until_the_timeout(make_lab: LabMaker) -> None:
    """A broker that is loading is asked again until the timeout. Then it counts as a failure.

    But the groups that it has loaded already are in the list. Here both brokers list the same
    group, and the result has both entries. So a user sees that two brokers count themselves as the
    coordinator of this group.
    """
    lab = make_lab(2)
    listed = (
        ListedGroup(group_id=GROUP, protocol_type="", group_state="Empty", group_type="classic"),
    )
    lab.brokers[0].answer(ListGroupsRequest, ListGroupsResponse(groups=listed))
    loading = ListGroupsResponse(groups=listed, error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    lab.brokers[1].answer(ListGroupsRequest, *[loading] * 50)  # more requests than fit into 2 s

    admin = AdminClient(lab.client_host("admin-0"), lab.cluster, timeout_ms=2_000)
    listings = lab.hosts.run(admin.list_groups())
    assert [group.broker for group in listings.groups] == [0, 1]
    assert [error.name for error in listings.failures.values()] == ["COORDINATOR_LOAD_IN_PROGRESS"]


def test_commit_is_repeated_while_the_group_rebalances(make_lab: LabMaker) -> None:
    """An administrator may commit only for a group without members.

    A group that rebalances may have no members afterwards. So after REBALANCE_IN_PROGRESS the
    administrator repeats the commit, as Kafka's AlterConsumerGroupOffsetsHandler does. In this test
    the second answer has another error, which is final.
    """
    lab = make_lab(1)
    lab.brokers[0].answer(
        OffsetCommitRequest,
        commit_error(ErrorCode.REBALANCE_IN_PROGRESS, partitions=1),
        commit_error(ErrorCode.OFFSET_METADATA_TOO_LARGE, partitions=1),
    )
    admin = AdminClient(lab.client_host("admin-0"), lab.cluster, timeout_ms=2_000)
    partition = TopicPartition(TOPIC, 0)
    assert lab.hosts.run(admin.alter_consumer_group_offsets(GROUP, {partition: 1})) == {
        partition: ErrorCode.OFFSET_METADATA_TOO_LARGE
    }


def test_absence_of_all_brokers_is_reported_at_the_timeout(make_lab: LabMaker) -> None:
    """The administrator repeats the lookup until its timeout of 2 s, and reports the last error."""
    lab = make_lab(1)
    lab.brokers[0].host.crash()
    (outcome,) = describe(lab, GROUP, timeout_ms=2_000).values()
    assert isinstance(outcome, GaveUp)
    # In the last try the connection was refused, or the broker was not tried because of a backoff.
    assert outcome.name in {"DISCONNECTED", "NO_BROKER_AVAILABLE"}
    assert lab.hosts.loop.now_us() == 2 * SECOND
