"""Build a trace by hand, for the tests of checkers and of other code that reads traces.

A trace is a list of rows, one for each recorded event of a run. A checker reads a trace and says
whether Kafka's promises were kept. Each method of `Rows` adds the row of one event, or several rows
that belong together:

    rows = Rows()
    rows.assigned(1, "consumer-0", partitions=2)
    rows.committed(2, "consumer-0", 100)

Times are seconds, and brokers and consumers are given by the names of their nodes. Unless a method
has a parameter for them, the group is `g` and the partition is `t-0`. The offsets of the group are
in the partition `OFFSETS_0`.
"""

from collections.abc import Callable, Sequence
from typing import TypedDict, Unpack

from protocol.causes import MemberStateCause
from protocol.ids import CONSUMER_OFFSETS
from protocol.trace import TraceEvent, TraceKind, TraceRow, stamp

OFFSETS_0 = f"{CONSUMER_OFFSETS}-0"


class Columns(TypedDict, total=False):
    """The columns of a row that a test may set. `Rows.add` sets the others, such as the time."""

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
    """Builds a trace row by row. If an observer is given, it is called with each new row."""

    def __init__(self, observer: Callable[[TraceRow], None] | None = None) -> None:
        self.rows: list[TraceRow] = []
        self._observer = observer
        # (node, incarnation) -> the `seq` of its next row.
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
        """Add one row. The node's own clock and the clock of the run show the same time.

        `incarnation` says how often the node was restarted before.
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
        """Let the run enter a stage.

        The stages are, among others, `steady` (before the first fault), `liveness` (after the last
        fault) and `stopping`.
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
        """Let `node` become leader of a partition. Its log ends at the offset `log_end`."""
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
        """Let `node` begin to append a batch at `base_offset`.

        Return the append id. The row of the append's end must have the same append id.
        """
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
        """Let an append succeed, or fail if `error` is not NONE."""
        self._append(
            time_s,
            node,
            TraceKind.APPEND_COMPLETED,
            leader_epoch,
            base_offset,
            append_id,
            records=1,
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
        """Let `node` append a batch, which succeeds 2 ms later."""
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
        """Let a consumer get partitions, by default the partition t-0.

        The consumer gets the partitions with the given names. Without names it gets the first
        partitions of the topic `t`: t-0 and t-1 with `partitions=2`. `peer` is the coordinator that
        sent the assignment.
        """
        if names is None:
            names = [f"t-{index}" for index in range(partitions)]
        self.add(
            time_s,
            consumer,
            TraceKind.PARTITIONS_ASSIGNED,
            group=group,
            member=f"{consumer}-id" if member is None else member,
            generation=generation,
            peer=peer,
            detail={"partitions": list(names)},
        )

    def revoked(
        self, time_s: float, consumer: str, *, lost: bool = False, generation: int = 1
    ) -> None:
        """Let a consumer give up its partitions for a rebalance.

        If `lost` is True, the consumer instead learns that it has already lost its partitions.
        """
        self.add(
            time_s,
            consumer,
            TraceKind.PARTITIONS_LOST if lost else TraceKind.PARTITIONS_REVOKED,
            group="g",
            member=f"{consumer}-id",
            generation=generation,
            # Checkers do not read the list. For them the row ends all ownerships of the consumer.
            detail={"partitions": []},
        )

    def position_reset(
        self, time_s: float, consumer: str, offset: int, cause: str = "committed"
    ) -> None:
        """Let a consumer begin to read t-0 at an offset. `cause` says where it got the offset."""
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
        """Let a consumer process the records of t-0 with the offsets `first` to `last`."""
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
        """Let the coordinator `peer` acknowledge to a consumer its commit for t-0."""
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
        """Let a commit for t-0 fail. The consumer has sent this commit to `peer`."""
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
        """Let `node` get the committed offset of t-0 from the coordinator `peer`."""
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
        """Let the coordinator on `node` change the state of the group."""
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
        pending: Sequence[int] = (),
    ) -> None:
        """Let the coordinator on `node` load the group from the log.

        `members` are the ids of the members, or only their number. `pending` are the ids of the
        producers whose open transactions commit offsets.
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
                **({"pending": list(pending)} if pending else {}),
            },
        )

    def load_started(self, time_s: float, node: str, leader_epoch: int) -> None:
        """Let `node` begin to load the groups of OFFSETS_0 from the log."""
        self.add(
            time_s,
            node,
            TraceKind.LOAD_STARTED,
            partition=OFFSETS_0,
            leader_epoch=leader_epoch,
            detail={},
        )

    def load_completed(self, time_s: float, node: str, leader_epoch: int) -> None:
        """Let `node` complete the load of OFFSETS_0, after which it coordinates the groups."""
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
        """Let `node` drop the groups of OFFSETS_0, because another broker leads the partition."""
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
        """Let the coordinator on `node` add a member to the group."""
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
        """Let the coordinator on `node` remove a member from the group."""
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
        """Let the coordinator on `node` begin a generation, because all members have joined.

        10 ms later the coordinator stores the assignment. The first of the members is the leader.
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
        """Let the coordinator on `node` store a commit.

        `append_id` is what `append_started` returned when the commit was appended to the log.
        """
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
        """Let a consumer change its state. `error` names an error code that is the reason."""
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
        """Let the coordinator on `node` restart the session timer of a member.

        The reason is a request of the member, and `api` is the API of this request.
        """
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
        """Let the driver (which conducts the run) inject a fault into the node `peer`.

        If the fault stops a member of a group or cuts it off, `members_survive` is False.
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
        """Let the driver undo the fault that has hit `peer`."""
        self.add(
            time_s,
            "driver",
            TraceKind.FAULT_HEALED,
            peer=peer,
            cause=f"{fault}-0",
            detail={"fault": fault},
        )

    def elected(self, time_s: float, leader: str, isr: list[int]) -> None:
        """Let the controller elect a leader of OFFSETS_0, or no leader if `leader` is ""."""
        self.add(
            time_s,
            "controller",
            TraceKind.LEADER_ELECTED,
            partition=OFFSETS_0,
            peer=leader,
            detail={"isr": isr, "reason": "any"},
        )

    def admin_commit(self, time_s: float, offset: int, error: str) -> None:
        """Let broker-0 answer an administrator's commit for t-0 with this error code."""
        self.add(
            time_s,
            "admin-0",
            TraceKind.ADMIN_COMMIT,
            group="g",
            partition="t-0",
            # An administrator is no member of the group, and sends the generation -1.
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
        """Let an administrator delete a commit that broker-0 has not stored yet."""
        self.add(
            time_s,
            "broker-0",
            TraceKind.PENDING_COMMIT_REMOVED,
            group="g",
            partition=partition,
            cause="deleted by an administrator",
        )


def steady_cluster() -> Rows:
    """Return the rows of a cluster of three brokers, in which broker-0 leads OFFSETS_0.

    The run is in its stage `steady` from 10 s on.
    """
    rows = Rows()
    for broker in range(3):
        rows.add(1, "controller", TraceKind.BROKER_UNFENCED, peer=f"broker-{broker}")
    rows.elected(2, "broker-0", [0, 1, 2])
    rows.stage(10, "steady")
    return rows
