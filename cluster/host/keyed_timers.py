"""Timers that are named by a key, such as one for each member of a group.

The core of a node (for example the group coordinator of a broker) is a pure state machine without
access to timers. It returns the effects SetTimer and CancelTimer, which name a timer by a key, and
the node passes them to KeyedTimers. A new timer replaces the pending timer with the same key.
"""

from collections.abc import Callable, Sequence, Set

from cluster.host.host import Host, Timer
from protocol.effects import CancelTimer, SetTimer
from protocol.errors import InvariantViolation


class KeyedTimers:
    """Carries out SetTimer and CancelTimer on a Host; calls `on_fired` with a fired timer's key."""

    def __init__(self, host: Host, on_fired: Callable[[str], None]) -> None:
        self._host = host
        self._on_fired = on_fired
        self._timers: dict[str, Timer] = {}
        """The pending timers, by key."""

    def apply(self, effects: Sequence[SetTimer | CancelTimer]) -> None:
        """Set and cancel timers, in the order of `effects`."""
        for effect in effects:
            # Both effects begin by cancelling the pending timer with this key.
            pending = self._timers.pop(effect.key, None)
            if pending is not None:
                pending.cancel()
            match effect:
                case SetTimer(key=key, delay_us=delay_us):
                    self._timers[key] = self._host.after(delay_us, self._fire, key)
                case CancelTimer():
                    pass

    def pending(self, key: str) -> Timer | None:
        """Return the pending timer with this key, None if there is none; to read only."""
        return self._timers.get(key)

    def require(self, expected: Set[str]) -> None:
        """Check that exactly the timers with the keys `expected` are armed.

        Raises: InvariantViolation.
        """
        if self._timers.keys() != expected:
            raise InvariantViolation(
                "timers_are_armed",
                f"armed but not expected: {sorted(self._timers.keys() - expected)}, expected but "
                f"not armed: {sorted(expected - self._timers.keys())}",
            )

    def _fire(self, key: str) -> None:
        del self._timers[key]  # before the call, which may set a timer with this key again
        self._on_fired(key)
