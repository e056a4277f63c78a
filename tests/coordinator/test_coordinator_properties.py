"""Random inputs keep the invariants, refusals change nothing, and the log rebuilds the state.

Hypothesis draws a list of inputs for a coordinator: requests of two groups, the passing of time,
the ends of appends, and the loss and return of the groups' partition. The coordinator is in a
CoordinatorHarness, which has its log and its timers. After every input the harness checks the
invariants, and that no request is answered twice. In addition, the tests check these rules:

- A request whose answer is an error changes no state. (ERRORS_OF_REQUESTS_WITH_EFFECTS has the
  exceptions.)
- At the end another coordinator loads the log, and must have the same groups and offsets.

Kafka has an older coordinator, in Scala, and a newer coordinator, in Java. Our coordinator behaves
like the Scala coordinator. `JavaSwitches` turn on behaviour of the Java coordinator.
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
# A request that gets one of these errors may change the state nevertheless.
ERRORS_OF_REQUESTS_WITH_EFFECTS = {
    "MEMBER_ID_REQUIRED",  # the group now has the new member id as a pending id
    "GROUP_MAX_SIZE_REACHED",  # the member that found no place was removed
    "REBALANCE_IN_PROGRESS",  # a heartbeat with this answer extends the session
    "UNKNOWN_SERVER_ERROR",  # Kafka's handler fails half way through and keeps its changes
}

# Strategies of Hypothesis, which draw the inputs. A value that stands twice in a list is drawn
# twice as often as a value that stands once.
group_ids = st.sampled_from(GROUPS)
instances = st.sampled_from([None, None, None, "i", "j"])
USUAL_OFFER = protocols("range", "roundrobin")
offers = st.one_of(
    st.just(USUAL_OFFER),
    st.just(USUAL_OFFER),
    st.sampled_from(
        [
            protocols("roundrobin", "range"),
            protocols("range", metadata=subscription("bar")),
            protocols("sticky"),
            protocols("range", "range"),
            protocols("range", "roundrobin", metadata=b"meta-c1"),  # cannot be parsed
            (),
        ]
    ),
)
# 5 s is below Kafka's minimum of 6 s, so a JoinGroup with this session timeout is refused.
session_timeouts_ms = st.sampled_from([6_000, 10_000, 10_000, 5_000])
rebalance_timeouts_ms = st.sampled_from([0, 5_000, 30_000, 30_000])
generations = st.integers(-1, 4)  # -1 is no generation
picks = st.integers(0, 7)
"""A pick chooses the member id of a request.

0 to 5 pick an id that the group has had, where 0 is the newest id. 6 and 7 stand for an id that was
never assigned.
"""
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

    Two things are left out, because a refused request may change them:

    - For some refused requests Kafka creates a group without members and offsets.
    - A request may set a timer for a held answer before it is refused. The key of such a timer
      begins with "write-".
    """
    return (
        [
            _group_snapshot(h.group(summary.group_id))
            for summary in h.coordinator.groups()
            if _holds_anything(h.group(summary.group_id))
        ],
        sorted(key for key in h.timer_keys() if not key.startswith("write-")),
        len(h.held),  # the number of appends in flight
        [len(batches) for batches in h.log.values()],
    )


def committed_values(group: Group) -> dict[TopicPartition, OffsetCommitValue]:
    """Return the committed offsets, without the log offsets of their records.

    The log offsets may differ after a load. If two equal commits were in flight, Kafka keeps the
    log offset of the first commit in memory. A load finds the log offset of the second commit.
    """
    return {partition: commit.value for partition, commit in group.offsets.committed().items()}


def assignments_of(group: Group) -> dict[str, bytes]:
    """Return the assignment of each member."""
    return {member.member_id: member.assignment for member in group.members.values()}


def _holds_anything(group: Group) -> bool:
    """Return False for a group without content, as Kafka may create it for a refused request."""
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
    # A LeaveGroup can name several members, and its answer has an error for each of them. Such a
    # request was refused as a whole if no member could leave.
    if isinstance(response, LeaveGroupResponse) and response.error_code is ErrorCode.NONE:
        return all(member.error_code is not ErrorCode.NONE for member in response.members)
    return error_of(response) not in {"NONE", *ERRORS_OF_REQUESTS_WITH_EFFECTS}


