"""The table `group_states` in plain Python: in which state was each group, from when to when?

Example: on broker-1, the group `readers` was PreparingRebalance from 4.0 to 7.0 s, and Stable from
7.0 s on. A row is an interval of one state on one coordinator. If two brokers have the group at the
same time, the table has the intervals of both brokers. `pipeline.tables.group_states` computes the
same with Spark.
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
    """Return the intervals of all groups on all brokers."""
    table = []
    for (broker, incarnation), rows in trace.lives(*_KINDS):
        life = _BrokerLife(trace, broker, incarnation)
        for row in rows:
            life.process(row)
        table += life.finish()
    return table


class _BrokerLife:
    """The groups of a broker, from one start of its process to its end.

    An interval is open as long as the group is in its state.
    """

    def __init__(self, trace: Trace, broker: str, incarnation: int) -> None:
        self._trace = trace
        self._partitions = trace.groups()  # the offsets partition of each group
        self._broker: TableRow = {"broker": broker, "incarnation": incarnation}
        self._epochs: dict[str, int | None] = {}  # the leader epoch of each offsets partition
        self._member_counts: dict[str, int | None] = {}  # by group; None if it is not known
        self._open: dict[str, TableRow] = {}  # the open interval of each group
        self._closed: list[TableRow] = []

    def process(self, row: TraceRow) -> None:
        """Process the next row of the broker."""
        group = row.group  # not None in rows about groups
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
                if state == "Dead":  # a new group of the same name begins without members
                    self._member_counts[str(group)] = 0
                self._enter(str(group), row, state, partition_of_row=None)
            case _:
                pass

    def finish(self) -> list[TableRow]:
        """End the open intervals with the broker's process or the run, and return all intervals."""
        for group in list(self._open):
            self._close(group, at_us=None)
        # Nodes still write rows after the run's end, while they stop. No table counts these rows.
        return [row for row in self._closed if row["from_us"] <= self._trace.end_us]

    def _change_members(self, group: str, change: int) -> None:
        """Add `change` to the number of members, if this number is known."""
        count = self._member_counts.setdefault(group, 0)  # a group without a row so far is new
        self._member_counts[group] = None if count is None else count + change

    def _set_members(self, group: str, row: TraceRow) -> None:
        """Count the members that a row lists."""
        members = detail_of(row).get("members")
        self._member_counts[group] = len(members) if isinstance(members, list) else None

    def _enter(
        self, group: str, row: TraceRow, state: str | None, partition_of_row: str | None
    ) -> None:
        """End the open interval of a group, and begin an interval in `state`."""
        if state is None:
            return
        self._close(group, row.time_us)
        # `Trace.groups` has only groups that had members. For any other group, the row about its
        # load tells the partition.
        partition = self._partitions.get(group) or partition_of_row
        self._open[group] = self._broker | {
            "group": group,
            "partition": partition,
            "leader_epoch": self._epochs.get(str(partition)),
            "state": state,
            "generation": row.generation,
            "members": self._member_counts.setdefault(group, 0),
            "cause": row.explanation,
            "from_us": row.time_us,
        }
        if state == "Dead":  # the group is deleted at once, so this interval has no length
            self._close(group, row.time_us)

    def _close(self, group: str, at_us: int | None) -> None:
        """End a group's interval at `at_us`, or earlier if the broker's process ended earlier.

        `at_us` is None if no row ends the interval.
        """
        interval = self._open.pop(group, None)
        if interval is None:
            return
        from_us, run_end_us = interval["from_us"], self._trace.end_us

        ends_us = [] if at_us is None else [at_us]
        is_dead = interval["state"] == "Dead"  # such an interval ends when it begins
        death = self._trace.death(interval["broker"], interval["incarnation"], from_us)
        if death is not None and not is_dead:
            ends_us.append(death.at_us)

        to_us = min(ends_us, default=None)
        # The `to_us` of an interval that lasted until the run's end is None.
        if to_us is not None and to_us >= run_end_us and not is_dead:
            to_us = None
        length_us = (run_end_us if to_us is None else to_us) - from_us
        self._closed.append(interval | {"to_us": to_us, "length_us": length_us})
