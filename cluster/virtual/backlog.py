"""What waits for a node that is stopped: timers that came due, frames that arrived, and the rest.

Owns the order in which each kind is kept. When a host stops and goes on is its own business.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from cluster.host.frames import CloseFrame, Frame
from cluster.links.rules import LinkRule
from cluster.virtual.loop import LoopHandle, LoopTimer


class TimerOwner(Protocol):
    """The host whose timer it is."""

    fires_timers: bool

    def keep_timer(self, timer: "HostTimer") -> None:
        """Take a timer that came due while `fires_timers` is False."""

    def callback_failed(self, error: Exception) -> None:
        """Take an exception that left a callback."""


class HostTimer(LoopTimer):
    """A pending call of VirtualHost.after: it waits for a stopped host, and dies with its host."""

    __slots__ = ("_host",)

    def __init__(
        self, host: TimerOwner, callback: Callable[..., object], args: tuple[object, ...]
    ) -> None:
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._host = host

    def _run(self) -> None:
        host = self._host
        if not host.fires_timers:
            host.keep_timer(self)
            return
        try:
            self._callback(*self._args)
        except Exception as error:
            host.callback_failed(error)

    def fire_late(self) -> None:
        """Make the call that came due while its host was stopped, unless it was cancelled since."""
        if not self._cancelled:
            self._run()


class Backlog:
    """What came for a node while it was stopped, each kind in the order in which it came."""

    __slots__ = ("frames", "is_resuming", "released", "resets", "rules", "steps", "timers")

    def __init__(self) -> None:
        self.is_resuming = False
        """Whether the node goes on and is catching up."""
        self.steps: list[LoopHandle] = []
        """Steps of tasks that were about to be taken."""
        self.timers: deque[HostTimer] = deque()
        self.resets: list[CloseFrame] = []
        """Connections that were reset: heard before what waits, which is lost on them."""
        self.released: deque[Frame] = deque()
        """What link rules held and hold no longer: it goes before `frames`, as it came."""
        self.frames: deque[Frame] = deque()
        self.rules: Sequence[LinkRule] | None = None
        """Link rules that it gets when it goes on; None if they have not changed."""
