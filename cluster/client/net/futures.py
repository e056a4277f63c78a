"""RequestFuture, the future answer to a request, and Wakeup, which ends the wait of a coroutine.

Kafka's client handles an answer as soon as it arrives, and the order of these handlers is part of
the protocol. asyncio's futures would call them one turn of the event loop later, which is too late.
For example, a member of a group reacts to an error about its generation, but ignores an error about
a generation that it has left. One turn later the member may have left the generation, and would
ignore the error. Therefore a RequestFuture calls its listeners immediately.
"""

from asyncio import Future
from collections.abc import Callable
from typing import Generic, TypeVar

from cluster.client.net.errors import ClientError
from cluster.host.host import Host
from protocol.errors import SimulationError

T = TypeVar("T")


class RequestFuture(Generic[T]):
    """The outcome of one operation: still pending, a value, or an error.

    It is completed once; then its listeners are called in the order in which they were added. A
    second completion is a bug in our code and raises SimulationError.

    Source: Kafka RequestFuture.
    """

    __slots__ = ("_listeners", "_value", "error", "is_done")

    def __init__(self) -> None:
        self.is_done = False
        self.error: ClientError | None = None
        """The failure; None while pending and after success."""
        self._value: T | None = None
        self._listeners: list[Callable[[RequestFuture[T]], None]] = []

    @classmethod
    def failed(cls, error: ClientError) -> "RequestFuture[T]":
        """Return a future that has failed already."""
        future = cls()
        future.fail(error)
        return future

    @property
    def value(self) -> T:
        """The value of an operation that succeeded. Raises: SimulationError if it did not."""
        if not self.is_done or self.error is not None:
            raise SimulationError("a future that has not succeeded has no value")
        return self._value  # type: ignore[return-value]  # `complete` set it to a T

    def complete(self, value: T) -> None:
        """Succeed with `value`. Raises: SimulationError if already done."""
        self._value = value
        self._finish()

    def fail(self, error: ClientError) -> None:
        """Fail with `error`. Raises: SimulationError if already done."""
        self.error = error
        self._finish()

    def add_listener(self, listener: Callable[["RequestFuture[T]"], None]) -> None:
        """Call `listener` with this future when it is done; immediately if it is done already."""
        if self.is_done:
            listener(self)
        else:
            self._listeners.append(listener)

    def _finish(self) -> None:
        """Mark the future as done, and call its listeners."""
        # The caller has overwritten `_value` or `error`. This does no harm, because the exception
        # ends the run.
        if self.is_done:
            raise SimulationError("a request future was completed twice")
        self.is_done = True
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            listener(self)


class Wakeup:
    """Lets one coroutine sleep until something that it waits for may have happened.

    The coroutine awaits `wait` in a loop, and checks after each wait what has happened. Code that
    changes something calls `set`. If the coroutine is not waiting at that moment, its next `wait`
    ends immediately. Several calls of `set` may end only one wait.
    Source: Kafka's selector, which ends a poll with any network event.
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self._is_set = False
        self._waiter: Future[None] | None = None

    def set(self) -> None:
        """Wake the waiter; if no coroutine waits, let the next wait end immediately."""
        waiter = self._waiter
        # If the waiter is done, an earlier `set` has woken the coroutine, which has not run yet.
        # When the coroutine runs, it sees this change, too.
        if waiter is None:
            self._is_set = True
        elif not waiter.done():
            waiter.set_result(None)

    async def wait(self, deadline_us: int | None) -> None:
        """Wait for `set`, but not longer than until `deadline_us`, if that is not None."""
        if self._is_set:
            self._is_set = False
            return
        timer = None
        if deadline_us is not None:
            delay_us = deadline_us - self._host.now_us()
            if delay_us <= 0:
                return
            timer = self._host.after(delay_us, self.set)
        self._waiter = self._host.create_future()
        await self._waiter
        self._waiter = None
        if timer is not None:
            timer.cancel()

    async def wait_for(self, future: RequestFuture[T], deadline_us: int) -> bool:
        """Wait until `future` is done or `deadline_us` has come; return True if it is done.

        The code that completes `future` must also set this wakeup.
        """
        while not future.is_done:
            if self._host.now_us() >= deadline_us:
                return False
            await self.wait(deadline_us)
        return True
