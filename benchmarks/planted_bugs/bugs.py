"""The bugs: each changes one behaviour of the real code, in this process, while it is planted.

A function below plants the bug that has the function's name. Its docstring says what the code does
while the bug is planted. `BUGS`, at the end, also says which rule each bug breaks ("BEHAVIOUR 5.5"
is a section of docs/kafka/BEHAVIOUR.md).

Most functions wrap a method of the real code, and change only an argument or the result of this
method. If the method is renamed one day, `patch.object` raises AttributeError, so no bug is lost
unnoticed.
"""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from unittest.mock import patch

import msgspec

from benchmarks.planted_bugs.planted_bug import PlantedBug
from benchmarks.planted_bugs.zookeeper_bugs import ZOOKEEPER_BUGS
from cluster.broker.coordination.appends import CoordinatorAppends
from cluster.client.consumer.consumer_coordinator import ConsumerCoordinator
from cluster.client.consumer.fetcher import Fetcher
from cluster.client.consumer.subscription import AssignedPartition, Position
from cluster.client.net.coordinator_discovery import CoordinatorDiscovery
from cluster.client.net.futures import RequestFuture
from cluster.controller.broker_control import BrokerControl
from cluster.controller.decision import Decision
from cluster.controller.election import change_partition
from cluster.controller.metadata_image import BrokerRegistration, PartitionRegistration
from coordinator.coordinator import GroupCoordinator, LoadIgnored
from coordinator.delayed import cancel_all
from coordinator.group import Group
from coordinator.states import GroupState
from coordinator.turn import SessionTimer, Turn
from coordinator.validation import check_offset_commit
from partition_log.in_sync_replicas import InSyncReplicas
from partition_log.outcomes import AppendInfo
from partition_log.replica import Partition
from protocol.compression import NO_CODECS, Codecs
from protocol.config import Guards
from protocol.effects import Append, Result
from protocol.errors import ErrorCode
from protocol.ids import NO_LEADER_EPOCH, BrokerId, NodeName, TopicPartition
from protocol.messages.controller import BrokerHeartbeatResponse
from protocol.messages.discovery import FindCoordinatorResponse
from protocol.messages.log import FetchPartition
from protocol.records.batch import RecordBatch, fields_of
from protocol.records.metadata import PartitionChangeRecord

# -- coordinator ----------------------------------------------------------------------------------


def _unload_without_epoch(stack: ExitStack) -> None:
    """Carry out an unload with any leader epoch, also an older one.

    In an unload, a broker that has lost the leadership of a partition of `__consumer_offsets` drops
    the partition's groups from its memory.
    """
    unload = GroupCoordinator.unload

    def unload_always(
        self: GroupCoordinator, partition: int, leader_epoch: int | None, now_us: int
    ) -> Result | LoadIgnored:
        # `_accepts_epoch` returns whether the unload may happen. The bug ignores this result, but
        # makes the call: it remembers a newer epoch, and later loads need the newer epoch. In the
        # call of `unload`, None means any epoch.
        if leader_epoch is not None:
            self._accepts_epoch(partition, leader_epoch)
        return unload(self, partition, None, now_us)

    stack.enter_context(patch.object(GroupCoordinator, "unload", unload_always))


def _reply_before_high_watermark(stack: ExitStack) -> None:
    """Answer a commit or an assignment as soon as the leader's own log has it."""

    def do_not_wait(
        self: CoordinatorAppends,
        append: Append,
        partition: Partition,
        info: AppendInfo,
        detail: dict[str, object],
    ) -> None:
        del partition  # the real method waits for the high watermark of this partition
        self._complete(append, ErrorCode.NONE, info, detail)

    stack.enter_context(patch.object(CoordinatorAppends, "_await", do_not_wait))


def _commit_of_any_generation(stack: ExitStack) -> None:
    """Accept an OffsetCommit of any generation."""

    def check_but_the_generation(
        group: Group,
        *,
        generation_id: int,
        member_id: str,
        group_instance_id: str | None,
        guards: Guards,
    ) -> ErrorCode:
        return check_offset_commit(
            group,
            generation_id=generation_id,
            member_id=member_id,
            group_instance_id=group_instance_id,
            guards=msgspec.structs.replace(guards, generation_check=False),
        )

    stack.enter_context(
        patch("coordinator.apis.offset_commit.check_offset_commit", check_but_the_generation)
    )


