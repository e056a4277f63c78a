"""Mailbox: passes requests from the sockets' threads to the run's loop, and the answers back.

A thread that has a request calls `ask`, which returns a future, and waits for this future. The run
takes one request after the other with `next`, in its own loop, and answers it. The answer becomes
the result of the future.

`ask` takes no lock, because a signal handler (of Ctrl-C) calls `ask`, too. A signal handler may
interrupt the main thread at any moment. If the main thread held the lock at this moment, the
handler would wait for the lock forever.

A mailbox is closed at first, until `open` is called, and again after `close`. While the mailbox is
closed, it refuses all requests but DownRequests. A DownRequest ends the run, and `conclude` answers
this request when the run has ended.
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
        """Answer the request, unless it has an answer already."""
        if not self.future.done():
            self.future.set_result(answer)


class OrderSource(Protocol):
    """The source of a run's orders: a Mailbox, or a list of orders in tests."""

    async def next(self, pause: Coroutine[object, object, None]) -> PendingRequest | None:
        """Return the next request, or None if `pause` (a sleep) ends before a request comes.

        The caller answers the request. But the caller must not answer a DownRequest, because the
        source answers it when the report is written.
        """

    def open(self) -> None:
        """Take requests of every kind from now on."""

    def close(self, reason: str) -> None:
        """Refuse all requests from now on, except DownRequest."""


class Mailbox:
    """Keeps requests in the order in which they came.

    Each request gets exactly one answer, at the latest by `conclude`.
    """

    def __init__(self) -> None:
        self._waiting: deque[PendingRequest] = deque()
        """Requests that the run has not taken yet."""
        self._ending: deque[PendingRequest] = deque()
        """DownRequests that wait for the end of the run. `conclude` answers them."""
        self._wake: tuple[asyncio.AbstractEventLoop, asyncio.Future[None]] | None = None
        """The loop in which `next` waits, and the future that ends the wait."""
        self._closed_because: str | None = "the cluster is starting"
        """Reason with which requests are refused; None while the mailbox is open."""
        self._conclusion: Answer | None = None
        """The answer to all DownRequests; None until the run has ended."""

    def ask(self, request: Request) -> "Future[Answer]":
        """Take a request, and return the future of its answer."""
        asked = PendingRequest(request)
        # Why no request is forgotten, without a lock:
        # This thread and `next`, in the thread of the loop, may run at the same time:
        # - This thread appends the request, and then reads `_wake`.
        # - `next` sets `_wake`, and then checks `_waiting`.
        # In whichever order these four steps happen, at least one of two things is true: `next`
        # sees the request, or this thread sees that `next` waits, and wakes it up. If both are
        # true, this does no harm.
        self._waiting.append(asked)
        if self._closed_because is not None:
            self._refuse_waiting()
        wake = self._wake  # read only once, because `next` may set it to None at any time
        if wake is not None:
            loop, woken = wake
            loop.call_soon_threadsafe(_wake_up, woken)
        return asked.future

    def open(self) -> None:
        """Take requests of every kind from now on."""
        self._closed_because = None

    def close(self, reason: str) -> None:
        """Refuse all requests from now on, except DownRequest."""
        self._closed_because = reason
        self._refuse_waiting()

    def conclude(self, answer: DownAnswer | OrderRefusal) -> None:
        """Answer every DownRequest from now on with `answer`, and refuse all other requests.

        DownRequests that wait already are answered, too. If `conclude` is called again, the first
        answer stays.
        """
        self._conclusion = self._conclusion or answer
        self.close("the cluster is down")

    async def next(self, pause: Coroutine[object, object, None]) -> PendingRequest | None:
        """Return the next request, or None if `pause` ends before a request comes."""
        loop = asyncio.get_running_loop()
        woken: asyncio.Future[None] = loop.create_future()
        pausing = asyncio.ensure_future(pause)
        # `_wake` must be set before `_waiting` is checked (see the race in `ask`).
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
            self._ending.append(asked)  # `conclude` will answer this request
        return asked

    def _refuse_waiting(self) -> None:
        """Refuse the requests that wait. If there is a conclusion, answer the DownRequests.

        Two threads may do this at the same time. After this thread has seen that a deque is not
        empty, the other thread may take the last entry. Then `popleft` raises IndexError here.
        """
        while self._waiting:
            try:
                asked = self._waiting.popleft()
            except IndexError:
                break
            if isinstance(asked.request, DownRequest):
                self._ending.append(asked)
            else:
                # If another thread has opened the mailbox in the meantime, the reason is None.
                problem = self._closed_because or "the cluster is down"
                asked.answer(OrderRefusal(kind=RefusalKind.ENDING, problems=(problem,)))
        while self._conclusion is not None and self._ending:
            try:
                self._ending.popleft().answer(self._conclusion)
            except IndexError:
                break


def _wake_up(woken: "asyncio.Future[None]") -> None:
    if not woken.done():  # several requests may come while `next` waits
        woken.set_result(None)
