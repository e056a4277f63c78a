"""BaseTurn: what the handlers of one input share, such as the time and the Result that they build.

The broker calls a coordinator once for each input: a request, a fired timer, a completed append.
The coordinator returns a Result: the replies, appends and timers that the broker must carry out.
The handling of one input is called a turn.

If a turn starts a timer or an append, a later turn must know how to continue. There are no
callbacks. Instead, the turn stores a *continuation*, a value that says what to do. `InFlight` keeps
the continuations of running timers by the timers' keys, and the continuations of appends by the
appends' ids.

The group coordinator and the transaction coordinator each have a subclass of BaseTurn. The
subclasses differ in the types of their continuations (`_Timer`, `_Pending`) and of their Results.
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
    """Running timers and unfinished appends with their continuations, kept between turns."""

    __slots__ = ("appends", "last_append_id", "timers")

    def __init__(self) -> None:
        # This is no dataclass, because mypyc cannot compile a generic dataclass.
        self.timers: dict[str, _Timer] = {}
        self.appends: dict[AppendId, _Pending] = {}
        self.last_append_id = 0

    def new_append_id(self) -> AppendId:
        """Return a new id for an append that needs no continuation.

        An append with acks=0 needs no continuation, because its outcome is never reported.
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

        Raises: SimulationError if the append is not in flight, for example because the broker
            reports it a second time.
        """
        pending = self.appends.pop(append_id, None)
        if pending is None:
            raise SimulationError(f"append {append_id} is not in flight")
        return pending

    def take_timer(self, key: str) -> _Timer | None:
        """Remove a fired timer and return its continuation, None if the timer was cancelled."""
        # A missing timer is no error: the timer may have fired before the broker cancelled it.
        return self.timers.pop(key, None)


class BaseTurn(Generic[_Timer, _Pending, _Result]):
    """What the handlers of one input share: the time, the settings, and the Result.

    A handler does not write into the Result itself. It calls the methods below.
    """

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
        """Start a timer. It replaces a timer with the same key. A negative delay counts as 0."""
        self._in_flight.timers[key] = timer
        # `delay_ms` may be negative, because Kafka accepts a JoinGroup with a negative rebalance
        # timeout (docs/kafka/BEHAVIOUR.md 0.1).
        self.result.timers.append(SetTimer(key=key, delay_us=max(delay_ms, 0) * 1_000))

    def has_timer(self, key: str) -> bool:
        """Return True if a timer with this key runs."""
        return key in self._in_flight.timers

    def cancel_timer(self, key: str) -> None:
        """Stop a timer, if it runs."""
        if self._in_flight.timers.pop(key, None) is not None:
            self.result.timers.append(CancelTimer(key=key))
