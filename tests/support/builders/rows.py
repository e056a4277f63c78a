"""Builder of hand-made traces, for the tests of checkers and of other readers of traces.

A trace is a list of rows, one for each recorded event. Unless a method has parameters for them, the
group of a row is `g`, and its partition is `t-0` (partition 0 of topic `t`). The offsets partition
that stores the group is `OFFSETS_0`. Brokers and consumers are given by their node names.

Terms:

- The leader epoch is a number of a partition that each election of a leader increases.
- The broker that leads an offsets partition loads its groups into memory and coordinates them. When
  it stops leading, it unloads the groups: it drops them from its memory.
- The generation is a number of a group that each rebalance increases. In a rebalance the members
  first rejoin (join phase), and then get their partitions (sync phase).
- An append id names one append that a coordinator asked for. The rows of the start and of the end
  of an append have the same id.
"""

from collections.abc import Callable, Sequence
from typing import TypedDict, Unpack

from protocol.causes import MemberStateCause
from protocol.ids import CONSUMER_OFFSETS
from protocol.trace import TraceEvent, TraceKind, TraceRow, stamp

OFFSETS_0 = f"{CONSUMER_OFFSETS}-0"


class Columns(TypedDict, total=False):
    """The columns that a test may set. `Rows.add` fills the others, such as time and node."""

    peer: str | None
    group: str | None
    member: str | None
    partition: str | None
    generation: int | None
    leader_epoch: int | None
    offset: int | None
    api: str | None
    error: str | None
    correlation_id: int | None
    cause: str | None
    cause_text: str | None
    detail: dict[str, object] | None


