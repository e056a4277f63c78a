"""A lock within one process, in place of a Java object's monitor. Waiters get it in order."""

from asyncio import Future
from collections import deque
from types import TracebackType

from cluster.host.host import Host


class Mutex:
    """Held by one coroutine at a time; not reentrant."""

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
        # `__aexit__` passes the lock to this waiter without a release. After a release, a coroutine
        # that came later could take the lock before this waiter runs.
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
