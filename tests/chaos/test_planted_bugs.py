"""We plant bugs in our own code and run a cluster with them: the checkers must find each bug.

The same runs without a bug must have no finding. A bug is planted by replacing a method, or by
switching off a guard, which is a safety check that Kafka always makes.

`small(fault)` is a small experiment with this fault. It has three brokers and the group `readers`,
whose two members commit every 200 ms and have a session timeout of 10 s. The fault CUT separates
their coordinator, broker-0, from the other servers, but not from the members. `play` plays the run,
and `played.violated` has the names of the checks with a finding.

References such as (BEHAVIOUR 6.6 f) name a file of docs/kafka and a section of this file.
test_coordinator_crash has more planted bugs, which a crash of the coordinator uncovers.
"""

from collections.abc import Mapping

import pytest

import coordinator.coordinator
from chaos.checkers.context import detail_of
from cluster.broker.replication.delayed_appends import DelayedAppends
from cluster.client.consumer.assignors import (
    ASSIGNORS,
    Assignment,
    MemberSubscription,
    RangeAssignor,
)
from cluster.client.consumer.fetcher import ConsumedRange, Fetcher
from cluster.client.consumer.generation import Generation
from cluster.client.consumer.heartbeat import Heartbeat
from cluster.client.consumer.node import ConsumerNode
from cluster.client.net.coordinator_discovery import CoordinatorDiscovery
from cluster.client.net.futures import RequestFuture
from cluster.host.host import Host
from cluster.node_factory import Node, build_node
from cluster.spec import ClusterSpec, ConsumerSpec, NodeSpec
from cluster.virtual.runtime import VirtualRuntime
from coordinator import static_member, timer_handlers
from coordinator.apis import join_group
from coordinator.coordinator import GroupCoordinator
from coordinator.group import Group
from coordinator.member import Member
from coordinator.states import GroupState
from coordinator.storage.store import group_record
from coordinator.turn import SessionTimer, Turn
from partition_log.replica import Partition
from protocol.causes import GroupStateCause
from protocol.effects import Result
from protocol.errors import ErrorCode
from protocol.ids import NodeName
from protocol.messages.group import HeartbeatResponse
from protocol.records.batch import RecordBatch
from protocol.trace import TraceEvent, TraceKind, TraceRow
from results_schema.results import Verdict
from tests.support.worlds.planted import CUT, play, readers, small

pytestmark = pytest.mark.slow

CRASH: dict[str, object] = {
    "at": "2s",
    "fault": "crash",
    "target": "coordinator-of(readers)",
    "duration": "15s",
}
MOVE: dict[str, object] = {
    "at": "2s",
    "fault": "leadership_move",
    "target": "coordinator-of(readers)",
}
PAUSE: dict[str, object] = {
    "at": "2s",
    "fault": "pause",
    "target": "coordinator-of(readers)",
    "duration": "15s",
}
PAUSE_MEMBER: dict[str, object] = {
    "at": "2s",
    "fault": "pause",
    "target": "member(readers, 0)",
    "duration": "20s",
}
READERS_WITHOUT_COMMITS = readers(commit_interval_ms=None)
LATE_ON_THE_OTHER_SIDE: list[object] = [
    {
        "at": "12s",
        "members": 1,
        "config": {
            "bootstrap.servers": ["broker-1", "broker-2"],
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 10_000,
            "heartbeat.interval.ms": 2_000,
        },
    }
]
"""A third member that joins during CUT, and knows only the brokers that are not cut off."""


def load_nothing(
    self: GroupCoordinator, partition: int, batches: tuple[RecordBatch, ...]
) -> Result:
    """Planted bug: the load of a coordinator reads nothing."""
    del self, partition, batches
    return Result()


# -- without a bug -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fault", [CRASH, MOVE, PAUSE, PAUSE_MEMBER, CUT], ids=lambda fault: fault["fault"]
)
def test_runs_without_a_bug_pass_every_check(fault: dict[str, object]) -> None:
    """Each run has one fault of the coordinator, of a member, or of the network.

    The coordinator crashes, loses its leadership or is paused. A member is paused. CUT splits the
    network.
    """
    played = play(small(fault))

    assert (played.results.reasons, played.violated) == ((), [])
    assert played.results.verdict is Verdict.PASS


