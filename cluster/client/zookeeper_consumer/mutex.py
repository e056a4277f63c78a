"""A lock for the coroutines of one node; it takes the place of a lock between Java threads.

Coroutines that wait for the lock get it in the order in which they came.
"""

from asyncio import Future
from collections import deque
from types import TracebackType

from cluster.host.host import Host


class Mutex:
    """A lock that one coroutine at a time can hold. The holder must not take the lock again."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._is_held = False
        self._waiters: deque[Future[None]] = deque()

    async def __aenter__(self) -> None:
        """Wait for the lock, and hold it."""
        if not self._is_held:
            self._is_held = True
            return
        waiter = self._host.create_future()
        self._waiters.append(waiter)
        # `__aexit__` passes the lock directly to the first waiter, and `_is_held` stays True. So no
        # other coroutine can take the lock before this waiter runs.
        await waiter

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Pass the lock to the first waiter, or release it."""
        if kind is GeneratorExit:
            return  # the node's process was killed, and the waiters with it
        if self._waiters:
            self._waiters.popleft().set_result(None)
        else:
            self._is_held = False