class Rows:
    """Builds a trace row by row, and passes each row to `observer`, if given, as it is added."""

    def __init__(self, observer: Callable[[TraceRow], None] | None = None) -> None:
        self.rows: list[TraceRow] = []
        self._observer = observer
        # The sequence number of the next row, by node and incarnation.
        self._next_seq: dict[tuple[str, int], int] = {}
        self._last_append_id = 0

    def add(
        self,
        time_s: float,
        node: str,
        kind: TraceKind,
        *,
        incarnation: int = 0,
        **columns: Unpack[Columns],
    ) -> TraceRow:
        """Add one row at `time_s` seconds of the run's clock.

        `incarnation` is the number of times that the node was restarted before. Both clocks of the
        row, the run's and the node's own, show `time_s`.
        """
        seq = self._next_seq.get((node, incarnation), 0)
        self._next_seq[node, incarnation] = seq + 1
        time_us = round(time_s * 1_000_000)
        row = stamp(
            TraceEvent(kind=kind, **columns),
            run="test",
            time_us=time_us,
            node_time_us=time_us,
            seq=seq,
            node=node,
            incarnation=incarnation,
        )
        self.rows.append(row)
        if self._observer is not None:
            self._observer(row)
        return row

    def stage(self, time_s: float, stage: str) -> None:
        """Let the run enter `stage`.

        Stages are for example `steady` (before the first fault), `liveness` (after the last one)
        and `stopping`.
        """
        self.add(time_s, "driver", TraceKind.RUN_STAGE, detail={"stage": stage})

    def leads(
        self,
        time_s: float,
        node: str,
        leader_epoch: int,
        log_end: int,
        *,
        partition: str = OFFSETS_0,
    ) -> None:
        """Make `node` leader of `partition` in `leader_epoch`. Its log end offset is `log_end`."""
        self.add(
            time_s,
            node,
            TraceKind.BECAME_LEADER,
            partition=partition,
            leader_epoch=leader_epoch,
            offset=log_end,
        )

    def append_started(
        self, time_s: float, node: str, leader_epoch: int, base_offset: int, records: int = 1
    ) -> int:
        """Let `node` start the append of a batch at `base_offset`; return the append id."""
        self._last_append_id += 1
        self._append(
            time_s,
            node,
            TraceKind.APPEND_STARTED,
            leader_epoch,
            base_offset,
            self._last_append_id,
            records,
        )
        return self._last_append_id

    def append_completed(
        self,
        time_s: float,
        node: str,
        leader_epoch: int,
        base_offset: int,
        append_id: int,
        error: str = "NONE",
    ) -> None:
        """Let append `append_id` be acknowledged, or let it fail if `error` is not NONE."""
        self._append(
            time_s,
            node,
            TraceKind.APPEND_COMPLETED,
            leader_epoch,
            base_offset,
            append_id,
            1,
            error=error,
        )

    def _append(
        self,
        time_s: float,
        node: str,
        kind: TraceKind,
        leader_epoch: int,
        base_offset: int,
        append_id: int,
        records: int,
        error: str | None = None,
    ) -> None:
        self.add(
            time_s,
            node,
            kind,
            partition=OFFSETS_0,
            leader_epoch=leader_epoch,
            offset=base_offset,
            correlation_id=append_id,
            error=error,
            detail={"records": records},
        )

    def appended(
        self, time_s: float, node: str, leader_epoch: int, base_offset: int, records: int = 1
    ) -> None:
        """Add an append that begins at `time_s` and is acknowledged 2 ms later."""
        append_id = self.append_started(time_s, node, leader_epoch, base_offset, records)
        self.append_completed(time_s + 0.002, node, leader_epoch, base_offset, append_id)

    def assigned(
        self,
        time_s: float,
        consumer: str,
        group: str = "g",
        partitions: int = 1,
        *,
        names: Sequence[str] | None = None,
        generation: int = 1,
        peer: str | None = None,
        member: str | None = None,
    ) -> None:
        """Assign the partitions `names` to `consumer`.

        If `names` is None, they are the first `partitions` partitions of topic `t`.

        `peer` is the coordinator that sent the assignment.
        """
        assigned_names = (
            [f"t-{index}" for index in range(partitions)] if names is None else list(names)
        )
        self.add(
            time_s,
            consumer,
            TraceKind.PARTITIONS_ASSIGNED,
            group=group,
            member=f"{consumer}-id" if member is None else member,
            generation=generation,
            peer=peer,
            detail={"partitions": assigned_names},
        )

    def revoked(
        self, time_s: float, consumer: str, *, lost: bool = False, generation: int = 1
    ) -> None:
        """Let `consumer` give up its partitions.

        `lost` means that the consumer learns that it no longer owns them; otherwise it revokes
        them for a rebalance.
        """
        self.add(
            time_s,
            consumer,
            TraceKind.PARTITIONS_LOST if lost else TraceKind.PARTITIONS_REVOKED,
            group="g",
            member=f"{consumer}-id",
            generation=generation,
            # Checkers end all ownerships of the consumer, and do not read this list.
            detail={"partitions": []},
        )

    def position_reset(
        self, time_s: float, consumer: str, offset: int, cause: str = "committed"
    ) -> None:
        """Let `consumer` begin to read t-0 at `offset`. `cause` names the source of the offset."""
        self.add(
            time_s,
            consumer,
            TraceKind.POSITION_RESET,
            group="g",
            member=f"{consumer}-id",
            partition="t-0",
            offset=offset,
            cause=cause,
        )

    def consumed(self, time_s: float, consumer: str, first: int, last: int) -> None:
        """Let `consumer` process the records `first` to `last` of t-0."""
        self.add(
            time_s,
            consumer,
            TraceKind.RECORDS_CONSUMED,
            group="g",
            member=f"{consumer}-id",
            partition="t-0",
            offset=first,
            detail={"count": last - first + 1, "last": last},
        )

    def committed(
        self,
        time_s: float,
        consumer: str,
        offset: int,
        *,
        group: str = "g",
        generation: int = 1,
        peer: str = "broker-0",
    ) -> None:
        """Let coordinator `peer` acknowledge a commit of t-0 to `consumer`."""
        self.add(
            time_s,
            consumer,
            TraceKind.OFFSETS_COMMITTED,
            group=group,
            member=f"{consumer}-id",
            generation=generation,
            partition="t-0",
            offset=offset,
            peer=peer,
        )

    def commit_failed(
        self, time_s: float, consumer: str, offset: int, error: str, *, peer: str = "broker-0"
    ) -> None:
        """Let a commit of t-0 that `consumer` sent to `peer` fail with `error`."""
        self.add(
            time_s,
            consumer,
            TraceKind.COMMIT_FAILED,
            group="g",
            member=f"{consumer}-id",
            generation=1,
            partition="t-0",
            offset=offset,
            error=error,
            peer=peer,
        )

    def fetched(
        self,
        time_s: float,
        node: str,
        offset: int,
        *,
        peer: str | None = "broker-0",
        cause: str | None = None,
    ) -> None:
        """Let `node` receive the committed offset of t-0 from coordinator `peer`."""
        self.add(
            time_s,
            node,
            TraceKind.OFFSETS_FETCHED,
            group="g",
            partition="t-0",
            offset=offset,
            peer=peer,
            cause=cause,
        )

    def group_state(
        self,
        time_s: float,
        node: str,
        before: str,
        after: str,
        generation: int = 1,
        *,
        cause: str | None = None,
    ) -> None:
        """Let the coordinator on `node` move group `g` to another state."""
        self.add(
            time_s,
            node,
            TraceKind.GROUP_STATE,
            group="g",
            generation=generation,
            cause=cause,
            detail={"from": before, "to": after},
        )

    def group_loaded(
        self,
        time_s: float,
        node: str,
        state: str = "Stable",
        generation: int = 1,
        members: Sequence[str] | int = 2,
    ) -> None:
        """Let the coordinator on `node` load group `g` from the log.

        `members` are the ids of the members, or only their number.
        """
        self.add(
            time_s,
            node,
            TraceKind.GROUP_LOADED,
            group="g",
            partition=OFFSETS_0,
            generation=generation,
            detail={
                "state": state,
                "members": members if isinstance(members, int) else list(members),
                "offsets": 1,
            },
        )

    def load_started(self, time_s: float, node: str, leader_epoch: int) -> None:
        """Let `node` begin to load the groups of the offsets partition from its log."""
        self.add(
            time_s,
            node,
            TraceKind.LOAD_STARTED,
            partition=OFFSETS_0,
            leader_epoch=leader_epoch,
            detail={},
        )

    def load_completed(self, time_s: float, node: str, leader_epoch: int) -> None:
        """Let `node` complete the load, after which it coordinates the groups of the partition."""
        self.add(
            time_s,
            node,
            TraceKind.LOAD_COMPLETED,
            partition=OFFSETS_0,
            leader_epoch=leader_epoch,
            offset=10,
            detail={"records": 10, "bytes": 1_000, "groups": 1},
        )

    def unloaded(self, time_s: float, node: str, leader_epoch: int) -> None:
        """Let `node` unload the offsets partition."""
        self.add(
            time_s, node, TraceKind.UNLOAD_COMPLETED, partition=OFFSETS_0, leader_epoch=leader_epoch
        )

    def member_added(
        self,
        time_s: float,
        node: str,
        member: str,
        *,
        generation: int = 0,
        instance: str | None = None,
    ) -> None:
        """Let the coordinator on `node` add a member to group `g`."""
        self.add(
            time_s,
            node,
            TraceKind.MEMBER_ADDED,
            group="g",
            member=member,
            generation=generation,
            detail={"client_id": "c", "instance": instance},
        )

    def member_removed(
        self,
        time_s: float,
        node: str,
        member: str,
        cause: str = "session expiry",
        *,
        generation: int = 1,
        instance: str | None = None,
    ) -> None:
        """Let the coordinator on `node` remove a member from group `g`."""
        self.add(
            time_s,
            node,
            TraceKind.MEMBER_REMOVED,
            group="g",
            member=member,
            generation=generation,
            cause=cause,
            detail={"client_id": "c", "instance": instance},
        )

    def generation_started(
        self, time_s: float, node: str, generation: int, members: Sequence[str]
    ) -> None:
        """Let the coordinator on `node` complete a join phase.

        The coordinator stores the assignment 10 ms later.
        """
        self.group_state(
            time_s, node, "PreparingRebalance", "CompletingRebalance", generation=generation
        )
        self.add(
            time_s,
            node,
            TraceKind.GENERATION_STARTED,
            group="g",
            generation=generation,
            detail={"members": list(members), "leader": members[0], "protocol": "range"},
        )
        self.add(time_s + 0.01, node, TraceKind.ASSIGNMENT_STORED, group="g", generation=generation)

    def commit_stored(
        self,
        time_s: float,
        node: str,
        member: str,
        generation: int,
        append_id: int,
        *,
        offset: int = 100,
        partition: str = "t-0",
    ) -> None:
        """Let the coordinator on `node` store a commit that it appended as `append_id`."""
        self.add(
            time_s,
            node,
            TraceKind.COMMIT_STORED,
            group="g",
            member=member,
            partition=partition,
            offset=offset,
            generation=generation,
            correlation_id=append_id,
        )

    def member_state(
        self,
        time_s: float,
        consumer: str,
        after: str,
        *,
        before: str = "UNJOINED",
        member: str | None = None,
        generation: int = 1,
        cause: str | None = None,
        error: str | None = None,
    ) -> None:
        """Let `consumer` go to state `after`. `error` is the error code that caused the change."""
        if cause is None and error is not None:
            cause = MemberStateCause.ERROR
        self.add(
            time_s,
            consumer,
            TraceKind.MEMBER_STATE,
            group="g",
            member=f"{consumer}-id" if member is None else member,
            generation=generation,
            cause=cause,
            error=error,
            detail={"from": before, "to": after},
        )

    def session_restarted(
        self,
        time_s: float,
        node: str,
        member: str,
        *,
        api: str = "Heartbeat",
        generation: int = 1,
        incarnation: int = 0,
    ) -> None:
        """Let the coordinator on `node` restart a member's session timer after a request `api`."""
        self.add(
            time_s,
            node,
            TraceKind.SESSION_RESTARTED,
            incarnation=incarnation,
            group="g",
            member=member,
            generation=generation,
            api=api,
            detail={"session_timeout_ms": 45_000},
        )

    def fault(
        self,
        time_s: float,
        peer: str,
        *,
        fault: str = "crash",
        members_survive: bool = True,
        **detail: object,
    ) -> None:
        """Let the driver, which conducts the run, inject a fault into node `peer`.

        `members_survive` is False if the fault stops a member of a group, or cuts one off from the
        cluster.
        """
        self.add(
            time_s,
            "driver",
            TraceKind.FAULT_INJECTED,
            peer=peer,
            cause=f"{fault}-0",
            detail={"fault": fault, "members_survive": members_survive, **detail},
        )

    def healed(self, time_s: float, peer: str, *, fault: str = "crash") -> None:
        """Let the driver undo the fault `fault` of `peer`."""
        self.add(
            time_s,
            "driver",
            TraceKind.FAULT_HEALED,
            peer=peer,
            cause=f"{fault}-0",
            detail={"fault": fault},
        )

    def elected(self, time_s: float, leader: str, isr: list[int]) -> None:
        """Let the controller elect `leader` for `OFFSETS_0`. An empty name means no leader.

        `isr` are the ids of the brokers whose replicas are in sync.
        """
        self.add(
            time_s,
            "controller",
            TraceKind.LEADER_ELECTED,
            partition=OFFSETS_0,
            peer=leader,
            detail={"isr": isr, "reason": "any"},
        )

    def admin_commit(self, time_s: float, offset: int, error: str) -> None:
        """Let broker-0 answer an administrator's commit of t-0 with `error`."""
        self.add(
            time_s,
            "admin-0",
            TraceKind.ADMIN_COMMIT,
            group="g",
            partition="t-0",
            # An administrator is no member and names no generation.
            member="",
            generation=-1,
            offset=offset,
            peer="broker-0",
            error=error,
        )

    def offset_removed(
        self,
        time_s: float,
        *,
        cause: str = "deleted by an administrator",
        node: str = "broker-0",
        partition: str = "t-0",
    ) -> None:
        """Let the coordinator on `node` remove the committed offset of a partition."""
        self.add(
            time_s, node, TraceKind.OFFSET_REMOVED, group="g", partition=partition, cause=cause
        )

    def pending_commit_removed(self, time_s: float, *, partition: str = "t-0") -> None:
        """Let an administrator delete a commit on broker-0 that is still in flight."""
        self.add(
            time_s,
            "broker-0",
            TraceKind.PENDING_COMMIT_REMOVED,
            group="g",
            partition=partition,
            cause="deleted by an administrator",
        )


def steady_cluster() -> Rows:
    """Return the rows of three brokers that have a replica of `OFFSETS_0` each.

    The leader is broker-0. The stage of the run is `steady` from 10 s on.
    """
    rows = Rows()
    for broker in range(3):
        rows.add(1, "controller", TraceKind.BROKER_UNFENCED, peer=f"broker-{broker}")
    rows.elected(2, "broker-0", [0, 1, 2])
    rows.stage(10, "steady")
    return rows