def test_split_brain_of_ownership_passes_and_is_measured() -> None:
    """During CUT every partition gets two owners, which is no violation, but is measured.

    1. The two members stay with the old coordinator, which is cut off.
    2. A new coordinator loads the group. It gets no request of the two members, and removes them
       after one session. It gives their partitions to the third member.
    3. Both sides own the partitions until the cut is healed.
    """
    played = play(
        small(CUT, group=readers(commit_interval_ms=None, late_members=LATE_ON_THE_OTHER_SIDE))
    )

    assert (played.results.reasons, played.violated) == ((), [])
    overlaps = played.report("ownership").measured
    assert overlaps["overlapping_partitions"] == 2
    assert overlaps["longest_overlap_ms"] > 5_000
    records_processed_again = played.report("processing").measured[
        "processed_again_while_two_owned_it"
    ]
    assert records_processed_again > 100


def test_resumed_member_passes_and_its_overlap_is_measured() -> None:
    """When the session of a paused member ends, its partitions are given to the other member.

    The paused member still believes that it owns these partitions. After it has resumed, it learns
    of its removal from the answer to its first heartbeat.
    """
    played = play(small(PAUSE_MEMBER, group=READERS_WITHOUT_COMMITS))

    assert (played.results.reasons, played.violated) == ((), [])
    # The pause lasts 20 s and the session 10 s, so the overlap should take nearly 10 s.
    assert played.report("ownership").measured["longest_overlap_ms"] > 5_000


# -- fencing and durable commits -----------------------------------------------------------------


def test_commits_on_both_sides_of_a_split_are_found_by_fencing_and_durable_commits() -> None:
    """Without the guard `high_watermark_gate`, both sides of the split acknowledge commits.

    The old coordinator acknowledges commits that it cannot replicate. The log of the new
    coordinator, which has a new epoch, will never have these commits.
    """
    group = readers(late_members=LATE_ON_THE_OTHER_SIDE)

    guarded = play(small(CUT, group=group))
    unguarded = play(small(CUT, group=group, guards={"high_watermark_gate": False}))

    assert (guarded.results.reasons, guarded.violated) == ((), [])
    assert {"fencing", "durable_commits"} <= set(unguarded.violated)
    fencing = unguarded.report("fencing").findings[0]
    durable = unguarded.report("durable_commits").findings[0]
    assert "are missing from the log of epoch 1" in fencing.summary
    assert "was acknowledged by broker-0" in durable.summary


def test_commits_of_a_lone_replica_are_found_by_durable_commits() -> None:
    """Two of three brokers are down. Without a guard the third broker acknowledges commits alone.

    This guard, `min_insync_check`, refuses an append if fewer replicas than `min.insync.replicas`
    are in sync.
    """
    crashes: list[dict[str, object]] = [
        {"at": "2s", "fault": "crash", "target": target, "duration": "20s"}
        for target in ("broker(0)", "broker(1)")
    ]

    guarded = play(small(*crashes))
    unguarded = play(small(*crashes, guards={"min_insync_check": False}))

    assert (guarded.results.reasons, guarded.violated) == ((), [])
    errors = {row.error for row in guarded.rows if row.kind == TraceKind.APPEND_COMPLETED}
    assert ErrorCode.NOT_ENOUGH_REPLICAS.name in errors
    assert unguarded.violated == ["durable_commits"]
    finding = unguarded.report("durable_commits").findings[0]
    assert "acknowledged an append with 1 replica(s) in sync" in finding.summary


# -- generations ---------------------------------------------------------------------------------


class GenerousAssignor(RangeAssignor):
    """Planted bug: the first partition is assigned to every member."""

    def assign(
        self, partition_counts: Mapping[str, int], members: tuple[MemberSubscription, ...]
    ) -> Assignment:
        assignment = super().assign(partition_counts, members)
        first = min(partition for partitions in assignment.values() for partition in partitions)
        # `dict.fromkeys` removes the duplicate from the member that had the partition anyway.
        return {
            member: tuple(dict.fromkeys((first, *partitions)))
            for member, partitions in assignment.items()
        }


