"""Random inputs keep the invariants, refusals change nothing, and the log rebuilds the state.

Hypothesis draws the inputs: requests of two groups, timers, and loads and unloads of the groups'
offsets partition (loading reads its groups into memory, unloading drops them). After every input
the harness (a coordinator with a log) checks the invariants, and that no request is answered
twice. The coordinator follows Kafka's older one, in Scala. `JavaSwitches` turn on behaviour of
Kafka's newer one, in Java.
"""

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from coordinator.group import Group
from coordinator.states import GroupState
from protocol.api import AnyResponse, GroupRequest, error_of
from protocol.config import BrokerConfig, JavaSwitches
from protocol.effects import ACKS_LEADER
from protocol.errors import ErrorCode
from protocol.ids import RequestId, TopicPartition
from protocol.messages.group import LeaveGroupResponse, MemberIdentity
from protocol.records.offsets import OffsetCommitValue
from tests.support.builders.requests import (
    heartbeat,
    join_group,
    leave_group,
    offset_commit,
    offset_fetch,
    protocols,
    subscription,
    sync_group,
    txn_offset_commit,
)
from tests.support.harness.coordinator_harness import CoordinatorHarness

GROUPS = ("a", "b")
# Errors whose requests may change the state nevertheless.
CHANGES_THOUGH_AN_ERROR = {
    "MEMBER_ID_REQUIRED",  # assigns a member id
    "GROUP_MAX_SIZE_REACHED",  # removes the member that found no place
    "REBALANCE_IN_PROGRESS",  # the heartbeat that receives this error extends the session
    "UNKNOWN_SERVER_ERROR",  # Kafka's handler fails half way through and keeps its changes
}

# Of these strategies' values, one that is listed twice is drawn twice as often.
group_ids = st.sampled_from(GROUPS)
instances = st.sampled_from([None, None, None, "i", "j"])
COMMON = protocols("range", "roundrobin")
offers = st.one_of(
    st.just(COMMON),
    st.just(COMMON),
    st.sampled_from(
        [
            protocols("roundrobin", "range"),
            protocols("range", metadata=subscription("bar")),
            protocols("sticky"),
            protocols("range", "range"),
            protocols("range", "roundrobin", metadata=b"meta-c1"),
            (),
        ]
    ),
)
# 5 s is below Kafka's minimum of 6 s, so a JoinGroup with this session timeout is refused.
timeouts_ms = st.sampled_from([6_000, 10_000, 10_000, 5_000])
rebalance_timeouts_ms = st.sampled_from([0, 5_000, 30_000, 30_000])
generations = st.integers(-1, 4)  # -1 is no generation
# 0 to 5 pick a member id that a group has had, 6 and 7 one that was never assigned.
picks = st.integers(0, 7)
producers = st.sampled_from([7, 8])
verification_errors = st.sampled_from(
    [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.INVALID_TXN_STATE, ErrorCode.NETWORK_EXCEPTION]
)
append_errors = st.sampled_from(
    [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.MESSAGE_TOO_LARGE,
    ]
)


def snapshot(h: CoordinatorHarness) -> object:
    """Return the state that a refused request must not change.

    The snapshot leaves out groups without members and offsets, because Kafka creates such a group
    for some refusals. It leaves out timers with "write-" keys, because a refused request may have
    set one.
    """
    return (
        [
            _group_snapshot(h.group(summary.group_id))
            for summary in h.coordinator.groups()
            if _holds_anything(h.group(summary.group_id))
        ],
        sorted(key for key in h.timer_keys() if not key.startswith("write-")),
        len(h.held),
        [len(batches) for batches in h.log.values()],
    )


def committed_values(group: Group) -> dict[TopicPartition, OffsetCommitValue]:
    """Return the committed offsets, without the offsets that their records have in the log.

    The offsets in the log may differ after a load. If two equal commits were in flight, Kafka keeps
    the log offset of the first, and a load finds that of the second.
    """
    return {tp: stored.value for tp, stored in group.offsets.committed().items()}


def _holds_anything(group: Group) -> bool:
    return bool(
        group.state is not GroupState.EMPTY
        or group.generation_id
        or group.pending_members
        or group.offsets.has_offsets
    )


def _group_snapshot(group: Group) -> object:
    return (
        group.group_id,
        group.state,
        group.generation_id,
        group.leader_id,
        group.protocol_name,
        [repr(member) for member in group.members.values()],
        list(group.pending_members),
        list(group.pending_sync_members),
        group.new_member_added,
        group.delayed_join,
        group.offsets.committed(),
        group.offsets.producers(),
    )


