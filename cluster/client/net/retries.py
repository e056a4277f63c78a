"""Backoff as Kafka's clients do it, and tenacity on the host's clock.

tenacity's own jitter draws from the global generator and its `stop_after_delay` reads the machine's
clock: both would break replay. Here the wait draws from the host's stream and the stop asks the
host. Source: Kafka ExponentialBackoff (base 2, 20 % jitter, capped after the jitter).
"""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, TypeVarTuple

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception
from tenacity.wait import wait_base

from cluster.client.net.errors import ClientError
from cluster.host.host import Host
from protocol.config import ConsumerConfig, ProducerConfig

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

MS = 1_000
"""Microseconds in a millisecond."""

_JITTER_PERCENT = 20
_MILLION = 1_000_000
_EXPONENT_MAX = 62
"""More doublings than any setting allows; it bounds the shift."""


class ExponentialBackoff:
    """How long to wait before the next attempt: doubling from `initial_ms` to `max_ms`.

    Units: settings in milliseconds, results in microseconds. An initial backoff at or above the
    maximum never grows and has no jitter, as in Kafka.
    """

    def __init__(self, host: Host, initial_ms: int, max_ms: int) -> None:
        self._rng = host.rng
        self._initial_us = initial_ms * MS
        self._max_us = max_ms * MS

    def delay_us(self, attempts: int) -> int:
        """Return the wait after `attempts` earlier failures, counted from 0."""
        if self._initial_us >= self._max_us:
            return self._initial_us
        term_us = min(self._initial_us << min(attempts, _EXPONENT_MAX), self._max_us)
        spread_us = term_us * _JITTER_PERCENT // 100
        return min(term_us - spread_us + self._rng.randrange(2 * spread_us + 1), self._max_us)


def retry_backoff(host: Host, config: ConsumerConfig | ProducerConfig) -> ExponentialBackoff:
    """Return the backoff of `retry.backoff.ms` up to `retry.backoff.max.ms`."""
    return ExponentialBackoff(host, config.retry_backoff_ms, config.retry_backoff_max_ms)


class WaitKafkaBackoff(wait_base):
    """tenacity's wait: an ExponentialBackoff by the number of attempts so far.

    `attempts_before` were made before tenacity's own first one.
    """

    def __init__(self, backoff: ExponentialBackoff, attempts_before: int = 0) -> None:
        self._backoff = backoff
        self._attempts_before = attempts_before

    def __call__(self, retry_state: RetryCallState) -> float:
        """Return the wait in seconds, exact to the microsecond."""
        attempts = self._attempts_before + retry_state.attempt_number
        return self._backoff.delay_us(attempts - 1) / _MILLION


def stop_at(host: Host, deadline_us: int) -> Callable[[RetryCallState], bool]:
    """Return tenacity's stop: give up once the host's clock shows `deadline_us`."""

    def stop(_retry_state: RetryCallState) -> bool:
        return host.now_us() >= deadline_us

    return stop


async def with_retries(
    host: Host,
    backoff: ExponentialBackoff,
    deadline_us: int,
    attempt: Callable[[*Ts], Awaitable[T]],
    *args: *Ts,
) -> T:
    """Await `attempt(*args)`, repeating what fails retriably until `deadline_us`.

    Sleeps end at the deadline at the latest, as Kafka's `Timer.sleep`; an attempt may then still
    begin and must see for itself that the time is over.
    Raises: the last attempt's own error.
    """
    # The first attempt goes past tenacity, which takes longer than ten events of the loop even
    # where there is nothing to retry; most polls of a consumer come here.
    try:
        return await attempt(*args)
    except ClientError as error:
        if not error.retriable:
            raise
        delay_us = backoff.delay_us(0)
        if host.now_us() >= deadline_us:
            raise
    await host.sleep(max(0, min(delay_us, deadline_us - host.now_us())))
    answer: T = await _retrying(host, backoff, deadline_us)(attempt, *args)
    return answer


def _retrying(host: Host, backoff: ExponentialBackoff, deadline_us: int) -> AsyncRetrying:
    """Return a tenacity controller that goes on after one failed attempt."""

    async def sleep(seconds: float) -> None:
        delay_us = round(seconds * _MILLION)
        await host.sleep(max(0, min(delay_us, deadline_us - host.now_us())))

    # tenacity types `sleep` as returning None or an awaitable; Any is its own declared return type.
    sleeper: Callable[[int | float], Any] = sleep
    return AsyncRetrying(
        sleep=sleeper,
        wait=WaitKafkaBackoff(backoff, attempts_before=1),
        stop=stop_at(host, deadline_us),
        retry=retry_if_exception(_is_retriable),
        reraise=True,
    )


def _is_retriable(error: BaseException) -> bool:
    return isinstance(error, ClientError) and error.retriable
