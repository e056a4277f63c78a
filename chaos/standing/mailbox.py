"""The way of a request from a socket's thread to the run's loop, and of the answer back.

`ask` may be called from any thread, and from a signal handler: it takes no lock that the main
thread could hold. The run takes one request after the other with `next`, in its own loop.
"""

import asyncio
from collections import deque
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Protocol

from chaos.standing.messages import (
    Answer,
    DownAnswer,
    DownRequest,
    OrderRefusal,
    RefusalKind,
    Request,
)


class PendingRequest:
    """A request that waits for its answer."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.future: Future[Answer] = Future()

    def answer(self, answer: Answer) -> None:
        """Answer, unless it is answered."""
        if not self.future.done():
            self.future.set_result(answer)


class OrderSource(Protocol):
    """Where a run gets its orders from."""

    async def next(self, pause: Coroutine[object, object, None]) -> PendingRequest | None:
        """Return the next request; None if none came before `pause` had ended.

        A request that ends the run is answered by the source itself.
        """

    def open(self) -> None:
        """Take requests of every kind from now on."""

    def close(self, reason: str) -> None:
        """Refuse all requests from now on, those that end the run aside."""


class Mailbox:
    """Requests in the order in which they came.

    Invariant: each request is answered once, at the latest by `conclude`.
    """

    def __init__(self) -> None:
        self._waiting: deque[PendingRequest] = deque()
        self._ending: deque[PendingRequest] = deque()
        self._wake: tuple[asyncio.AbstractEventLoop, asyncio.Future[None]] | None = None
        self._closed_because: str | None = "the cluster is starting"
        self._conclusion: Answer | None = None

    def ask(self, request: Request) -> "Future[Answer]":
        """Take a request; its answer comes with the future."""
        asked = PendingRequest(request)
        self._waiting.append(asked)
        # The request is there before the loop is looked at: either `next` sees the request, or this
        # sees that `next` waits.
        if self._closed_because is not None:
            self._refuse_waiting()
        wake = self._wake
        if wake is not None:
            loop, woken = wake
            loop.call_soon_threadsafe(_set, woken)
        return asked.future

    def open(self) -> None:
        """Take requests of every kind from now on."""
        self._closed_because = None

    def close(self, reason: str) -> None:
        """Refuse all requests from now on, those that end the run aside."""
        self._closed_because = reason
        self._refuse_waiting()

    def conclude(self, answer: DownAnswer | OrderRefusal) -> None:
        """Answer every request that is left, and all that come; the first conclusion stays."""
        self._conclusion = self._conclusion or answer
        self.close("the cluster is down")

    async def next(self, pause: Coroutine[object, object, None]) -> PendingRequest | None:
        """Return the next request; None if none came before `pause` had ended."""
        loop = asyncio.get_running_loop()
        woken: asyncio.Future[None] = loop.create_future()
        pausing = asyncio.ensure_future(pause)
        self._wake = (loop, woken)
        try:
            if not self._waiting:
                await asyncio.wait((woken, pausing), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._wake = None
            woken.cancel()
            pausing.cancel()
        if not self._waiting:
            return None
        asked = self._waiting.popleft()
        if isinstance(asked.request, DownRequest):
            self._ending.append(asked)  # its answer is the conclusion
        return asked

    def _refuse_waiting(self) -> None:
        """Answer what waits; requests that end the run wait for its conclusion."""
        while self._waiting:
            try:
                asked = self._waiting.popleft()
            except IndexError:  # another thread was faster
                break
            if isinstance(asked.request, DownRequest):
                self._ending.append(asked)
            else:
                problem = self._closed_because or "the cluster is down"
                asked.answer(OrderRefusal(kind=RefusalKind.ENDING, problems=(problem,)))
        while self._conclusion is not None and self._ending:
            try:
                self._ending.popleft().answer(self._conclusion)
            except IndexError:
                break


def _set(woken: "asyncio.Future[None]") -> None:
    if not woken.done():
        woken.set_result(None)