def _timer_survives_unload(stack: ExitStack) -> None:
    """Let session timers survive an unload, and expire members after the next load.

    1. When an unload has cancelled all timers, the bug sets the session timers again. It gives them
       other keys, because a later load sets new timers with the usual keys.
    2. When such an old timer fires, the bug applies it to the group that has been loaded again.
    """
    timer_fired = GroupCoordinator.timer_fired

    def cancel_but_sessions(turn: Turn, group: Group) -> None:
        cancel_all(turn, group)
        for member in group.members.values():
            timer = SessionTimer(group, member.member_id)
            turn.set_timer(f"old-{member.heartbeat_key}", timer, member.session_timeout_ms)

    def fire_by_name(self: GroupCoordinator, key: str, now_us: int) -> Result:
        timer = self._shared.in_flight.timers.get(key)
        if isinstance(timer, SessionTimer) and timer.group.state is GroupState.DEAD:
            present = self.group(timer.group.group_id)
            if present is not None:
                self._shared.in_flight.timers[key] = replace(timer, group=present)
        return timer_fired(self, key, now_us)

    stack.enter_context(patch("coordinator.coordinator.cancel_all", cancel_but_sessions))
    stack.enter_context(patch.object(GroupCoordinator, "timer_fired", fire_by_name))


def _load_drops_tombstones(stack: ExitStack) -> None:
    """Skip records without a value in a load."""

    def fields_with_values(
        batch: RecordBatch, codecs: Codecs = NO_CODECS
    ) -> list[tuple[bytes | None, bytes | None, int]]:
        # fields[1] is the value of a record; a tombstone has none.
        return [fields for fields in fields_of(batch, codecs) if fields[1] is not None]

    stack.enter_context(patch("coordinator.storage.load.fields_of", fields_with_values))


# -- log ------------------------------------------------------------------------------------------


def _follower_keeps_its_tail(stack: ExitStack) -> None:
    """Name no epoch in a follower's fetch. Its leader cannot find where the logs diverge."""
    fetch_position = Partition.fetch_position

    def ask_without_epoch(self: Partition, partition_max_bytes: int) -> FetchPartition:
        position = fetch_position(self, partition_max_bytes)
        return msgspec.structs.replace(position, last_fetched_epoch=NO_LEADER_EPOCH)

    stack.enter_context(patch.object(Partition, "fetch_position", ask_without_epoch))


