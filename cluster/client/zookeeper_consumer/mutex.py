"""A lock of one program, as a Java object's monitor: whoever waits longest gets it next."""

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
        """Wait until nobody holds it, and hold it."""
        if not self._is_held:
            self._is_held = True
            return
        waiter = self._host.create_future()
        self._waiters.append(waiter)
        await waiter  # who lets go hands it over: it stays held

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Hand it to the first waiter, or let go."""
        if kind is GeneratorExit:
            return  # the process is dead, and so are those that wait
        if self._waiters:
            self._waiters.popleft().set_result(None)
        else:
            self._is_held = False
