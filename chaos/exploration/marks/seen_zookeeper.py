"""State of the ZooKeeper servers and their consumers, as the rows of a trace have shown it so far.

This state is a part of SeenCluster. The coverage marks (rare situations of a run) in the module
`zookeeper` use the state. The docstring of `zookeeper` also explains what a view and an attempt of
a consumer are.
"""

from collections.abc import Callable

from chaos.checkers.context import detail_of
from protocol.causes import PositionCause
from protocol.trace import TraceKind, TraceRow


class SeenZooKeeper:
    """The state after the rows so far.

    To add a row, call the method that `updates` has for its kind. The conditions of marks read the
    other attributes. Four of these have a row for each consumer. The row is dropped when the
    process of the consumer starts again:

    - `connected`, `expired`: the row of the last time at which the consumer's client came to the
      state SyncConnected, or Expired.
    - `views`: the row of the last view. A view is the list of members from which an attempt
      computed its assignment.
    - `ended`: the row of the last end of an attempt.

    The other attributes are:

    - `members`: for each node, the consumer id of its present process.
    - `dead_members`: the consumer ids whose process was killed, oldest first (the keys).
    - `positions`: for each (node, partition), the committed offset at which the member began.
    - `applied_us`: for each zxid (number of a transaction), the time at which the first server
      applied the transaction.
    - `led_epoch`: the newest epoch in which the servers had a leader; None before the first leader.
    - `states`: for each server, True if it serves clients, because it follows or leads.
    """

    def __init__(self) -> None:
        self.connected: dict[str, TraceRow] = {}
        self.expired: dict[str, TraceRow] = {}
        self.views: dict[str, TraceRow] = {}
        self.ended: dict[str, TraceRow] = {}
        self.members: dict[str, str] = {}
        self.dead_members: dict[str, None] = {}
        self.positions: dict[tuple[str, str], int] = {}
        self.applied_us: dict[int, int] = {}
        self.led_epoch: int | None = None
        self.states: dict[str, bool] = {}
        self.updates: dict[str, Callable[[TraceRow], None]] = {
            TraceKind.ZOOKEEPER_CLIENT_STATE: self._update_client,
            TraceKind.ZOOKEEPER_VIEW: self._update_view,
            TraceKind.ZOOKEEPER_ATTEMPT_STARTED: self._update_member,
            TraceKind.ZOOKEEPER_ATTEMPT_ENDED: self._update_end,
            TraceKind.ZOOKEEPER_TXN_APPLIED: self._update_applied,
            TraceKind.ZOOKEEPER_STATE: self._update_server,
            TraceKind.POSITION_RESET: self._update_position,
            TraceKind.NODE_KILLED: self._remove_killed,
            TraceKind.NODE_STARTED: self._forget_earlier_life,
        }
        """The method to call with a row, by the row's kind."""

    def session_of(self, node: str) -> str | None:
        """Return the session with which the present process of a consumer was connected last."""
        connected = self.connected.get(node)
        return None if connected is None else str(detail_of(connected)["session"])

    def _update_client(self, row: TraceRow) -> None:
        match detail_of(row)["state"]:
            case "SyncConnected":
                self.connected[row.node] = row
            case "Expired":
                self.expired[row.node] = row
            case _:
                pass

    def _update_view(self, row: TraceRow) -> None:
        self.views[row.node] = row

    def _update_member(self, row: TraceRow) -> None:
        self.members[row.node] = row.member or ""

    def _update_end(self, row: TraceRow) -> None:
        self.ended[row.node] = row

    def _update_applied(self, row: TraceRow) -> None:
        # Every server applies the transaction and writes a row. Only the first row counts.
        self.applied_us.setdefault(row.offset or 0, row.time_us)

    def _update_server(self, row: TraceRow) -> None:
        state = detail_of(row)["state"]
        self.states[row.node] = state != "LOOKING"  # a server without a leader serves no client
        if state == "LEADING":
            self.led_epoch = max(self.led_epoch or 0, row.leader_epoch or 0)

    def _update_position(self, row: TraceRow) -> None:
        if row.cause == PositionCause.COMMITTED:
            self.positions[row.node, row.partition or ""] = row.offset or 0

    def _remove_killed(self, row: TraceRow) -> None:
        node = row.peer or ""
        if node in self.members:
            self.dead_members[self.members.pop(node)] = None
        if node in self.states:
            self.states[node] = False

    def _forget_earlier_life(self, row: TraceRow) -> None:
        for known in (self.connected, self.expired, self.views, self.ended):
            known.pop(row.node, None)