def _high_watermark_by_majority(stack: ExitStack) -> None:
    """Let the high watermark follow the log end that a majority of the replicas has reached."""

    def increment(self: InSyncReplicas, now_us: int) -> bool:
        del now_us
        if self.is_under_min:
            return False
        followers = [follower.log_end_offset for follower in self.followers.values()]
        ends = sorted([self._log.log_end_offset, *followers], reverse=True)
        # The middle of the sorted log ends: a majority of the replicas has reached this offset.
        reached = ends[len(ends) // 2]
        if reached <= self._log.high_watermark:
            return False
        return self._log.update_high_watermark(reached)

    stack.enter_context(patch.object(InSyncReplicas, "maybe_increment_high_watermark", increment))


# -- controller -----------------------------------------------------------------------------------


def _unclean_election(stack: ExitStack) -> None:
    """Elect any living replica as the leader of a partition whose ISR is dead."""

    def change_uncleanly(
        name: TopicPartition,
        partition: PartitionRegistration,
        *,
        target_isr: tuple[BrokerId, ...],
        is_acceptable_leader: Callable[[BrokerId], bool],
        unclean: bool,
    ) -> PartitionChangeRecord | None:
        del unclean
        return change_partition(
            name,
            partition,
            target_isr=target_isr,
            is_acceptable_leader=is_acceptable_leader,
            unclean=True,
        )

    stack.enter_context(
        patch("cluster.controller.broker_control.change_partition", change_uncleanly)
    )


def _unfence_elects_nobody(stack: ExitStack) -> None:
    """Elect no leader for leaderless partitions when a broker comes back."""
    unfence = BrokerControl._unfence

    def unfence_only(
        self: BrokerControl,
        broker: BrokerRegistration,
        decision: Decision[BrokerHeartbeatResponse],
    ) -> None:
        # `_change` makes the records of elections. Unfencing calls it for leaderless partitions.
        with patch.object(self, "_change", _do_nothing):
            unfence(self, broker, decision)

    stack.enter_context(patch.object(BrokerControl, "_unfence", unfence_only))


def _do_nothing(*arguments: object) -> None:
    del arguments


# -- consumer -------------------------------------------------------------------------------------


def _keeps_lost_partitions(stack: ExitStack) -> None:
    """Let a member that the coordinator has removed join again without giving up its partitions."""
    release_partitions = ConsumerCoordinator.release_partitions

    async def give_up_what_may_be_committed(self: ConsumerCoordinator) -> None:
        # In the real method, a member with a generation revokes its partitions, and a member
        # without a generation loses them. The bug leaves out the loss.
        if self._membership.member.has_generation:
            await release_partitions(self)

    stack.enter_context(
        patch.object(ConsumerCoordinator, "release_partitions", give_up_what_may_be_committed)
    )


def _never_asks_again(stack: ExitStack) -> None:
    """After a member has lost a coordinator, never repeat a FindCoordinator that failed."""
    answered = CoordinatorDiscovery._answered

    def keep_a_failure(
        self: CoordinatorDiscovery,
        asked: NodeName,
        future: RequestFuture[FindCoordinatorResponse],
        lookup: RequestFuture[None],
    ) -> None:
        answered(self, asked, future, lookup)
        # `_found` counts discoveries, so the first lookup of all may fail and be repeated. A later
        # lookup that failed stays in `_lookup`, as if it were still in flight, so that no other one
        # is sent.
        if lookup.error is not None and self._found:
            self._lookup = lookup

    stack.enter_context(patch.object(CoordinatorDiscovery, "_answered", keep_a_failure))
    stack.enter_context(patch.object(CoordinatorDiscovery, "abandon_lookup", _do_nothing))


def _commits_what_was_fetched(stack: ExitStack) -> None:
    """Let a commit cover fetched records that poll has not returned yet."""
    keep = Fetcher._keep

    def keep_and_move_on(
        self: Fetcher,
        state: AssignedPartition,
        position: Position,
        batches: tuple[RecordBatch, ...],
    ) -> None:
        keep(self, state, position, batches)
        # `_completed` holds fetched records that poll has not returned. A commit takes its offset
        # from `state.position`, so the bug moves this position behind the fetched records.
        fetched = self._completed.get(state.partition)
        if fetched is not None:
            state.position = fetched.next_position

    stack.enter_context(patch.object(Fetcher, "_keep", keep_and_move_on))


BUGS: dict[str, PlantedBug] = {
    bug.name: bug
    for bug in (
        PlantedBug(
            name="unload_without_epoch",
            where="coordinator",
            what="an unload is carried out with any leader epoch",
            rule="BEHAVIOUR 5.5: an unload of an older epoch is ignored (KAFKA-10614)",
            plant=_unload_without_epoch,
        ),
        PlantedBug(
            name="reply_before_high_watermark",
            where="coordinator",
            what="a commit or assignment is answered as soon as the leader's own log has it",
            rule="BEHAVIOUR 5.3: an append is acknowledged when the high watermark passed it",
            plant=_reply_before_high_watermark,
        ),
        PlantedBug(
            name="commit_of_any_generation",
            where="coordinator",
            what="OffsetCommit does not check the generation",
            rule="BEHAVIOUR 2.6: another generation than the current one is ILLEGAL_GENERATION",
            plant=_commit_of_any_generation,
        ),
        PlantedBug(
            name="timer_survives_unload",
            where="coordinator",
            what=(
                "session timers survive an unload, and expire the member that has the same id "
                "when they fire"
            ),
            rule="BEHAVIOUR 5.5: an unload completes every heartbeat operation",
            plant=_timer_survives_unload,
        ),
        PlantedBug(
            name="load_drops_tombstones",
            where="coordinator",
            what="a load skips records without a value",
            rule="BEHAVIOUR 5.4: a tombstone removes what was read before it",
            plant=_load_drops_tombstones,
        ),
        PlantedBug(
            name="follower_keeps_its_tail",
            where="log",
            what=(
                "a follower names no epoch when it fetches, so its leader cannot find where the "
                "logs diverge"
            ),
            rule="BEHAVIOUR 6.1: followers truncate to the end of the last common epoch",
            plant=_follower_keeps_its_tail,
        ),
        PlantedBug(
            name="high_watermark_by_majority",
            where="log",
            what=(
                "the high watermark follows the log end that a majority of the replicas has reached"
            ),
            rule="BEHAVIOUR 6.1: the high watermark is the minimum over the maximal ISR",
            plant=_high_watermark_by_majority,
        ),
        PlantedBug(
            name="unclean_election",
            where="controller",
            what="a partition whose ISR is dead gets any living replica as its leader",
            rule="BEHAVIOUR 6.2: without unclean.leader.election.enable its leader is -1",
            plant=_unclean_election,
        ),
        PlantedBug(
            name="unfence_elects_nobody",
            where="controller",
            what="partitions without a leader get none when a broker comes back",
            rule="BEHAVIOUR 6.2: a replica of the ISR that is alive again leads",
            plant=_unfence_elects_nobody,
        ),
        PlantedBug(
            name="keeps_lost_partitions",
            where="consumer",
            what=(
                "a member joins again after UNKNOWN_MEMBER_ID without giving up its partitions "
                "first"
            ),
            rule="BEHAVIOUR 7.3, 7.6: onPartitionsLost before the next JoinGroup",
            plant=_keeps_lost_partitions,
        ),
        PlantedBug(
            name="never_asks_again",
            where="consumer",
            what="after a member has lost a coordinator, it never repeats a failed FindCoordinator",
            rule="BEHAVIOUR 7.2: a failed lookup is followed by another, after a backoff",
            plant=_never_asks_again,
        ),
        PlantedBug(
            name="commits_what_was_fetched",
            where="consumer",
            what="a commit covers fetched records that poll has not returned yet",
            rule="BEHAVIOUR 7.5: a commit has the position after the records that poll returned",
            plant=_commits_what_was_fetched,
        ),
        *ZOOKEEPER_BUGS,
    )
}
"""The bugs of README.md in this folder, by name. The bugs of `operation_bugs` are not among
them."""
