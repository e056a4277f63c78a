"""Switch `commits_apply_on_append` (BEHAVIOUR 2.7, 2.8, 5.3, RT-3, RT-4).

The Java coordinator applies a commit when it is appended: its state has the value written last and
the value committed last.
"""

import pytest

from protocol.config import BrokerConfig, JavaSwitches
from protocol.effects import ACKS_ALL, ACKS_LEADER
from protocol.errors import ErrorCode
from protocol.ids import RequestId, TopicPartition
from protocol.messages.group_admin import DeleteGroupsRequest
from protocol.messages.offset import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from protocol.trace import TraceKind
from tests.support.builders.requests import (
    GROUP,
    join_group,
    offset_commit,
    offset_fetch,
    sync_group,
    txn_offset_commit,
)
from tests.support.harness.coordinator_harness import (
    CoordinatorHarness,
    commit_errors,
    txn_commit_errors,
)

JAVA = JavaSwitches(commits_apply_on_append=True)
FOO = ("foo", 0)
TIMED_OUT = ErrorCode.REQUEST_TIMED_OUT
NOT_AVAILABLE = ErrorCode.COORDINATOR_NOT_AVAILABLE


class Commits(CoordinatorHarness):
    """A simple group with offset 5 of foo-0 committed; the high watermark does not move on."""

    def __init__(self, java: JavaSwitches = JAVA, config: BrokerConfig | None = None) -> None:
        super().__init__(java=java, config=config)
        assert self.commit(offset_commit({FOO: 5})) == [ErrorCode.NONE]
        self.holds_appends = True

    def send(self, offset: int) -> RequestId:
        """Commit an offset of foo-0 and return the request's id."""
        return self.submit(offset_commit({FOO: offset}))

    def fetch_stable(self, *partitions: tuple[str, int]) -> RequestId:
        """Ask for stable offsets and return the request's id."""
        return self.submit(offset_fetch(*partitions, require_stable=True))

    def offsets(self, request_id: RequestId) -> dict[str, int] | ErrorCode | None:
        """Return what a fetch was answered of its first group, None if it waits."""
        response = self.response(request_id)
        if response is None:
            return None
        assert isinstance(response, OffsetFetchResponse)
        group = response.groups[0]
        if group.error_code is not ErrorCode.NONE:
            return group.error_code
        return {
            f"{topic.name}-{p.partition_index}": p.committed_offset
            for topic in group.topics
            for p in topic.partitions
        }

    def stored(self) -> list[int | None]:
        """Return the offsets of which the trace says that they were committed, in order."""
        return [event.offset for event in self.events(TraceKind.COMMIT_STORED)]


def test_commit_is_answered_and_seen_when_it_is_committed() -> None:
    """RT-4: a fetch that may be unstable reads the committed snapshot."""
    h = Commits()
    commit = h.send(6)
    assert h.response(commit) is None
    assert h.offset(*FOO) == 5
    h.complete()
    assert commit_errors(h.response(commit)) == [ErrorCode.NONE]
    assert h.offset(*FOO) == 6
    assert h.stored() == [5, 6]


def test_commit_that_timed_out_counts_once_the_high_watermark_passes_it() -> None:
    """5.3 [J]: the record stays in the log and in the state, and no load is needed."""
    h = Commits()
    commit = h.send(6)
    h.complete(TIMED_OUT)
    assert commit_errors(h.response(commit)) == [NOT_AVAILABLE]
    assert h.offset(*FOO) == 5
    assert h.stored() == [5]
    h.commit_everything()
    assert h.offset(*FOO) == 6
    assert h.stored() == [5, 6]
    started = h.events(TraceKind.COMMIT_STORED)[-1]
    assert (started.group, started.partition, started.correlation_id) == (GROUP, "foo-0", 2)


