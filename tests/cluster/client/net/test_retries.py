"""The waits between attempts (backoff), and retries until a deadline on the host's clock.

A backoff is made with its first and its longest wait, in milliseconds. `delay_us(n)` draws the wait
after n failures.
"""

from itertools import pairwise

import pytest

from cluster.client.net.errors import ClientError
from cluster.client.net.futures import RequestFuture, Wakeup
from cluster.client.net.retries import ExponentialBackoff, with_retries
from tests.support.harness.virtual_hosts import HostLab


def test_backoff_doubles_with_a_fifth_of_jitter_up_to_the_maximum() -> None:
    """Each wait varies at random by a fifth. Then it is cut to the maximum, as in Kafka.

    Source: Kafka ExponentialBackoff.
    """
    backoff = ExponentialBackoff(HostLab().host("c"), 100, 1_000)
    for attempts, wait_us in ((0, 100_000), (1, 200_000), (2, 400_000), (3, 800_000)):
        delays = [backoff.delay_us(attempts) for _ in range(200)]
        assert min(delays) >= wait_us * 8 // 10
        assert max(delays) <= min(wait_us * 12 // 10, 1_000_000)
        assert len(set(delays)) > 50  # most of 200 drawn waits are different
    # After 70 failures the doubled wait would be far above the maximum.
    late = [backoff.delay_us(70) for _ in range(200)]
    assert 800_000 <= min(late) < 1_000_000
    assert max(late) == 1_000_000


def test_backoff_with_an_initial_wait_at_the_maximum_is_constant() -> None:
    """If the first wait is the longest one, Kafka does not vary it."""
    backoff = ExponentialBackoff(HostLab().host("c"), 1_000, 1_000)
    assert {backoff.delay_us(attempts) for attempts in range(5)} == {1_000_000}


@pytest.mark.parametrize("retriable", [True, False])
def test_retrying_repeats_only_retriable_errors_until_the_deadline(retriable: bool) -> None:
    """`with_retries` repeats a call after retriable errors, until a deadline of 3 s here.

    The deadline is a time of the host's clock. A run in virtual time must not use the machine's
    clock.
    """
    lab = HostLab()
    host = lab.host("c")
    attempts: list[int] = []

    async def fail() -> None:
        attempts.append(host.now_us())
        raise ClientError("X", retriable=retriable)

    async def main() -> None:
        backoff = ExponentialBackoff(host, 100, 1_000)
        with pytest.raises(ClientError, match="X"):
            await with_retries(host, backoff, 3_000_000, fail)

    lab.run(main())
    if retriable:
        waits = [later - earlier for earlier, later in pairwise(attempts)]
        assert 80_000 <= waits[0] <= 120_000
        assert 160_000 <= waits[1] <= 240_000
        # The last attempt is at the deadline itself.
        assert attempts[-1] == 3_000_000
    else:
        assert attempts == [0]


def test_wakeup_before_the_wait_ends_it_at_once() -> None:
    """A wakeup before `wait` counts, because an answer may arrive while the application is busy."""
    lab = HostLab()
    host = lab.host("c")
    wakeup = Wakeup(host)

    async def main() -> int:
        wakeup.set()
        await wakeup.wait(None)  # ends at once; None would wait for ever
        await wakeup.wait(500)  # without another wakeup this takes all of its 500 us
        return host.now_us()

    assert lab.run(main()) == 500


def test_request_future_calls_its_listeners_in_order_and_later_ones_at_once() -> None:
    """A RequestFuture calls its listeners in their order when its request is complete.

    Many commits may wait for one lookup, and must then be sent in order, as in Kafka.
    """
    future: RequestFuture[int] = RequestFuture()
    seen: list[str] = []
    future.add_listener(lambda done: seen.append(f"a{done.value}"))
    future.add_listener(lambda done: seen.append(f"b{done.value}"))
    future.complete(1)
    future.add_listener(lambda done: seen.append(f"c{done.value}"))
    assert seen == ["a1", "b1", "c1"]
