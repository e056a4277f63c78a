"""The table `group_states` in plain Python: intervals of each group's states, by coordinator.

`pipeline.tables.group_states` computes the same with Spark. A broker's life is one incarnation: the
time from one start of its process to its end. A group's coordinator is the broker that leads the
group's offsets partition (a partition of `__consumer_offsets`). A broker loads a partition (reads
its groups into memory) when it becomes the leader, and unloads it when it no longer is.
"""

from pipeline.in_memory.trace import TableRow, Trace, detail_of
from protocol.trace import TraceKind, TraceRow

_KINDS = (
    TraceKind.GROUP_LOADED,
    TraceKind.GROUP_STATE,
    TraceKind.GENERATION_STARTED,
    TraceKind.MEMBER_ADDED,
    TraceKind.MEMBER_REMOVED,
    TraceKind.LOAD_STARTED,
    TraceKind.LOAD_COMPLETED,
    TraceKind.UNLOAD_COMPLETED,
)
"""Kinds of a broker's rows that change a group's state, members or partition."""


def group_states_of(trace: Trace) -> list[TableRow]:
    """Return the states of each group on each coordinator that knew the group."""
    table = []
    for (broker, incarnation), rows in trace.lives(*_KINDS):
        life = _BrokerLife(trace, broker, incarnation)
        for row in rows:
            life.process(row)
        table += life.finish()
    return table


class _BrokerLife:
    """The groups on one incarnation of a broker, each with its present state.

    The interval of a state is open until the group leaves the state.
    """

    def __init__(self, trace: Trace, broker: str, incarnation: int) -> None:
        self._trace = trace
        self._partition_of = trace.groups()  # the offsets partition, by group
        self._life: TableRow = {"broker": broker, "incarnation": incarnation}
        self._epochs: dict[str, int | None] = {}  # leader epoch, by offsets partition
        self._members: dict[str, int | None] = {}  # number of members, by group; None: unknown
        self._open: dict[str, TableRow] = {}  # the interval that has not ended, by group
        self._closed: list[TableRow] = []

    def process(self, row: TraceRow) -> None:
        """Process the next row of the broker."""
        # Rows about a group name it, so `str` only satisfies the type checker.
        group = row.group
        match TraceKind(row.kind):
            case TraceKind.LOAD_STARTED | TraceKind.LOAD_COMPLETED:
                self._epochs[str(row.partition)] = row.leader_epoch
            case TraceKind.UNLOAD_COMPLETED:
                for name in list(self._open):  # a copy: `_close` removes the group
                    if self._open[name]["partition"] == row.partition:
                        self._close(name, row.time_us)
            case TraceKind.MEMBER_ADDED:
                self._change_members(str(group), 1)
            case TraceKind.MEMBER_REMOVED:
                self._change_members(str(group), -1)
            case TraceKind.GENERATION_STARTED:
                self._set_members(str(group), row)
            case TraceKind.GROUP_LOADED:
                self._set_members(str(group), row)
                self._enter(str(group), row, detail_of(row).get("state"), row.partition)
            case TraceKind.GROUP_STATE:
                state = detail_of(row).get("to")
                if state == "Dead":  # a later group of the same name begins without members
                    self._members[str(group)] = 0
                self._enter(str(group), row, state, None)
            case _:
                pass

    def finish(self) -> list[TableRow]:
        """End the open intervals with the broker's process or the run, and return all intervals."""
        for group in list(self._open):
            self._close(group, None)
        # Nodes still write rows after the run's end, while they stop. No table counts those rows.
        return [row for row in self._closed if row["from_us"] <= self._trace.end_us]

    def _change_members(self, group: str, change: int) -> None:
        """Add `change` to the number of members, if it is known."""
        members = self._members.setdefault(group, 0)  # a group without a row so far is new
        self._members[group] = None if members is None else members + change

    def _set_members(self, group: str, row: TraceRow) -> None:
        """Set the number of members to that in the row, which lists them all."""
        members = detail_of(row).get("members")
        self._members[group] = len(members) if isinstance(members, list) else None

    def _enter(
        self, group: str, row: TraceRow, state: str | None, partition_of_row: str | None
    ) -> None:
        """End the open interval of a group, and begin one in `state`."""
        if state is None:
            return
        self._close(group, row.time_us)
        # The trace knows the partition only of groups that had members. For another group, the row
        # about its load names the partition.
        partition = self._partition_of.get(group) or partition_of_row
        self._open[group] = self._life | {
            "group": group,
            "partition": partition,
            "leader_epoch": self._epochs.get(str(partition)),
            "state": state,
            "generation": row.generation,
            "members": self._members.setdefault(group, 0),
            "cause": row.explanation,
            "from_us": row.time_us,
        }
        if state == "Dead":  # the broker has forgotten the group, so the interval has no length
            self._close(group, row.time_us)

    def _close(self, group: str, at_us: int | None) -> None:
        """End a group's interval at `at_us`, or at the earlier end of the broker's process.

        `at_us` is None if no row ends the interval. An interval in the state Dead always ends when
        it begins.
        """
        row = self._open.pop(group, None)
        if row is None:
            return
        from_us, end_us = row["from_us"], self._trace.end_us

        death = self._trace.death(row["broker"], row["incarnation"], from_us)
        ends = [] if at_us is None else [at_us]
        if death is not None and row["state"] != "Dead":
            ends.append(death.at_us)

        to_us = min(ends, default=None)
        # An interval that lasted until the run's end has `to_us` None.
        if row["state"] != "Dead" and to_us is not None and to_us >= end_us:
            to_us = None
        length_us = (end_us if to_us is None else to_us) - from_us
        self._closed.append(row | {"to_us": to_us, "length_us": length_us})