def test_commit_that_timed_out_counts_only_with_all_of_its_records() -> None:
    """The high watermark stands in front of its batch until the whole of it is replicated."""
    h = Commits()
    h.send(6)
    h.complete(TIMED_OUT)
    later = h.submit(offset_commit({FOO: 7, ("foo", 1): 8}))
    h.complete(TIMED_OUT)
    assert commit_errors(h.response(later)) == [NOT_AVAILABLE] * 2
    h.tell_high_watermark(2)
    assert h.stored() == [5, 6]
    third = h.submit(offset_commit({("foo", 2): 9}))
    h.complete()
    assert commit_errors(h.response(third)) == [ErrorCode.NONE]
    assert h.stored() == [5, 6, 7, 8, 9]
    assert [h.offset("foo", index) for index in range(3)] == [7, 8, 9]


def test_commits_in_flight_of_one_partition_are_kept_apart() -> None:
    """Each is committed with its own record; the last one written wins, whatever its offset."""
    h = Commits()
    for offset in (6, 9, 7):
        h.send(offset)
    h.complete()
    assert h.offset(*FOO) == 6
    h.complete(index=1)  # acknowledged out of order
    assert h.offset(*FOO) == 7
    h.complete()
    assert h.offset(*FOO) == 7


def test_commit_that_is_not_appended_is_undone() -> None:
    """5.3 [J]: the state goes back to where it was."""
    h = Commits()
    commit = h.send(6)
    h.complete(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert commit_errors(h.response(commit)) == [ErrorCode.NOT_COORDINATOR]
    latest = h.group().offsets.latest(TopicPartition(*FOO))
    assert latest is not None
    assert latest.offset == 5
    assert not h.group().offsets.is_pending(TopicPartition(*FOO))


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.NOT_ENOUGH_REPLICAS, NOT_AVAILABLE),
    ],
)
def test_errors_of_commits_are_those_of_the_java_coordinator(
    error: ErrorCode, told: ErrorCode
) -> None:
    """BEHAVIOUR 5.8: without `append_errors` as well, which a SyncGroup also has."""
    h = Commits()
    commit = h.send(6)
    h.complete(error)
    assert commit_errors(h.response(commit)) == [told]


def test_commit_is_appended_whoever_is_in_sync_and_a_group_is_not() -> None:
    """6.1 [J]: below min.insync.replicas it is written, and times out."""
    h = Commits()
    h.send(6)
    h.submit(txn_offset_commit({FOO: 7}))
    assert [append.required_acks for append in h.held] == [ACKS_LEADER] * 2
    h.commit_everything()
    join = h.submit(join_group(h.new_member_id()))
    h.advance(0)
    member_id = h.join_response(join).member_id
    h.submit(sync_group(member_id, 1, {member_id: b"a"}))
    assert [append.required_acks for append in h.held] == [ACKS_ALL]
    scala = Commits(JavaSwitches(append_errors=True))
    scala.send(6)
    assert [append.required_acks for append in scala.held] == [ACKS_ALL]


def test_commit_that_timed_out_is_lost_with_an_unload() -> None:
    """Then the log decides: the next load reads it, if it is there."""
    h = Commits()
    h.send(6)
    h.complete(TIMED_OUT)
    h.unload(epoch=1)
    h.commit_everything()
    assert h.stored() == [5]
    h.load(epoch=2)
    assert h.offset(*FOO) == 6


def test_commit_that_timed_out_does_not_count_once_the_leadership_is_lost() -> None:
    """The high watermark of a follower may pass the offset of a record that was truncated."""
    h = Commits()
    h.send(6)
    h.complete(TIMED_OUT)
    h.lose_leadership()
    h.commit_everything()
    assert h.offset(*FOO) == 5


def test_commit_of_a_group_that_is_gone_is_still_answered() -> None:
    """As in [S]: the log has it."""
    h = Commits()
    commit = h.send(6)
    h.unload(epoch=1)
    h.complete()
    assert commit_errors(h.response(commit)) == [ErrorCode.NONE]
    late = Commits()
    timed_out = late.send(6)
    late.unload(epoch=1)
    late.complete(TIMED_OUT)
    assert commit_errors(late.response(timed_out)) == [NOT_AVAILABLE]


