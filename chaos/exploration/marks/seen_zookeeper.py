"""The ensemble and its consumers as the rows of a run tell them, for the coverage marks."""

from collections.abc import Callable

from chaos.checkers.context import detail_of
from protocol.causes import PositionCause
from protocol.trace import TraceKind, TraceRow


class SeenZooKeeper:
    """What has been seen of one run so far.

    Shape: keys are nodes. Attributes, to read only: `connected` (the last SyncConnected), `expired`
    (the last Expired), `views`, `ended` (the last end of an attempt), `members` (consumer id of the
    present life), `dead_members` (consumer ids of lives that were killed), `positions` (node and
    partition -> committed offset that it begins at), `applied_us` (zxid -> when a server was the
    first to apply it), `led_epoch` (newest epoch with a leader, None before), `states` (server ->
    whether it serves).
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
            TraceKind.ZOOKEEPER_CLIENT_STATE: self._client_state,
            TraceKind.ZOOKEEPER_VIEW: self._viewed,
            TraceKind.ZOOKEEPER_ATTEMPT_STARTED: self._began,
            TraceKind.ZOOKEEPER_ATTEMPT_ENDED: self._ended,
            TraceKind.ZOOKEEPER_TXN_APPLIED: self._applied,
            TraceKind.ZOOKEEPER_STATE: self._server_state,
            TraceKind.POSITION_RESET: self._position,
            TraceKind.NODE_KILLED: self._killed,
            TraceKind.NODE_STARTED: self._started,
        }
        """What takes in a row, by its kind."""

    def session_of(self, node: str) -> str | None:
        """Return the session with which a consumer was connected last, in its present life."""
        connected = self.connected.get(node)
        return None if connected is None else str(detail_of(connected)["session"])

    def _client_state(self, row: TraceRow) -> None:
        match detail_of(row)["state"]:
            case "SyncConnected":
                self.connected[row.node] = row
            case "Expired":
                self.expired[row.node] = row
            case _:
                pass

    def _viewed(self, row: TraceRow) -> None:
        self.views[row.node] = row

    def _began(self, row: TraceRow) -> None:
        self.members[row.node] = row.member or ""

    def _ended(self, row: TraceRow) -> None:
        self.ended[row.node] = row

    def _applied(self, row: TraceRow) -> None:
        self.applied_us.setdefault(row.offset or 0, row.time_us)

    def _server_state(self, row: TraceRow) -> None:
        state = detail_of(row)["state"]
        self.states[row.node] = state != "LOOKING"
        if state == "LEADING":
            self.led_epoch = max(self.led_epoch or 0, row.leader_epoch or 0)

    def _position(self, row: TraceRow) -> None:
        if row.cause == PositionCause.COMMITTED:
            self.positions[row.node, row.partition or ""] = row.offset or 0

    def _killed(self, row: TraceRow) -> None:
        node = row.peer or ""
        if node in self.members:
            self.dead_members[self.members.pop(node)] = None
        if node in self.states:
            self.states[node] = False

    def _started(self, row: TraceRow) -> None:
        for known in (self.connected, self.expired, self.views, self.ended):
            known.pop(row.node, None)
