"""Backoff and retries as in Kafka's clients, on the host's clock and from its random stream.

Other parts of this project use the library tenacity for retries. It cannot be used here, because it
takes its random numbers and the time from outside the host. Then a run could not be replayed. The
library is also slow, because it inspects the repeated function at each call.

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
"""A wait is doubled at most this often. This is far more than any setting needs."""


class ExponentialBackoff:
    """Computes waits between attempts: about `initial_ms`, then twice that, and so on to `max_ms`.

    Each wait is varied by up to 20 % at random. As in Kafka, if `initial_ms` is not below `max_ms`,
    every wait is exactly `initial_ms`.
    """

    def __init__(self, host: Host, initial_ms: int, max_ms: int) -> None:
        self._rng = host.rng
        self._initial_us = initial_ms * MS
        self._max_us = max_ms * MS

    def delay_us(self, attempts: int) -> int:
        """Return the wait after a failure; `attempts` is the number of failures in a row before it.

        With an initial wait of 100 ms, the result is 80 to 120 ms for 0, 160 to 240 ms for 1, and
        so on.
        """
        if self._initial_us >= self._max_us:
            return self._initial_us
        # The wait is `term_us` plus or minus 20 %, but at most `max_ms`.
        term_us = min(self._initial_us << min(attempts, _EXPONENT_MAX), self._max_us)
        spread_us = term_us * _JITTER_PERCENT // 100
        return min(term_us - spread_us + self._rng.randrange(2 * spread_us + 1), self._max_us)


def retry_backoff(host: Host, config: ConsumerConfig | ProducerConfig) -> ExponentialBackoff:
    """Return a backoff that grows from `retry.backoff.ms` to `retry.backoff.max.ms`."""
    return ExponentialBackoff(host, config.retry_backoff_ms, config.retry_backoff_max_ms)


async def with_retries(
    host: Host,
    backoff: ExponentialBackoff,
    deadline_us: int,
    attempt: Callable[[*Ts], Awaitable[T]],
    *args: *Ts,
) -> T:
    """Await `attempt(*args)`, repeated after retriable failures until `deadline_us`.

    As in Kafka's `Timer.sleep`, a sleep between two attempts ends at the deadline at the latest. So
    the last attempt may begin at the deadline; `attempt` must check the deadline itself.

    Raises: the error of the last attempt.
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
