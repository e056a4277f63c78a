"""Backoff and retries on the host's clock.

A backoff is made of its initial and its longest wait, in ms; `delay_us(n)` draws the wait after
n failures.
"""

from itertools import pairwise

import pytest

from cluster.client.net.errors import ClientError
from cluster.client.net.futures import RequestFuture, Wakeup
from cluster.client.net.retries import ExponentialBackoff, with_retries
from tests.support.harness.virtual_hosts import HostLab


def test_backoff_doubles_with_a_fifth_of_jitter_up_to_the_maximum() -> None:
    """Kafka ExponentialBackoff: the maximum is applied after the jitter, so no wait exceeds it."""
    backoff = ExponentialBackoff(HostLab().host("c"), 100, 1_000)
    for attempts, term_us in ((0, 100_000), (1, 200_000), (2, 400_000), (3, 800_000)):
        delays = [backoff.delay_us(attempts) for _ in range(200)]
        assert min(delays) >= term_us * 8 // 10
        assert max(delays) <= min(term_us * 12 // 10, 1_000_000)
        assert len(set(delays)) > 50  # of 200 drawn waits
    late = [backoff.delay_us(70) for _ in range(200)]
    assert 800_000 <= min(late) < max(late) == 1_000_000


def test_backoff_with_an_initial_wait_at_the_maximum_is_constant() -> None:
    """Kafka adds no jitter where the backoff cannot grow."""
    backoff = ExponentialBackoff(HostLab().host("c"), 1_000, 1_000)
    assert {backoff.delay_us(attempts) for attempts in range(5)} == {1_000_000}


@pytest.mark.parametrize("retriable", [True, False])
def test_retrying_repeats_only_retriable_errors_until_the_deadline(retriable: bool) -> None:
    """The deadline is on the host's clock: the machine's clock does not advance in virtual time."""
    lab = HostLab()
    host = lab.host("c")
    attempts: list[int] = []

    async def fail() -> None:
        attempts.append(host.now_us())
        raise ClientError("X", retriable=retriable)

    async def main() -> None:
        with pytest.raises(ClientError, match="X"):
            await with_retries(host, ExponentialBackoff(host, 100, 1_000), 3_000_000, fail)

    lab.run(main())
    if retriable:
        waits = [later - earlier for earlier, later in pairwise(attempts)]
        assert 80_000 <= waits[0] <= 120_000
        assert 160_000 <= waits[1] <= 240_000
        # The last attempt is made at the deadline.
        assert attempts[-1] == 3_000_000
    else:
        assert attempts == [0]


def test_wakeup_before_the_wait_ends_it_at_once() -> None:
    """An answer that arrived while the application was busy must not be missed."""
    lab = HostLab()
    host = lab.host("c")
    wakeup = Wakeup(host)

    async def main() -> int:
        wakeup.set()
        await wakeup.wait(None)
        await wakeup.wait(500)
        return host.now_us()

    assert lab.run(main()) == 500


def test_request_future_calls_its_listeners_in_order_and_later_ones_at_once() -> None:
    """Kafka: many commits may wait for one lookup and must be sent in order."""
    future: RequestFuture[int] = RequestFuture()
    seen: list[str] = []
    future.add_listener(lambda done: seen.append(f"a{done.value}"))
    future.add_listener(lambda done: seen.append(f"b{done.value}"))
    future.complete(1)
    future.add_listener(lambda done: seen.append(f"c{done.value}"))
    assert seen == ["a1", "b1", "c1"]