def test_assignor_that_shares_a_partition_is_found_by_generations_and_ownership(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The run has no fault, because a fault would excuse two owners of a partition for a while."""
    monkeypatch.setitem(ASSIGNORS, "range", GenerousAssignor())

    played = play(small(after_faults="2s"))

    assert {"generations", "ownership"} <= set(played.violated)
    assert "were both given it" in played.report("generations").findings[0].summary
    assert "nothing was broken" in played.report("ownership").findings[0].summary


def test_generation_without_an_increment_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted bug: a rebalance does not increment the generation.

    The group rebalances twice: when its members start, and when a late member joins at 1 s.
    """
    begin = Group.init_next_generation

    def begin_again(
        self: Group,
        *,
        now_us: int,
        cause: GroupStateCause,
        trace: list[TraceEvent],
        cause_text: str | None = None,
    ) -> None:
        if self.generation_id > 0:
            self.generation_id -= 1  # `begin` adds 1, so the generation stays the same
        begin(self, now_us=now_us, cause=cause, cause_text=cause_text, trace=trace)

    monkeypatch.setattr(Group, "init_next_generation", begin_again)
    group = readers(late_members=[{"at": "1s", "members": 1}])

    played = play(small(group=group, after_faults="6s"))

    assert "generations" in played.violated
    assert "generation 1 began twice" in played.report("generations").findings[0].summary


def test_commit_of_an_ended_generation_is_found() -> None:
    """The guard `generation_check`, which refuses a commit of an ended generation, is off.

    1. A static member is paused at 2 s, for 8 s.
    2. A late member joins at 4 s. The paused member does not rejoin.
    3. After the rebalance timeout (max.poll.interval.ms, 4 s) generation 2 starts. The paused
       member stays in the group, because only the end of its session removes a static member.
    4. The paused member resumes, and commits in generation 1.
    """
    group = readers(
        config={"group.instance.id": "reader-{index}", "max.poll.interval.ms": 4_000},
        late_members=[{"at": "4s", "members": 1}],
    )
    fault = {**PAUSE_MEMBER, "duration": "8s"}

    guarded = play(small(fault, group=group))
    unguarded = play(small(fault, group=group, guards={"generation_check": False}))

    assert "generations" not in guarded.violated
    assert "generations" in unguarded.violated
    finding = unguarded.report("generations").findings[0]
    assert "in generation 1 while the group was in generation 2" in finding.summary


# -- ownership, needless rebalance, liveness -----------------------------------------------------


def test_loaded_members_without_a_full_session_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted bug: the new coordinator gives loaded members one second instead of a session."""

    def restart_soon(turn: Turn, group: Group, member: Member) -> None:
        one_second_ms = 1_000
        turn.set_timer(member.heartbeat_key, SessionTimer(group, member.member_id), one_second_ms)

    monkeypatch.setattr(coordinator.coordinator, "restart_session_timer", restart_soon)

    played = play(
        small(CUT, group=readers(commit_interval_ms=None, late_members=LATE_ON_THE_OTHER_SIDE))
    )

    assert {"ownership", "needless_rebalance"} <= set(played.violated)
    assert "had loaded the group" in played.report("ownership").findings[0].summary


# The original of a method that a test replaces.
_HEARTBEAT_ANSWERED = Heartbeat._answered


def take_for_an_answer(
    self: Heartbeat, answer: RequestFuture[HeartbeatResponse], sent: Generation
) -> None:
    """Planted bug: UNKNOWN_MEMBER_ID counts as a successful heartbeat."""
    if answer.error is None and answer.value.error_code is ErrorCode.UNKNOWN_MEMBER_ID:
        self._received()
        return
    _HEARTBEAT_ANSWERED(self, answer, sent)


def test_zombie_without_an_error_is_found_by_ownership_and_liveness(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A zombie is a member that its coordinator has removed, and that goes on as an owner.

    While a member is paused, its session ends. After the pause the planted bug lets the member
    treat UNKNOWN_MEMBER_ID as a success, so it never rejoins.
    """
    monkeypatch.setattr(Heartbeat, "_answered", take_for_an_answer)

    played = play(small(PAUSE_MEMBER, group=READERS_WITHOUT_COMMITS))

    assert {"ownership", "liveness"} <= set(played.violated)
    assert "with nothing broken any more" in played.report("ownership").findings[0].summary
    assert "whom its coordinator does not know" in played.report("liveness").findings[0].summary


def test_member_that_stays_with_a_former_coordinator_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planted bug: NOT_COORDINATOR counts as a success (similar to KAFKA-12890).

    So a member goes on asking the old coordinator after the leadership has moved.
    """
    mark_unknown = CoordinatorDiscovery.mark_unknown

    def stay(self: CoordinatorDiscovery, cause: str) -> None:
        if cause == ErrorCode.NOT_COORDINATOR.name:
            self._on_change()  # the bug: the member keeps its coordinator
        else:
            mark_unknown(self, cause)

    monkeypatch.setattr(CoordinatorDiscovery, "mark_unknown", stay)

    played = play(small(MOVE))

    assert "liveness" in played.violated
    assert "its coordinator has it Empty" in played.report("liveness").findings[0].summary


def test_members_that_a_new_coordinator_does_not_have_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planted bug: the new coordinator reads nothing from the log (BEHAVIOUR 6.6 f).

    A crash is not needed to show this bug: here the leadership moves gracefully.
    """
    monkeypatch.setattr(GroupCoordinator, "load_batches", load_nothing)

    played = play(small(MOVE))

    assert {"needless_rebalance", "durable_commits"} <= set(played.violated)


# -- acknowledgements ----------------------------------------------------------------------------


def test_acknowledgement_of_a_truncated_append_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planted bug: appends that wait for replicas go on waiting when their broker loses leadership.

    1. The leader is isolated, and its appends wait. Another broker becomes the leader.
    2. After the cut the first leader truncates these appends from its log.
    3. The second leader crashes, and the first leader leads again. Other records have the offsets
       of the truncated appends by now.
    4. The high watermark passes these offsets, and the truncated appends are acknowledged.
    """
    isolated = {**CUT, "duration": "12s"}
    # This crash hits the second leader. The first leader is next in the order of the replicas, so
    # it is elected again.
    crash = {**CRASH, "at": "17s"}
    # Appends must still wait when the first broker leads again, so they have a long timeout.
    long_timeout: dict[str, object] = {
        "offsets.commit.timeout.ms": 60_000,
        "broker.session.timeout.ms": 3_000,
    }
    schedule = small(isolated, crash, after_faults="12s", config=long_timeout)

    assert play(schedule).violated == []

    # This is the original method, except for the case NOT_LEADER_OR_FOLLOWER.
    def wait_for_leadership(self: DelayedAppends, partition: Partition) -> None:
        waiting = self._waiting.get(partition.topic_partition)
        while waiting:
            error = partition.check_acknowledged(waiting[0].required_offset)
            if error is None or error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                return  # the bug: the original completes the appends with NOT_LEADER_OR_FOLLOWER
            delayed = waiting.popleft()
            delayed.is_done = True
            delayed.on_completed(error)

    monkeypatch.setattr(DelayedAppends, "check", wait_for_leadership)

    played = play(schedule)

    assert "fencing" in played.violated
    summaries = [finding.summary for finding in played.report("fencing").findings]
    assert any("after it had truncated its log" in summary for summary in summaries), summaries


# -- static members ------------------------------------------------------------------------------


def test_static_member_whose_acknowledged_id_is_not_stored_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planted bug: a Stable group gives a static member a new id, but stores the old id.

    1. A member crashes and starts again. The coordinator gives it a new id.
    2. The coordinator crashes. The next coordinator loads the old id, so it fences the member for
       good.
    """
    restart: dict[str, object] = {
        "at": "2s",
        "fault": "crash",
        "target": "member(readers, 0)",
        "duration": "1s",
    }
    schedule = small(
        restart,
        {**CRASH, "at": "8s"},
        group=readers(config={"group.instance.id": "member-{index}"}),
    )

    assert play(schedule).violated == []

    rename = static_member._rename

    def rename_after_the_record_is_built(
        turn: Turn, group: Group, group_instance_id: str, old_id: str, new_id: str
    ) -> Member:
        if group.state is GroupState.STABLE:
            # Build the record now, with the old id. When the coordinator then calls `group_record`,
            # it gets this record.
            assignments = {member.member_id: member.assignment for member in group.members.values()}
            stored = group_record(group, assignments, turn.now_ms, turn.versions)
            monkeypatch.setattr(static_member, "group_record", lambda *_: stored)
        return rename(turn, group, group_instance_id, old_id, new_id)

    monkeypatch.setattr(static_member, "_rename", rename_after_the_record_is_built)

    assert play(schedule).violated == ["liveness"]


def test_member_that_is_refused_for_good_is_found_before_the_steady_state(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planted bug: the coordinator refuses the second member, as if the group were full.

    The run never reaches its steady state, so it injects no fault. Only the check `liveness` can
    judge such a run.
    """

    def accept_one(group: Group, member_id: str, group_max_size: int) -> bool:
        del group_max_size
        return member_id in group.members or not group.members

    monkeypatch.setattr(join_group, "_accepts", accept_one)

    played = play(small(CRASH))

    assert played.results.steady_at_us is None
    assert played.violated == ["liveness"]
    assert "GROUP_MAX_SIZE_REACHED ended" in played.report("liveness").findings[0].summary


def test_member_that_is_never_expired_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted bug: the end of a session removes no member.

    1. A member crashes. Its session ends after 10 s, but its id stays in the group.
    2. After 25 s it returns under a new id, and its join starts a rebalance.
    3. The rebalance waits 12 s (max.poll.interval.ms) for the old id, and then removes it.

    The check `liveness` must report the old id before step 3.
    """
    dead: dict[str, object] = {
        "at": "2s",
        "fault": "crash",
        "target": "member(readers, 0)",
        "duration": "25s",
    }
    schedule = small(dead, group=readers(config={"max.poll.interval.ms": 12_000}))

    assert play(schedule).violated == []

    monkeypatch.setattr(timer_handlers, "_expire_session", lambda *_: None)

    played = play(schedule)

    assert played.violated == ["liveness"]
    (finding,) = played.report("liveness").findings
    assert "has not heard for longer than its session of" in finding.summary


# -- processing ----------------------------------------------------------------------------------


class HastyConsumer(ConsumerNode):
    """Planted bug: the application commits records before it processes them."""

    async def _process(self, records: list[ConsumedRange]) -> None:
        if self._spec.commit_interval_ms is not None:
            self._consumer.commit_async()
        await super()._process(records)


def build_hasty_consumers(spec: NodeSpec, cluster: ClusterSpec, host: Host) -> Node:
    """Build a HastyConsumer for each consumer, and the usual node for any other specification."""
    if isinstance(spec, ConsumerSpec):
        return HastyConsumer(host, cluster, spec)
    return build_node(spec, cluster, host)


def test_commit_before_processing_is_found_when_the_member_dies_in_between() -> None:
    """The application commits records before it processes them, and dies in between.

    The next owner starts from the committed offset. So the committed records are never processed.
    The test kills the member right after such a commit, once the run is steady (6 s).
    """
    processed: dict[str, int] = {}  # partition -> the offset after its last processed record
    killed: list[str] = []

    def kill_after_a_hasty_commit(runtime: VirtualRuntime, row: TraceRow) -> None:
        if row.kind == TraceKind.RECORDS_CONSUMED:
            processed[row.partition or ""] = detail_of(row)["last"] + 1
            return
        is_beyond_processed = (row.offset or 0) > processed.get(row.partition or "", 0)
        is_hasty_commit = row.kind == TraceKind.OFFSETS_COMMITTED and is_beyond_processed
        is_steady = row.time_us > 6_000_000
        if is_hasty_commit and is_steady and not killed:
            killed.append(row.node)
            runtime.crash_now(NodeName(row.node))

    played = play(
        small(after_faults="15s", group=readers(process_us=40_000)),
        build=build_hasty_consumers,
        on_row=kill_after_a_hasty_commit,
    )

    assert played.violated == ["processing"]
    findings = played.report("processing").findings
    assert killed
    assert TraceKind.POSITION_RESET in {finding.evidence[-1].kind for finding in findings}


def test_records_that_the_client_drops_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted bug: the 50th fetched batch never reaches the application."""
    collect = Fetcher.collect
    batches = 0

    def drop_one(self: Fetcher, max_records: int) -> list[ConsumedRange]:
        nonlocal batches
        records = collect(self, max_records)
        if not records:
            return records
        batches += 1
        return [] if batches == 50 else records

    monkeypatch.setattr(Fetcher, "collect", drop_one)

    played = play(small(after_faults="6s"))

    assert "processing" in played.violated
    # There are two findings: the member jumps ahead, and the records in between are not processed.
    jump, gap = (finding.summary for finding in played.report("processing").findings)
    assert "while its position was" in jump
    assert "were never processed" in gap


def test_reset_to_latest_after_a_loss_of_offsets_is_found_as_a_reset(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planted bug: the new coordinator reads nothing from the log, so committed offsets are lost.

    Without a committed offset a client starts at the end of the log (auto.offset.reset: latest). So
    it skips records.
    """
    monkeypatch.setattr(GroupCoordinator, "load_batches", load_nothing)
    group = readers(config={"auto.offset.reset": "latest"})

    played = play(small(CRASH, group=group))

    assert "durable_commits" in played.violated
    assert "processing" in played.violated
    assert "auto.offset.reset" in played.report("processing").findings[0].summary
