"""How a client of the test lab repeats a request that fails, and how long it waits in between.

The waits grow, and are drawn at random. `ExponentialBackoff(host, 100, 1_000)` has 100 ms as its
first wait, and 1,000 ms as its longest. `backoff.delay_us(n)` draws the wait, in microseconds,
after n + 1 failures in a row.
"""

from itertools import pairwise

import pytest

from cluster.client.net.errors import ClientError
from cluster.client.net.futures import RequestFuture, Wakeup
from cluster.client.net.retries import ExponentialBackoff, with_retries
from tests.support.harness.virtual_hosts import HostLab


def test_backoff_doubles_with_a_fifth_of_jitter_up_to_the_maximum() -> None:
    """Each wait is twice the one before, varied at random by a fifth, and cut to the maximum.

    Source: Kafka ExponentialBackoff.
    """
    backoff = ExponentialBackoff(HostLab().host("c"), 100, 1_000)
    for attempts, wait_us in ((0, 100_000), (1, 200_000), (2, 400_000), (3, 800_000)):
        delays = [backoff.delay_us(attempts) for _ in range(200)]
        assert min(delays) >= wait_us * 8 // 10
        assert max(delays) <= min(wait_us * 12 // 10, 1_000_000)
        assert len(set(delays)) > 50  # most of 200 drawn waits are different
    # After 70 failures the wait would be far above the maximum, if it were doubled each time.
    delays = [backoff.delay_us(70) for _ in range(200)]
    assert 800_000 <= min(delays) < 1_000_000
    assert max(delays) == 1_000_000


def test_backoff_with_an_initial_wait_at_the_maximum_is_constant() -> None:
    """If the first wait is the longest one, Kafka does not vary it."""
    backoff = ExponentialBackoff(HostLab().host("c"), 1_000, 1_000)
    assert {backoff.delay_us(attempts) for attempts in range(5)} == {1_000_000}


@pytest.mark.parametrize("retriable", [True, False])
def test_retrying_repeats_only_retriable_errors_until_the_deadline(retriable: bool) -> None:
    """`with_retries` repeats a call until 3 s have passed here, if its error may pass.

    Any other error is raised at once. The time is that of the host's clock, which is simulated in
    this test.
    """
    lab = HostLab()
    host = lab.host("c")
    attempt_times: list[int] = []

    async def fail() -> None:
        attempt_times.append(host.now_us())
        raise ClientError("X", retriable=retriable)

    async def main() -> None:
        backoff = ExponentialBackoff(host, 100, 1_000)
        with pytest.raises(ClientError, match="X"):
            await with_retries(host, backoff, 3_000_000, fail)

    lab.run(main())
    if retriable:
        waits = [later - earlier for earlier, later in pairwise(attempt_times)]
        assert 80_000 <= waits[0] <= 120_000
        assert 160_000 <= waits[1] <= 240_000
        # The last wait is shortened, so that the last attempt is at the deadline itself.
        assert attempt_times[-1] == 3_000_000
    else:
        assert attempt_times == [0]


def test_wakeup_before_the_wait_ends_it_at_once() -> None:
    """A client waits for answers by `wakeup.wait`. An answer calls `wakeup.set`.

    The answer may come while the client does something else, so its call must not be lost.
    """
    lab = HostLab()
    host = lab.host("c")
    wakeup = Wakeup(host)

    async def main() -> int:
        wakeup.set()
        await wakeup.wait(None)  # without `set` this would never end
        await wakeup.wait(500)  # there is no second `set`, so this takes all of its 500 us
        return host.now_us()

    assert lab.run(main()) == 500


def test_request_future_calls_its_listeners_in_order_and_later_ones_at_once() -> None:
    """A RequestFuture calls its listeners in their order when its request is complete.

    The order matters: several commits may wait until the coordinator is found. Then they must be
    sent in the order in which they were made, as in Kafka.
    """
    future: RequestFuture[int] = RequestFuture()
    calls: list[str] = []
    future.add_listener(lambda done: calls.append(f"a{done.value}"))
    future.add_listener(lambda done: calls.append(f"b{done.value}"))
    future.complete(1)
    future.add_listener(lambda done: calls.append(f"c{done.value}"))
    assert calls == ["a1", "b1", "c1"]