# -- fetches of stable offsets --


def test_stable_fetch_reads_what_was_written_last_and_waits_until_it_is_committed() -> None:
    """2.7 [J]: it runs as a write, on the newest state, and is never told UNSTABLE."""
    h = Commits()
    h.send(6)
    fetch = h.fetch_stable(FOO)
    assert h.offsets(fetch) is None
    h.send(7)
    h.complete()
    assert h.offsets(fetch) == {"foo-0": 6}
    h.commit_everything()
    assert h.offsets(h.fetch_stable(FOO)) == {"foo-0": 7}


def test_stable_fetch_of_all_offsets_has_the_written_ones() -> None:
    """And the other fetch has the committed ones."""
    h = Commits()
    h.submit(offset_commit({("foo", 1): 6}))
    fetch = h.fetch_stable()
    assert h.offsets(h.submit(offset_fetch())) == {"foo-0": 5}
    h.commit_everything()
    assert h.offsets(fetch) == {"foo-0": 5, "foo-1": 6}


def test_stable_fetch_that_waits_for_the_commit_timeout_is_told_not_coordinator() -> None:
    """5.8 [J] OffsetFetch: so a leader that is cut off does not hand out stale offsets."""
    h = Commits()
    h.send(6)
    fetch = h.fetch_stable(FOO)
    h.advance(4_999)
    assert h.offsets(fetch) is None
    h.advance(1)
    assert h.offsets(fetch) is ErrorCode.NOT_COORDINATOR
    assert h.timer_keys() == []


@pytest.mark.parametrize("loses", ["leadership", "partition"])
def test_stable_fetch_that_waits_is_told_not_coordinator_when_it_is_over(loses: str) -> None:
    """Lost or unloaded."""
    h = Commits()
    h.send(6)
    fetch = h.fetch_stable(FOO)
    if loses == "leadership":
        h.lose_leadership()
    else:
        h.unload(epoch=1)
    assert h.offsets(fetch) is ErrorCode.NOT_COORDINATOR


def test_stable_fetch_of_a_missing_group_waits_as_well() -> None:
    """That there is no group is what was read; it was as uncommitted as the rest."""
    h = Commits()
    h.send(6)
    fetch = h.submit(offset_fetch(FOO, group_id="nobody", require_stable=True))
    assert h.offsets(fetch) is None
    h.commit_everything()
    assert h.offsets(fetch) == {"foo-0": -1}


def test_stable_fetch_of_several_groups_waits_for_each() -> None:
    """Those of other partitions may be refused, or done, before."""
    h = CoordinatorHarness(java=JAVA, num_partitions=3, owned=(0, 1))
    by_partition = {h.coordinator.partition_of(f"g{i}"): f"g{i}" for i in range(20)}
    for partition in (0, 1):
        h.commit(offset_commit({FOO: 5}, group_id=by_partition[partition]))
    h.holds_appends = True
    h.submit(offset_commit({FOO: 6}, group_id=by_partition[1]))
    fetch = h.submit(
        OffsetFetchRequest(
            groups=tuple(
                OffsetFetchRequestGroup(
                    group_id=by_partition[partition],
                    topics=(OffsetFetchRequestTopics(name="foo", partition_indexes=(0,)),),
                )
                for partition in (2, 1, 0)
            ),
            require_stable=True,
        )
    )
    assert h.response(fetch) is None
    h.commit_everything(1)
    response = h.response(fetch)
    assert isinstance(response, OffsetFetchResponse)
    assert [group.error_code for group in response.groups] == [
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NONE,
        ErrorCode.NONE,
    ]
    assert [
        p.committed_offset for g in response.groups for topic in g.topics for p in topic.partitions
    ] == [6, 5]


def test_stable_fetch_with_nothing_uncommitted_is_answered_at_once() -> None:
    """RT-3."""
    h = Commits()
    assert h.offsets(h.fetch_stable(FOO)) == {"foo-0": 5}


