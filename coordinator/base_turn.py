"""One input being handled, as every coordinator does it: its time, and the Result that it builds.

Owns what ties a later input to an earlier one: timers by key, appends by id. A coordinator names
its kinds of both, and adds what its handlers say through a turn.
"""

from typing import Generic, TypeVar

from protocol.api import AnyResponse
from protocol.config import BrokerConfig
from protocol.effects import CancelTimer, Reply, Result, SetTimer
from protocol.errors import SimulationError
from protocol.ids import AppendId, RequestId
from protocol.trace import TraceEvent

_Timer = TypeVar("_Timer")
_Pending = TypeVar("_Pending")
_Result = TypeVar("_Result", bound=Result)


class InFlight(Generic[_Timer, _Pending]):
    """Timers that run and appends under way, each with what its end is about."""

    __slots__ = ("appends", "last_append_id", "timers")

    def __init__(self) -> None:
        # Not a dataclass: mypyc compiles none that is generic.
        self.timers: dict[str, _Timer] = {}
        self.appends: dict[AppendId, _Pending] = {}
        self.last_append_id = 0

    def new_append_id(self) -> AppendId:
        """Return the id of an append whose outcome does not come back (acks=0)."""
        self.last_append_id += 1
        return AppendId(self.last_append_id)

    def add_append(self, pending: _Pending) -> AppendId:
        """Return the id of an append whose outcome is about `pending`."""
        append_id = self.new_append_id()
        self.appends[append_id] = pending
        return append_id

    def take_append(self, append_id: AppendId) -> _Pending:
        """Return what a completed append is about; it is in flight no more.

        Raises: SimulationError if it was not.
        """
        pending = self.appends.pop(append_id, None)
        if pending is None:
            raise SimulationError(f"append {append_id} is not in flight")
        return pending

    def take_timer(self, key: str) -> _Timer | None:
        """Return what a fired timer is about, None for one that was cancelled."""
        return self.timers.pop(key, None)


class BaseTurn(Generic[_Timer, _Pending, _Result]):
    """One input being handled."""

    __slots__ = ("_in_flight", "config", "now_us", "result")

    def __init__(
        self,
        config: BrokerConfig,
        in_flight: InFlight[_Timer, _Pending],
        result: _Result,
        now_us: int,
    ) -> None:
        self._in_flight = in_flight
        self.config = config
        self.now_us = now_us  # wall clock, microseconds since the epoch
        self.result = result

    @property
    def now_ms(self) -> int:
        """Milliseconds since the epoch, as records and states are stamped."""
        return self.now_us // 1_000

    def reply(self, request_id: RequestId, response: AnyResponse) -> None:
        """Answer a request."""
        self.result.replies.append(Reply(request_id=request_id, response=response))

    def trace(self, event: TraceEvent) -> None:
        """Record a trace row."""
        self.result.trace.append(event)

    def set_timer(self, key: str, timer: _Timer, delay_ms: int) -> None:
        """Start a timer, replacing the one with the same key; a negative delay is none."""
        self._in_flight.timers[key] = timer
        self.result.timers.append(SetTimer(key=key, delay_us=max(delay_ms, 0) * 1_000))

    def has_timer(self, key: str) -> bool:
        """Return whether a timer with this key runs."""
        return key in self._in_flight.timers

    def cancel_timer(self, key: str) -> None:
        """Stop a timer, if it runs."""
        if self._in_flight.timers.pop(key, None) is not None:
            self.result.timers.append(CancelTimer(key=key))
