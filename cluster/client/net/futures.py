"""Futures that call their listeners as soon as they are done, and the wakeup of one coroutine.

A host runs a node. It provides a clock (`now_us`), timers (`after`) and asyncio's futures; a Wakeup
waits for one of these. An answer to a request completes a RequestFuture.

asyncio's futures are not used for answers, because they call their listeners one turn of the event
loop later. Kafka's handlers run when the answer arrives, and their order is part of the protocol.
For example, a member of a consumer group ignores an error for an earlier generation of the group.
One turn later the member may have another generation.
"""

from asyncio import Future
from collections.abc import Callable
from typing import Generic, TypeVar

from cluster.client.net.errors import ClientError
from cluster.host.host import Host
from protocol.errors import SimulationError

T = TypeVar("T")


class RequestFuture(Generic[T]):
    """The outcome of one operation: pending, a value, or an error. Source: Kafka RequestFuture.

    Invariant: completed at most once; listeners run in the order in which they were added.
    A misuse raises SimulationError, this project's exception for bugs of its own code.
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
        """Return the result. Raises: SimulationError if pending or failed."""
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
        """Call `listener` with this future when it is done; now if it is done already."""
        if self.is_done:
            listener(self)
        else:
            self._listeners.append(listener)

    def _finish(self) -> None:
        """Mark the future as done, and call its listeners."""
        # `_value` or `error` was overwritten already. That does no harm, since the exception ends
        # the run.
        if self.is_done:
            raise SimulationError("a request future was completed twice")
        self.is_done = True
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            listener(self)


class Wakeup:
    """Ends the wait of one coroutine whenever a condition of the coroutine may have changed.

    A `set` without a waiter is remembered, so that the next wait ends immediately. Several sets may
    end only one wait, so the coroutine must check all of its conditions after each wait.
    Source: Kafka's selector, which ends a poll with any network event.
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self._is_set = False
        self._waiter: Future[None] | None = None

    def set(self) -> None:
        """Wake the waiter; if no coroutine waits, let the next wait end immediately."""
        waiter = self._waiter
        # If the waiter is done, nothing needs to be done here: the coroutine was woken, has not run
        # yet, and will see this change, too.
        if waiter is None:
            self._is_set = True
        elif not waiter.done():
            waiter.set_result(None)

    async def wait(self, deadline_us: int | None) -> None:
        """Wait for `set`, until `deadline_us` on the host's clock at most (None: no limit).

        The caller cannot see which of the two ended the wait.
        """
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
        """Wait until `future` is done or `deadline_us`; return True if it is done.

        The code that completes `future` must set this wakeup.
        """
        while not future.is_done:
            if self._host.now_us() >= deadline_us:
                return False
            await self.wait(deadline_us)
        return True