def refused(response: AnyResponse | None) -> bool:
    """Return True if a whole request got an error. Such a request must not change any state."""
    if response is None:
        return False
    if isinstance(response, LeaveGroupResponse) and not response.error_code.value:
        return all(member.error_code.value for member in response.members)
    return error_of(response) not in {"NONE", *CHANGES_THOUGH_AN_ERROR}


class Coordinator(RuleBasedStateMachine):
    """Hypothesis calls the methods marked `@rule` in any order; each is one kind of input.

    There are two groups of one offsets partition. The log may hold appends back, so that they end
    later, or with an error.
    """

    java = JavaSwitches()

    def __init__(self) -> None:
        super().__init__()
        self.h = CoordinatorHarness(owned=())
        self.ids: dict[str, list[str]] = {group_id: [] for group_id in GROUPS}
        """Every member id that a group has ever had."""
        self.epoch = 0  # newest leader epoch of the offsets partition
        self.log_diverged = False
        """True once the log may differ from memory. Then a load need not give equal groups."""

    # Of the two limits of a group's size, 2 is reached and 100 is not.
    @initialize(delay_ms=st.sampled_from([0, 3_000]), max_size=st.sampled_from([2, 100]))
    def start(self, delay_ms: int, max_size: int) -> None:
        config = BrokerConfig(group_initial_rebalance_delay_ms=delay_ms, group_max_size=max_size)
        self.h = CoordinatorHarness(config=config, java=self.java)
        # Group b begins with two static members (with an instance id) and a dynamic one. JoinGroup
        # has instance ids from version 5. Before version 4 a dynamic member joins at once, without
        # the answer MEMBER_ID_REQUIRED.
        for instance in ("i", "j", None):
            body = join_group(group_id="b", instance=instance, offers=COMMON)
            self.submit(body, version=5 if instance else 3)
        self.settle("b")

    def submit(self, body: GroupRequest, version: int | None = None) -> RequestId:
        """Send a request to the coordinator and check that a refusal changed nothing."""
        before = snapshot(self.h)
        request_id = self.h.submit(body, version=version)
        response = self.h.response(request_id)
        if refused(response):
            assert snapshot(self.h) == before

        # As in Kafka, a handler that fails half way keeps its changes in memory, and stores
        # none of them.
        self.log_diverged |= response is not None and error_of(response) == "UNKNOWN_SERVER_ERROR"
        for group_id, ids in self.ids.items():
            group = self.h.coordinator.group(group_id)
            if group is not None:
                present_ids = (*group.members, *group.pending_members)
                ids.extend(member_id for member_id in present_ids if member_id not in ids)
        return request_id

    def picked_id(self, group_id: str, pick: int) -> str:
        """Return a member id that the group has or once had, or an id that was never assigned."""
        ids = self.ids[group_id]
        # The newest id comes first, so that small picks are often present members.
        return ids[-1 - pick % len(ids)] if ids and pick < 6 else "never-assigned"

    # Version 0 has no rebalance timeout. Version 4 is the first that answers MEMBER_ID_REQUIRED,
    # and version 5 the first with an instance id. Version 9 is the latest.
    @rule(
        group_id=group_ids,
        instance=instances,
        offered=offers,
        session=timeouts_ms,
        rebalance=rebalance_timeouts_ms,
        version=st.sampled_from([0, 3, 4, 5, 9]),
    )
    def join_anew(
        self,
        group_id: str,
        instance: str | None,
        offered: tuple,  # type: ignore[type-arg]  # of protocols, see the strategy `offers`
        session: int,
        rebalance: int,
        version: int,
    ) -> None:
        body = join_group(
            group_id=group_id,
            instance=instance if version >= 5 else None,
            offers=offered,
            session_timeout_ms=session,
            rebalance_timeout_ms=rebalance,
        )
        self.submit(body, version)

    @rule(group_id=group_ids, pick=picks, instance=instances, offered=offers)
    def join_again(
        self,
        group_id: str,
        pick: int,
        instance: str | None,
        offered: tuple,  # type: ignore[type-arg]  # of protocols, see the strategy `offers`
    ) -> None:
        member_id = self.picked_id(group_id, pick)
        self.submit(join_group(member_id, group_id=group_id, instance=instance, offers=offered))

    @rule(group_id=group_ids)
    def settle(self, group_id: str) -> None:
        """Bring a group to Stable or Empty, if possible: all members rejoin, and then sync.

        The times are enough to end a join phase with either initial delay, 0 or 3 s.
        """
        self.h.advance(1_000)
        self.rejoin_everyone(group_id)
        self.h.advance(3_000)
        self.sync_everyone(group_id)

    @rule(group_id=group_ids, pick=picks, version=st.sampled_from([5, 9]), offered=offers)
    def come_back(
        self,
        group_id: str,
        pick: int,
        version: int,
        offered: tuple,  # type: ignore[type-arg]  # of protocols, see the strategy `offers`
    ) -> None:
        """Let a new process join with the instance id of a static member, as after a restart."""
        group = self.h.coordinator.group(group_id)
        present = list(group.static_members) if group else []  # instance ids
        instance = present[pick % len(present)] if present else "i"
        self.submit(join_group(group_id=group_id, instance=instance, offers=offered), version)

    @rule(group_id=group_ids)
    def rejoin_everyone(self, group_id: str) -> None:
        group = self.h.coordinator.group(group_id)
        if group is None:
            return
        for member in tuple(group.members.values()):
            self.submit(
                join_group(
                    member.member_id,
                    group_id=group_id,
                    instance=member.group_instance_id,
                    offers=member.supported_protocols,
                )
            )

    @rule(group_id=group_ids, pick=picks, generation_id=generations)
    def sync_one(self, group_id: str, pick: int, generation_id: int) -> None:
        member_id = self.picked_id(group_id, pick)
        body = sync_group(member_id, generation_id, {member_id: b"x"}, group_id=group_id)
        self.submit(body, 4)

    @rule(group_id=group_ids)
    def sync_everyone(self, group_id: str) -> None:
        group = self.h.coordinator.group(group_id)
        if group is None:
            return
        for member_id in tuple(group.members):
            body = sync_group(
                member_id,
                group.generation_id,
                {member_id: b"mine"},
                group_id=group_id,
                # The group may have selected another protocol than the builder's default, range.
                protocol_name=None,
            )
            # Version 4 is the last without a mandatory protocol name.
            self.submit(body, 4)

    @rule(group_id=group_ids, pick=picks, generation_id=generations, instance=instances)
    def heartbeat(self, group_id: str, pick: int, generation_id: int, instance: str | None) -> None:
        member_id = self.picked_id(group_id, pick)
        self.submit(heartbeat(member_id, generation_id, group_id=group_id, instance=instance))

    @rule(group_id=group_ids, pick=picks, instance=instances, by_instance=st.booleans())
    def leave(self, group_id: str, pick: int, instance: str | None, by_instance: bool) -> None:
        # A static member may be named by its instance id alone, with an empty member id.
        member_id = "" if by_instance else self.picked_id(group_id, pick)
        identity = MemberIdentity(member_id=member_id, group_instance_id=instance)
        # The request names two members; the second one does not exist.
        self.submit(leave_group(identity, "never-assigned", group_id=group_id))

    @rule(group_id=group_ids, pick=picks, generation_id=generations, offset=st.integers(0, 9))
    def commit(self, group_id: str, pick: int, generation_id: int, offset: int) -> None:
        # A commit without generation is that of a simple consumer, which has no member id.
        member_id = "" if generation_id < 0 else self.picked_id(group_id, pick)
        partitions = {("foo", offset % 2): offset}
        self.submit(offset_commit(partitions, member_id, generation_id, group_id=group_id))

    @rule(
        group_id=group_ids,
        pick=picks,
        generation_id=st.sampled_from([-1, -1, -1, 1, 2]),
        offset=st.integers(0, 9),
        producer=producers,
        error=verification_errors,
    )
    def transact(
        self,
        group_id: str,
        pick: int,
        generation_id: int,
        offset: int,
        producer: int,
        error: ErrorCode,
    ) -> None:
        self.commit_in_transaction(group_id, pick, generation_id, offset, producer, error)

    def commit_in_transaction(
        self,
        group_id: str,
        pick: int,
        generation_id: int,
        offset: int,
        producer: int,
        error: ErrorCode,
    ) -> None:
        """Send a TxnOffsetCommit, and let the check of its transaction end with `error`.

        The group coordinator asks the transaction's coordinator before it accepts such a commit.
        """
        self.h.holds_verifications = True
        before = snapshot(self.h)
        request_id = self.h.submit(
            txn_offset_commit(
                {("foo", offset % 2): offset},
                "" if generation_id < 0 else self.picked_id(group_id, pick),
                generation_id,
                group_id=group_id,
                producer=producer,
            )
        )
        while self.h.verifying:
            self.h.verify(error)
        if refused(self.h.response(request_id)):
            assert snapshot(self.h) == before

    @precondition(lambda self: not self.h.held)
    # A marker must come after the appends that are still held, so no append may be held here.
    @rule(
        group_id=st.one_of(st.none(), group_ids),
        offset=st.integers(0, 9),
        producer=producers,
        is_commit=st.booleans(),
    )
    def end_transaction(
        self, group_id: str | None, offset: int, producer: int, is_commit: bool
    ) -> None:
        """Write the record that ends a transaction, by commit or abort: a marker.

        A transactional commit precedes the marker, unless `group_id` is None. This commit may be
        held, and then no marker is written: an append ends only after all appends before it.
        """
        if group_id is not None:
            self.commit_in_transaction(
                group_id,
                pick=0,
                generation_id=-1,
                offset=offset,
                producer=producer,
                error=ErrorCode.NONE,
            )
        if not self.h.held:
            self.h.end_transaction(producer, is_commit=is_commit)

    @rule(group_id=group_ids, require_stable=st.booleans())
    def fetch(self, group_id: str, require_stable: bool) -> None:
        """Fetch the committed offsets, which never changes the state."""
        before = snapshot(self.h)
        self.submit(offset_fetch(group_id=group_id, require_stable=require_stable))
        assert snapshot(self.h) == before

    # 3 s is an initial delay, 6 s and 10 s are session timeouts, and 30 s is a rebalance timeout.
    @rule(delay_ms=st.sampled_from([0, 1, 3_000, 6_000, 10_000, 30_000, 300_000]))
    def advance(self, delay_ms: int) -> None:
        self.h.advance(delay_ms)

    @rule(holds=st.booleans())
    def hold_appends(self, holds: bool) -> None:
        """Choose whether later appends wait for `complete_append` or end at once."""
        self.h.holds_appends = holds

    @precondition(lambda self: self.h.held)
    @rule(error=append_errors)
    def complete_append(self, error: ErrorCode) -> None:
        """End the oldest held append, with success or an error."""
        # Kafka's Java coordinator appends commits with acks=1. A commit whose append timed out
        # remains in the log and in memory, so the two do not differ.
        is_kept = error is ErrorCode.REQUEST_TIMED_OUT and (
            self.h.held[0].required_acks == ACKS_LEADER
        )
        self.log_diverged |= error is not ErrorCode.NONE and not is_kept
        self.h.complete(error)

    @rule(
        unload=st.sampled_from([1, 0, -1, None]),
        load=st.sampled_from([1, 1, 0, -1]),
        batches_per_chunk=st.integers(1, 3),
    )
    def reload(self, unload: int | None, load: int, batches_per_chunk: int) -> None:
        """Unload and load the partition, with leader epochs relative to the newest epoch so far.

        1 is a newer epoch, 0 the newest, and -1 an older one, which the coordinator ignores. An
        unload with None is one without an epoch, as after the deletion of the replica.
        """
        if unload is None:
            self.h.unload(epoch=None)
        else:
            self.epoch += max(unload, 0)
            self.h.unload(epoch=self.epoch + min(unload, 0))
        # Appends that are still in flight reach the log after the next load has begun, so the load
        # does not read them.
        self.log_diverged |= bool(self.h.held)
        self.epoch += max(load, 0)
        self.h.load(epoch=self.epoch + min(load, 0), batches_per_chunk=batches_per_chunk)

    def teardown(self) -> None:
        """Acknowledge all appends; then a load by another broker must create the same groups."""
        self.h.holds_appends = False
        self.h.commit_everything()
        if self.log_diverged:
            return

        other = self.h.failover()
        error = other.coordinator.load_error(0)
        if error is not None:
            # The subscription of a static member that rejoins in Stable is stored unread. If its
            # bytes are unreadable, the next load fails. Kafka does the same.
            assert "subscription" in error
            return

        for summary in self.h.coordinator.groups():
            group = self.h.group(summary.group_id)
            # A group in the middle of a rebalance is loaded as its last stored generation instead.
            if summary.state not in {GroupState.STABLE, GroupState.EMPTY}:
                continue
            # A group of generation 0 without offsets has no record in the log.
            if summary.generation or group.offsets.has_offsets:
                loaded = other.group(summary.group_id)
                assert committed_values(loaded) == committed_values(group)
                assert set(loaded.offsets.producers()) == set(group.offsets.producers())
                assert loaded.generation_id == group.generation_id
                assert {m.member_id: m.assignment for m in loaded.members.values()} == {
                    m.member_id: m.assignment for m in group.members.values()
                }


class JavaCoordinator(Coordinator):
    """The same events, with the switches of Kafka's Java coordinator."""

    java = JavaSwitches(
        append_errors=True, heartbeats_wait_for_writes=True, commits_apply_on_append=True
    )

    @rule()
    def lose_leadership(self) -> None:
        """Let the partition's leader resign: appends in flight are lost."""
        self.h.lose_leadership()
        self.log_diverged = True


TestJavaCoordinator = JavaCoordinator.TestCase
TestJavaCoordinator.settings = settings(
    max_examples=40,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
TestCoordinator = Coordinator.TestCase
TestCoordinator.settings = settings(
    max_examples=80,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
