"""Handle of a call in virtual time.

The module is separate from `loop`, so that mypyc can compile it.
"""

from collections.abc import Callable


class LoopTimer:
    """A call at a virtual time that can be cancelled; created by VirtualLoop.call_at_us."""

    __slots__ = ("_args", "_callback", "_cancelled")

    def __init__(self, callback: Callable[..., object], args: tuple[object, ...]) -> None:
        self._callback = callback
        self._args = args
        self._cancelled = False

    def cancel(self) -> None:
        """Cancel the call; no effect once it was made."""
        self._cancelled = True
        self._args = ()

    def _run(self) -> None:
        self._callback(*self._args)
