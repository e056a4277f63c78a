"""Backoff and retries as in Kafka's clients, on the host's clock and from its random stream.

A backoff is the wait before an attempt is repeated. Jitter is a random change of this wait. The
library tenacity, which other parts of this project use, is not used here. It inspects the attempted
function at each call, which costs time. Its jitter uses random numbers of its own, and its
`stop_after_delay` uses a clock of its own, so that a run could not be replayed.
Source: Kafka ExponentialBackoff (base 2, 20 % jitter, capped after the jitter).
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar, TypeVarTuple

from cluster.client.net.errors import ClientError
from cluster.host.host import Host
from protocol.config import ConsumerConfig, ProducerConfig

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

MS = 1_000
"""Microseconds in a millisecond."""

_JITTER_PERCENT = 20
_EXPONENT_MAX = 62
"""Largest number of doublings of a wait. No setting allows more."""


class ExponentialBackoff:
    """Wait before the next attempt: doubles from `initial_ms` up to `max_ms`.

    Units: settings in milliseconds, results in microseconds. If the initial wait is at or above the
    maximum, waits never grow and have no jitter, as in Kafka.
    """

    def __init__(self, host: Host, initial_ms: int, max_ms: int) -> None:
        self._rng = host.rng
        self._initial_us = initial_ms * MS
        self._max_us = max_ms * MS

    def delay_us(self, attempts: int) -> int:
        """Return the wait before the next attempt: doubled `attempts` times, then varied by 20 %.

        `attempts` is the number of failures in a row, without the last one.
        """
        if self._initial_us >= self._max_us:
            return self._initial_us
        # The doubled wait, plus or minus 20 %.
        term_us = min(self._initial_us << min(attempts, _EXPONENT_MAX), self._max_us)
        spread_us = term_us * _JITTER_PERCENT // 100
        return min(term_us - spread_us + self._rng.randrange(2 * spread_us + 1), self._max_us)


def retry_backoff(host: Host, config: ConsumerConfig | ProducerConfig) -> ExponentialBackoff:
    """Return the backoff of `retry.backoff.ms` up to `retry.backoff.max.ms`."""
    return ExponentialBackoff(host, config.retry_backoff_ms, config.retry_backoff_max_ms)


async def with_retries(
    host: Host,
    backoff: ExponentialBackoff,
    deadline_us: int,
    attempt: Callable[[*Ts], Awaitable[T]],
    *args: *Ts,
) -> T:
    """Await `attempt(*args)`, repeated after retriable failures until `deadline_us`.

    A sleep ends at the deadline at the latest, as in Kafka's `Timer.sleep`. The last attempt may
    begin at the deadline. `attempt` must check the deadline itself.
    Raises: the last attempt's own error.
    """
    failures = 0
    while True:
        try:
            return await attempt(*args)
        except ClientError as error:
            if not error.retriable:
                raise
            # The backoff is drawn before the check of the deadline, so that the number of draws
            # does not depend on the time.
            delay_us = backoff.delay_us(failures)
            if host.now_us() >= deadline_us:
                raise
        failures += 1
        await host.sleep(max(0, min(delay_us, deadline_us - host.now_us())))
