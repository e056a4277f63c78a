"""The brokers and the controller of a random trace.

No real broker runs. Random decisions say what happens, and a `World` writes the rows that real
brokers would write. The controller elects leaders of the partitions of `__consumer_offsets`. A
broker that becomes leader loads the groups of the partition, and coordinates them from then on. A
broker that is no longer leader unloads them. Members join, leave and expire, and groups rebalance.

The probabilities and delays are chosen so that rare cases happen often enough to be tested. In some
of these cases a broker never learns of an election, or two brokers coordinate the same group.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from coordinator.group import StateCause
from coordinator.rebalance import RebalanceReason, reason_of_client
from protocol.causes import GroupStateCause, IgnoredCause, RebalanceCause, RemovalCause
from protocol.errors import ErrorCode
from protocol.partitioner import partition_for
from protocol.trace import TraceKind
from tests.support.builders.rows import Columns
from tests.support.random_worlds.random_world import World

BROKERS = ("broker-0", "broker-1", "broker-2")
CONTROLLER = "controller-100"
OFFSETS_PARTITIONS = 3
GROUPS = ("readers", "billing", "mail")
_STORE_ERRORS = (
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
)
_CLIENT_REASONS = (None, "rebalance failed due to MemberIdRequiredException", "new topic")


def offsets_partition(index: int) -> str:
    """Return the name of an offsets partition as rows have it: 2 -> `__consumer_offsets-2`."""
    return f"__consumer_offsets-{index}"


def partition_of(group: str) -> str:
    """Return the name of the offsets partition that a group belongs to."""
    return offsets_partition(partition_for(group, OFFSETS_PARTITIONS))


@dataclass(slots=True)
class Coordinated:
    """A group in the memory of one broker; two brokers that coordinate a group have two copies."""

    state: str = "Empty"
    generation: int = 0
    # Member id -> client id.
    members: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Broker:
    """A broker's process: the offsets partitions that it leads, and their groups."""

    name: str
    # The offsets partitions that the broker serves, each with its leader epoch.
    served: dict[str, int] = field(default_factory=dict)
    # The offsets partitions that the broker is loading, each with its leader epoch.
    loading: dict[str, int] = field(default_factory=dict)
    groups: dict[str, Coordinated] = field(default_factory=dict)
    # The number of appends that the broker has made so far, to any log.
    appends: int = 0


