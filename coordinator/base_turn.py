"""BaseTurn: what the handlers of one input share, that is, the time and the Result that they build.

An input is a request, a fired timer or a completed append. The host, which is the broker that runs
the coordinator, calls the coordinator once for each input. The coordinator returns a Result: the
replies, appends, timers and trace rows that the host has to carry out.

The handling of one input is called a turn. A coordinator keeps no callbacks. If a turn starts a
timer or an append, its continuation is stored as data: `InFlight` maps the timer's key, or the
append's id, to a value that says what to do when the timer fires or the append completes.

The group coordinator and the transaction coordinator each have a subclass of BaseTurn, with their
own types of continuations (`_Timer`, `_Pending`) and their own Result.
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
    """Running timers and unfinished appends, each with its continuation; kept between turns."""

    __slots__ = ("appends", "last_append_id", "timers")

    def __init__(self) -> None:
        # A plain class, since mypyc cannot compile a generic dataclass.
        self.timers: dict[str, _Timer] = {}
        self.appends: dict[AppendId, _Pending] = {}
        self.last_append_id = 0

    def new_append_id(self) -> AppendId:
        """Return a new id without storing a continuation.

        An append with acks=0 needs no continuation, since its outcome is never reported.
        """
        self.last_append_id += 1
        return AppendId(self.last_append_id)

    def add_append(self, pending: _Pending) -> AppendId:
        """Store the continuation of a new append and return the append's id."""
        append_id = self.new_append_id()
        self.appends[append_id] = pending
        return append_id

    def take_append(self, append_id: AppendId) -> _Pending:
        """Remove a completed append and return its continuation.

        Raises: SimulationError if the append is not in flight: the host reported an outcome twice.
        """
        pending = self.appends.pop(append_id, None)
        if pending is None:
            raise SimulationError(f"append {append_id} is not in flight")
        return pending

    def take_timer(self, key: str) -> _Timer | None:
        """Remove a fired timer and return its continuation, None if the timer was cancelled."""
        # None is no error: the host may have queued the firing before it got the cancellation.
        return self.timers.pop(key, None)


class BaseTurn(Generic[_Timer, _Pending, _Result]):
    """The context that handlers of one input share: the time, the settings, the Result."""

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
        """Milliseconds since the epoch: the unit of timestamps in records and groups."""
        return self.now_us // 1_000

    def reply(self, request_id: RequestId, response: AnyResponse) -> None:
        """Answer a request."""
        self.result.replies.append(Reply(request_id=request_id, response=response))

    def trace(self, event: TraceEvent) -> None:
        """Record a trace row."""
        self.result.trace.append(event)

    def set_timer(self, key: str, timer: _Timer, delay_ms: int) -> None:
        """Start a timer, replacing a timer with the same key; a negative delay counts as 0."""
        self._in_flight.timers[key] = timer
        # The delay is negative if it is the rebalance timeout of a JoinGroup that named a negative
        # one (BEHAVIOUR 0.1).
        self.result.timers.append(SetTimer(key=key, delay_us=max(delay_ms, 0) * 1_000))

    def has_timer(self, key: str) -> bool:
        """Return True if a timer with this key runs."""
        return key in self._in_flight.timers

    def cancel_timer(self, key: str) -> None:
        """Stop a timer, if it runs."""
        if self._in_flight.timers.pop(key, None) is not None:
            self.result.timers.append(CancelTimer(key=key))