class CoordinatorMachine(RuleBasedStateMachine):
    """Hypothesis calls the methods marked `@rule` in any order. Each method is one kind of input.

    Both groups belong to the same offsets partition. The log may hold appends back, so that the
    appends end later, or with an error.
    """

    java = JavaSwitches()

    def __init__(self) -> None:
        super().__init__()
        self.h = CoordinatorHarness(owned=())
        self.ids: dict[str, list[str]] = {group_id: [] for group_id in GROUPS}
        """Every member id that a group has ever had."""
        self.epoch = 0  # newest leader epoch of the offsets partition
        self.log_diverged = False
        """True if the log may differ from memory. Then a load need not give equal groups."""

    # With `max_size` 2 a group reaches its limit of members. With 100 it never reaches this limit.
    @initialize(delay_ms=st.sampled_from([0, 3_000]), max_size=st.sampled_from([2, 100]))
    def start(self, delay_ms: int, max_size: int) -> None:
        config = BrokerConfig(group_initial_rebalance_delay_ms=delay_ms, group_max_size=max_size)
        self.h = CoordinatorHarness(config=config, java=self.java)
        # Group b begins with two static members and a dynamic member. Static members are possible
        # from version 5 of JoinGroup on. In version 3 a dynamic member joins with a single request,
        # without the answer MEMBER_ID_REQUIRED.
        for instance in ("i", "j"):
            self.submit(join_group(group_id="b", instance=instance, offers=USUAL_OFFER), version=5)
        self.submit(join_group(group_id="b", offers=USUAL_OFFER), version=3)
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
        has_failed_half_way = response is not None and error_of(response) == "UNKNOWN_SERVER_ERROR"
        if has_failed_half_way:
            self.log_diverged = True
        for group_id, ids in self.ids.items():
            group = self.h.coordinator.group(group_id)
            if group is not None:
                present_ids = (*group.members, *group.pending_members)
                ids.extend(member_id for member_id in present_ids if member_id not in ids)
        return request_id

    def picked_id(self, group_id: str, pick: int) -> str:
        """Return a member id that the group has or once had, or an id that was never assigned."""
        ids = self.ids[group_id]
        if pick >= 6 or not ids:
            return "never-assigned"
        # The newest ids often belong to present members, so pick 0 is the newest id.
        newest_first = ids[::-1]
        return newest_first[pick % len(ids)]

    # Version 0 of JoinGroup has no rebalance timeout. From version 4 on a new member gets
    # MEMBER_ID_REQUIRED, and from version 5 on it can have an instance id. Version 9 is the latest.
    @rule(
        group_id=group_ids,
        instance=instances,
        offered=offers,
        session=session_timeouts_ms,
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
        instance_id = instance if version >= 5 else None
        # If only static members are left and none of them rejoins, the join phase is repeated after
        # the rebalance timeout. With a timeout of 0 it would be repeated forever at the same time.
        is_static = instance_id is not None
        body = join_group(
            group_id=group_id,
            instance=instance_id,
            offers=offered,
            session_timeout_ms=session,
            rebalance_timeout_ms=max(rebalance, 5_000) if is_static else rebalance,
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
        instances_present = list(group.static_members) if group else []
        if not instances_present:
            instances_present = ["i"]
        instance = instances_present[pick % len(instances_present)]
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
        self.submit(body, version=4)

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
                # The request does not name a protocol, because the group may have selected any
                # protocol. A SyncGroup without a protocol is possible up to version 4.
                protocol_name=None,
            )
            self.submit(body, version=4)

    @rule(group_id=group_ids, pick=picks, generation_id=generations, instance=instances)
    def heartbeat(self, group_id: str, pick: int, generation_id: int, instance: str | None) -> None:
        member_id = self.picked_id(group_id, pick)
        self.submit(heartbeat(member_id, generation_id, group_id=group_id, instance=instance))

    @rule(group_id=group_ids, pick=picks, instance=instances, by_instance=st.booleans())
    def leave(self, group_id: str, pick: int, instance: str | None, by_instance: bool) -> None:
        # A static member may be named by its instance id alone, with an empty member id.
        member_id = "" if by_instance else self.picked_id(group_id, pick)
        identity = MemberIdentity(member_id=member_id, group_instance_id=instance)
        # The request names two members; the second member does not exist.
        self.submit(leave_group(identity, "never-assigned", group_id=group_id))

    @rule(group_id=group_ids, pick=picks, generation_id=generations, offset=st.integers(0, 9))
    def commit(self, group_id: str, pick: int, generation_id: int, offset: int) -> None:
        # A simple consumer commits without a generation, and has no member id.
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

    # A marker must come after all appends that are still held, so there must be none.
    @precondition(lambda self: not self.h.held)
    @rule(
        group_id=st.one_of(st.none(), group_ids),
        offset=st.integers(0, 9),
        producer=producers,
        is_commit=st.booleans(),
    )
    def end_transaction(
        self, group_id: str | None, offset: int, producer: int, is_commit: bool
    ) -> None:
        """Write a marker, the record that ends a transaction by commit or abort.

        If there is a `group_id`, the group first commits an offset in the transaction. If the
        append of this commit is held back, no marker is written.
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

    # These are the times after which timers fire: 3 s of an initial delay, 6 s and 10 s of
    # sessions, and 30 s of rebalances. After 300 s all timers have fired.
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
        # After an error, the record of an append may be in the log, but its change is not in
        # memory. There is one exception: if an append with acks=1 times out, the log and the memory
        # both have the change. Kafka's Java coordinator sends such appends.
        append = self.h.held[0]
        is_in_both = error is ErrorCode.REQUEST_TIMED_OUT and append.required_acks == ACKS_LEADER
        if error is not ErrorCode.NONE and not is_in_both:
            self.log_diverged = True
        self.h.complete(error)

    @rule(
        unload=st.sampled_from([1, 0, -1, None]),
        load=st.sampled_from([1, 1, 0, -1]),
        batches_per_chunk=st.integers(1, 3),
    )
    def reload(self, unload: int | None, load: int, batches_per_chunk: int) -> None:
        """Unload and load the partition.

        The numbers are leader epochs, relative to the newest epoch so far: 1 is a newer epoch, 0
        the newest epoch, and -1 an older epoch. The coordinator ignores an older epoch. An unload
        with None has no epoch, as after the deletion of the replica.
        """
        if unload is None:
            self.h.unload(epoch=None)
        else:
            self.h.unload(epoch=self.epoch_at(unload))
        # Appends that are still in flight reach the log after the next load has begun, so the load
        # does not read them.
        if self.h.held:
            self.log_diverged = True
        self.h.load(epoch=self.epoch_at(load), batches_per_chunk=batches_per_chunk)

    def epoch_at(self, distance: int) -> int:
        """Return the leader epoch at this distance from the newest epoch: -1, 0 or 1."""
        if distance > 0:
            self.epoch += distance
            return self.epoch
        return self.epoch + distance

    def teardown(self) -> None:
        """Acknowledge all appends. A broker that loads the log must have the same groups.

        Groups that the log does not have, or has only in an older generation, are not compared.
        """
        self.h.holds_appends = False
        self.h.commit_everything()
        if self.log_diverged:
            return

        other = self.h.failover()
        error = other.coordinator.load_error(0)
        if error is not None:
            # If a static member rejoins a Stable group, its subscription is stored without being
            # parsed. If the subscription cannot be parsed, the next load fails. Kafka does the
            # same.
            assert "subscription" in error
            return

        for summary in self.h.coordinator.groups():
            group = self.h.group(summary.group_id)
            # In the middle of a rebalance, the log has the last generation that was stored.
            is_in_a_rebalance = summary.state not in {GroupState.STABLE, GroupState.EMPTY}
            is_in_the_log = summary.generation > 0 or group.offsets.has_offsets
            if is_in_a_rebalance or not is_in_the_log:
                continue
            loaded = other.group(summary.group_id)
            assert committed_values(loaded) == committed_values(group)
            assert set(loaded.offsets.producers()) == set(group.offsets.producers())
            assert loaded.generation_id == group.generation_id
            assert assignments_of(loaded) == assignments_of(group)


class JavaCoordinatorMachine(CoordinatorMachine):
    """The same inputs, with the switches of Kafka's Java coordinator, and one more input."""

    java = JavaSwitches(
        append_errors=True, heartbeats_wait_for_writes=True, commits_apply_on_append=True
    )

    @rule()
    def lose_leadership(self) -> None:
        """Let the broker lose the leadership of the partition. Appends in flight are lost."""
        self.h.lose_leadership()
        self.log_diverged = True


# pytest finds these two classes, and runs the machines. With `derandomize` each run of the tests
# draws the same inputs.
TestJavaCoordinator = JavaCoordinatorMachine.TestCase
TestJavaCoordinator.settings = settings(
    max_examples=40,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
TestCoordinator = CoordinatorMachine.TestCase
TestCoordinator.settings = settings(
    max_examples=80,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