def test_stable_fetch_of_an_old_version_is_an_ordinary_one() -> None:
    """Version 7 brought the field."""
    h = Commits()
    h.send(6)
    response = h.fetch(offset_fetch(FOO, require_stable=True), version=6)
    assert response.groups[0].topics[0].partitions[0].committed_offset == 5


# -- transactions --


def test_offset_of_an_open_transaction_is_unstable_when_the_wait_is_over() -> None:
    """2.7 [J]: only transactions make an offset unstable."""
    h = Commits()
    h.submit(txn_offset_commit({FOO: 6}))
    fetch = h.fetch_stable(FOO)
    assert h.response(fetch) is None
    h.commit_everything()
    response = h.response(fetch)
    assert isinstance(response, OffsetFetchResponse)
    partition = response.groups[0].topics[0].partitions[0]
    assert partition.error_code is ErrorCode.UNSTABLE_OFFSET_COMMIT


@pytest.mark.parametrize(("java", "offset"), [(JAVA, 6), (JavaSwitches(), 5)])
def test_transactional_commit_that_timed_out_counts_with_its_marker(
    java: JavaSwitches, offset: int
) -> None:
    """It stands in the log before the marker. The Scala coordinator has dropped it."""
    h = Commits(java)
    commit = h.submit(txn_offset_commit({FOO: 6}))
    h.complete(TIMED_OUT)
    told = NOT_AVAILABLE if java.commits_apply_on_append else TIMED_OUT
    assert txn_commit_errors(h.response(commit)) == [told]
    h.holds_appends = False
    h.end_transaction(7, is_commit=True)
    assert h.offset(*FOO) == offset


# -- deletions and expiry --


def test_deletion_takes_what_was_written_with_it() -> None:
    """It is a later write: its tombstone stands behind the commit, and a load finds neither."""
    h = Commits()
    h.submit(offset_commit({("foo", 1): 6}))
    h.complete(TIMED_OUT)
    h.submit(DeleteGroupsRequest(groups_names=(GROUP,)))
    assert h.coordinator.groups() == ()
    h.commit_everything()
    assert h.coordinator.groups() == ()
    assert [event.offset for event in h.events(TraceKind.OFFSET_REMOVED)] == [None] * 2
    assert h.failover().coordinator.groups() == ()


def test_deletion_of_a_topic_forgets_what_is_on_its_way() -> None:
    """The commit is acknowledged, and does not come back."""
    h = Commits()
    commit = h.send(6)
    h.execute(h.coordinator.partitions_deleted((TopicPartition(*FOO),), h.now_us))
    h.commit_everything()
    assert commit_errors(h.response(commit)) == [ErrorCode.NONE]
    assert h.offset(*FOO) == -1


def test_offset_that_was_written_again_does_not_expire() -> None:
    """Its group is in use, though nothing of it is committed."""
    h = Commits(
        config=BrokerConfig(group_initial_rebalance_delay_ms=0, offsets_retention_minutes=1)
    )
    h.submit(offset_commit({("foo", 1): 6}))
    h.advance(59_000)
    h.send(7)
    h.advance(2_000)
    h.execute(h.coordinator.expire_offsets(h.now_us))
    assert h.offset(*FOO) == 5
    h.commit_everything()
    assert h.offset(*FOO) == 7


# -- off --


def test_commit_that_timed_out_is_forgotten_without_the_switch() -> None:
    """6.4 [S]: it becomes visible with the next load; a stable fetch is refused meanwhile."""
    h = Commits(JavaSwitches(heartbeats_wait_for_writes=True))
    commit = h.send(6)
    assert h.fetched(*FOO, require_stable=True).error_code is ErrorCode.UNSTABLE_OFFSET_COMMIT
    h.complete(TIMED_OUT)
    assert commit_errors(h.response(commit)) == [TIMED_OUT]
    h.commit_everything()
    assert h.offset(*FOO) == 5
    assert h.failover().offset(*FOO) == 6