class Brokers:
    """All brokers, and the controller that elects among them."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.brokers = {name: Broker(name) for name in BROKERS}
        # Offsets partition -> the leader epoch of its last election, or -1 before any election.
        self.epochs = {offsets_partition(index): -1 for index in range(OFFSETS_PARTITIONS)}
        # Offsets partition -> the name of its leader, or "" if it has no leader.
        self.leaders: dict[str, str] = dict.fromkeys(self.epochs, "")
        # Offsets partition -> the end offset of its log, which all brokers share here.
        self._log_end = dict.fromkeys(self.epochs, 0)

    def restarted(self, name: str) -> None:
        """Forget what a broker knew before its restart; mostly it loads its partitions again."""
        self.brokers[name] = Broker(name)
        for partition, leader in self.leaders.items():
            if leader == name and self._world.chance(0.85):
                self._apply_later(partition, name, self.epochs[partition])

    def elect(self, partition: str, *, leader: str | None = None) -> None:
        """Elect `leader`. If `leader` is None, draw a leader.

        Most draws give another live broker. Some give the present leader again, or "", so that the
        partition has no leader.
        """
        world = self._world
        old_leader = self.leaders[partition]
        if leader is None:
            alive = [name for name in BROKERS if world.lives[name].alive]
            others = [name for name in alive if name != old_leader]
            # The list has each other live broker four times (three times from `others`, once from
            # `alive`), but the present leader and "" only once.
            leader = world.rng.choice([*(others * 3), *alive, ""])
        self.epochs[partition] += 1
        self.leaders[partition] = leader
        epoch = self.epochs[partition]
        world.add(
            CONTROLLER,
            TraceKind.LEADER_ELECTED,
            partition=partition,
            leader_epoch=epoch,
            peer=leader,
            detail={"isr": [0, 1, 2], "reason": "fenced"},
        )
        if leader:
            self._apply_later(partition, leader, epoch)
        # Some brokers (15 %) never learn of the election. If the former leader never learns of the
        # election, it goes on serving the partition. Then there are two coordinators.
        for name in BROKERS:
            if name != leader and world.lives[name].alive and world.chance(0.85):
                delay_us = world.rng.choice((1_000, 60_000, 4_000_000))
                world.node_later(name, delay_us, partial(self._follow, name, partition, epoch))

    def _apply_later(self, partition: str, name: str, epoch: int) -> None:
        """Let the elected broker learn of its election after a delay."""
        world = self._world
        world.node_later(
            name, world.delay_us(2_000_000), lambda: self._lead(name, partition, epoch)
        )

    def _lead(self, name: str, partition: str, epoch: int) -> None:
        """Let a broker become leader, and load the partition's groups after a while."""
        world, broker = self._world, self.brokers[name]
        columns: Columns = {"partition": partition, "leader_epoch": epoch}
        if world.chance(0.95):
            end = self._log_end[partition]
            world.add(name, TraceKind.BECAME_LEADER, columns, offset=end)
        world.add(name, TraceKind.LOAD_SCHEDULED, columns)
        broker.loading[partition] = epoch
        wait_us = world.delay_us(400_000)

        def begin() -> None:
            world.add(name, TraceKind.LOAD_STARTED, columns, detail={"wait_us": wait_us})
            world.node_later(name, world.delay_us(900_000), finish)

        def finish() -> None:
            broker.loading.pop(partition, None)
            if world.chance(0.06):
                # No row is written and no group is loaded, as if a newer load had replaced this
                # load.
                return
            records = world.rng.randint(0, 400)
            world.add(
                name,
                TraceKind.LOAD_COMPLETED,
                columns,
                offset=self._log_end[partition],
                detail={"records": records, "bytes": records * 80, "groups": 1},
            )
            broker.served[partition] = epoch
            self._load_groups(broker, partition)

        world.node_later(name, wait_us, begin)

    def _load_groups(self, broker: Broker, partition: str) -> None:
        """Load the partition's groups: copy each group from a broker that has it.

        A loaded group is Stable or Empty, because a real group's state is written to the log only
        at the end of a rebalance.
        """
        world = self._world
        for group in GROUPS:
            copies = [
                other.groups[group] for other in self.brokers.values() if group in other.groups
            ]
            if partition_of(group) != partition or not copies:
                continue
            source = world.rng.choice(copies)
            loaded = Coordinated(
                state="Stable" if source.members else "Empty",
                generation=max(0, source.generation),
                members=dict(source.members),
            )
            broker.groups[group] = loaded
            world.add(
                broker.name,
                TraceKind.GROUP_LOADED,
                group=group,
                partition=partition,
                generation=loaded.generation,
                detail={"state": loaded.state, "members": list(loaded.members), "offsets": 1},
            )
            if len(loaded.members) > 1 and world.chance(0.6):
                self.prepare(
                    broker,
                    group,
                    RebalanceReason(
                        cause=RebalanceCause.GROUP_TOO_LARGE,
                        text="loaded with more members than group.max.size",
                    ),
                )

    def _follow(self, name: str, partition: str, epoch: int) -> None:
        """Let a broker become follower, and unload the partition's groups.

        If the broker has meanwhile become leader again, it only notes that it ignores the unload.
        """
        world, broker = self._world, self.brokers[name]
        columns: Columns = {"partition": partition, "leader_epoch": epoch}
        if broker.served.get(partition, -1) >= epoch:
            world.add(
                name, TraceKind.UNLOAD_IGNORED, columns, cause=IgnoredCause.STALE_LEADER_EPOCH
            )
            return
        world.add(name, TraceKind.BECAME_FOLLOWER, columns, peer=self.leaders[partition])
        world.add(name, TraceKind.UNLOAD_SCHEDULED, columns)
        broker.served.pop(partition, None)
        unloaded = [group for group in broker.groups if partition_of(group) == partition]
        for group in unloaded:
            self._enter(broker, group, "Dead", GroupStateCause.UNLOADED)
            del broker.groups[group]
        world.add(name, TraceKind.UNLOAD_COMPLETED, columns, detail={"groups": len(unloaded)})

    # -- groups --

    def coordinators(self, group: str) -> list[Broker]:
        """Return the live, unpaused brokers that consider themselves the group's coordinator."""
        return [
            broker
            for broker in self.brokers.values()
            if partition_of(group) in broker.served and self._world.active((broker.name,))
        ]

    def prepare(self, broker: Broker, group: str, reason: RebalanceReason) -> None:
        """Begin a rebalance: members must join again. Some time later the join phase ends."""
        world, coordinated = self._world, broker.groups[group]
        world.add(
            broker.name,
            TraceKind.REBALANCE_STARTED,
            group=group,
            member=reason.member_id,
            generation=coordinated.generation,
            error=None if reason.error is None else reason.error.name,
            cause=reason.cause,
            detail=reason.detail(),
            cause_text=reason.text,
        )
        self._enter(broker, group, "PreparingRebalance", reason.cause, reason.text)
        generation = coordinated.generation

        def complete() -> None:
            # Meanwhile the broker may have unloaded the group, or another rebalance may have begun.
            is_loaded = broker.groups.get(group) is coordinated
            is_same_rebalance = coordinated.generation == generation
            if is_loaded and is_same_rebalance and coordinated.state == "PreparingRebalance":
                self._end_join(broker, group)

        world.node_later(broker.name, world.delay_us(2_500_000), complete)

    def _end_join(self, broker: Broker, group: str) -> None:
        """End the join phase: remove members that did not join again, and start a generation.

        Then the sync phase begins, in which members wait for the assignment.
        """
        world, coordinated = self._world, broker.groups[group]
        for member in list(coordinated.members):
            if world.chance(0.12):
                self._remove(broker, group, member, RemovalCause.DID_NOT_REJOIN)
        coordinated.generation += 1
        if not coordinated.members:
            self._enter(broker, group, "Empty", GroupStateCause.NO_MEMBER_LEFT)
            return
        cause = world.rng.choice((GroupStateCause.ALL_JOINED, GroupStateCause.REBALANCE_TIMEOUT))
        self._enter(broker, group, "CompletingRebalance", cause)
        world.add(
            broker.name,
            TraceKind.GENERATION_STARTED,
            group=group,
            generation=coordinated.generation,
            detail={
                "members": list(coordinated.members),
                "leader": next(iter(coordinated.members)),
            },
        )
        generation = coordinated.generation

        def end_sync() -> None:
            is_loaded = broker.groups.get(group) is coordinated
            is_same_rebalance = coordinated.generation == generation
            if is_loaded and is_same_rebalance and coordinated.state == "CompletingRebalance":
                self._end_sync(broker, group)

        world.node_later(broker.name, world.delay_us(1_500_000), end_sync)

    def _end_sync(self, broker: Broker, group: str) -> None:
        """End the sync phase: in most cases the assignment is stored, and the group is Stable.

        In 12 % of the cases the assignment cannot be stored, and in 8 % some members sent no
        SyncGroup; then the group rebalances again. In 5 % nothing happens, and the group stays in
        the sync phase.
        """
        world, coordinated = self._world, broker.groups[group]
        leader = next(iter(coordinated.members), None)
        outcome = world.rng.random()
        if outcome < 0.12:
            error = world.rng.choice(_STORE_ERRORS)
            not_stored = RebalanceReason(
                cause=RebalanceCause.ASSIGNMENT_NOT_STORED,
                text=f"the assignment could not be stored: {error.name}",
                member_id=leader,
                error=error,
            )
            self.prepare(broker, group, not_stored)
        elif outcome < 0.2 and leader is not None:
            silent = list(coordinated.members)[:2]
            for member in silent:
                self._remove(broker, group, member, RemovalCause.SYNC_DEADLINE)
            no_sync = RebalanceReason(
                cause=RebalanceCause.NO_SYNC_GROUP,
                text=f"no SyncGroup from {', '.join(silent)}",
                member_id=silent[0],
                silent_members=tuple(silent),
            )
            self.prepare(broker, group, no_sync)
        elif outcome < 0.95:
            world.add(
                broker.name,
                TraceKind.ASSIGNMENT_STORED,
                group=group,
                generation=coordinated.generation,
            )
            self._enter(broker, group, "Stable", GroupStateCause.ASSIGNMENT_STORED)

    def join(self, broker: Broker, group: str, member: str, client_id: str) -> None:
        """Add a member, or let the member join again. Both may begin a rebalance."""
        coordinated = broker.groups.setdefault(group, Coordinated())
        reason = self._world.rng.choice(_CLIENT_REASONS)
        if member not in coordinated.members:
            coordinated.members[member] = client_id
            self._add_member_row(broker, group, TraceKind.MEMBER_ADDED, member, None, client_id)
            cause = RebalanceCause.JOIN
        else:
            # REJOIN is listed twice, so it is drawn twice as often as CHANGED_METADATA.
            cause = self._world.rng.choice(
                (RebalanceCause.REJOIN, RebalanceCause.CHANGED_METADATA, RebalanceCause.REJOIN)
            )
        if coordinated.state in ("Empty", "Stable", "CompletingRebalance"):
            text = f"{cause} of member {member}"
            self.prepare(
                broker,
                group,
                reason_of_client(cause, text, member_id=member, client_reason=reason),
            )

    def replace(self, broker: Broker, group: str, old: str, new: str) -> None:
        """Let a restarted static member take its old place with a new member id.

        This begins a rebalance only during the sync phase, or if the member supports other
        protocols than before.
        """
        coordinated = broker.groups[group]
        client_id = coordinated.members.pop(old)
        coordinated.members[new] = client_id
        cause = RemovalCause.STATIC_MEMBER_REPLACED
        self._add_member_row(broker, group, TraceKind.MEMBER_REMOVED, old, cause, client_id)
        self._add_member_row(broker, group, TraceKind.MEMBER_ADDED, new, cause, client_id)
        # The member supports other protocols in 40 % of the cases.
        has_other_protocol = coordinated.state == "Stable" and self._world.chance(0.4)
        if coordinated.state == "CompletingRebalance" or has_other_protocol:
            came_back = reason_of_client(
                RebalanceCause.STATIC_MEMBER_BACK,
                f"static member {client_id} came back as {new}",
                member_id=new,
                client_reason=None,
            )
            self.prepare(broker, group, came_back)

    def expire(self, broker: Broker, group: str, member: str, *, left: bool) -> None:
        """Remove a member because it left, or, if `left` is False, because its session expired."""
        if left:
            removal = RemovalCause.LEAVE
            reason = reason_of_client(
                RebalanceCause.LEAVE,
                f"member {member} left",
                member_id=member,
                client_reason="the consumer is being closed",
            )
        else:
            removal = RemovalCause.SESSION_EXPIRY
            reason = RebalanceReason(
                cause=RebalanceCause.SESSION_EXPIRY,
                text=f"member {member} expired: no heartbeat",
                member_id=member,
            )
        self._remove(broker, group, member, removal)
        if broker.groups[group].state in ("Stable", "CompletingRebalance"):
            self.prepare(broker, group, reason)

    def _remove(self, broker: Broker, group: str, member: str, cause: RemovalCause) -> None:
        """Remove a member, and write the row of the removal."""
        del broker.groups[group].members[member]
        self._add_member_row(broker, group, TraceKind.MEMBER_REMOVED, member, cause, None)

    def _add_member_row(
        self,
        broker: Broker,
        group: str,
        kind: TraceKind,
        member: str,
        cause: RemovalCause | None,
        client_id: str | None,
    ) -> None:
        """Write a row about a member that was added or removed."""
        self._world.add(
            broker.name,
            kind,
            group=group,
            member=member,
            generation=broker.groups[group].generation,
            cause=cause,
            detail=None if client_id is None else {"client_id": client_id, "instance": None},
        )

    def _enter(
        self, broker: Broker, group: str, state: str, cause: StateCause, text: str | None = None
    ) -> None:
        """Change a group's state, and write the row of the change."""
        coordinated = broker.groups[group]
        self._world.add(
            broker.name,
            TraceKind.GROUP_STATE,
            group=group,
            generation=coordinated.generation,
            cause=cause,
            detail={"from": coordinated.state, "to": state},
            cause_text=text,
        )
        coordinated.state = state

    # -- the log --

    def store_commit(
        self, broker: Broker, group: str, member: str, generation: int, partitions: Sequence[str]
    ) -> str:
        """Append a commit to the group's offsets partition; return "NONE" or an error's name."""
        world, partition = self._world, partition_of(group)
        broker.appends += 1
        # Both rows of an append have this number, so that they can be matched.
        append_id = broker.appends
        epoch = broker.served.get(partition, self.epochs[partition])
        base = self._log_end[partition]
        error = "NONE" if world.chance(0.85) else "REQUEST_TIMED_OUT"
        for kind in (TraceKind.APPEND_STARTED, TraceKind.APPEND_COMPLETED):
            world.add(
                broker.name,
                kind,
                partition=partition,
                leader_epoch=epoch,
                offset=base,
                correlation_id=append_id,
                error=error if kind is TraceKind.APPEND_COMPLETED else None,
                detail={"records": len(partitions)},
            )
        if error == "NONE":
            self._log_end[partition] += len(partitions)
            for consumed in partitions:
                world.add(
                    broker.name,
                    TraceKind.COMMIT_STORED,
                    group=group,
                    member=member,
                    partition=consumed,
                    offset=base,
                    generation=generation,
                    correlation_id=append_id,
                )
        return error
