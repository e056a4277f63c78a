"""How a client of the test lab repeats a request that fails, and how long it waits in between.

The waits grow, and are drawn at random. `ExponentialBackoff(host, 100, 1_000)` has 100 ms as its
first wait, and 1,000 ms as its longest. `backoff.delay_us(n)` draws a wait, in microseconds. With
`n` = 0 this is the wait after the first failure, with `n` = 1 the wait after the second, and so on.
"""

from itertools import pairwise

import pytest

from cluster.client.net.errors import ClientError
from cluster.client.net.futures import RequestFuture, Wakeup
from cluster.client.net.retries import ExponentialBackoff, with_retries
from tests.support.harness.virtual_hosts import HostLab


def test_backoff_doubles_with_a_fifth_of_jitter_up_to_the_maximum() -> None:
    """Each wait is twice the wait before. It is varied at random by a fifth, up to the maximum.

    Source: Kafka ExponentialBackoff.
    """
    backoff = ExponentialBackoff(HostLab().host("c"), 100, 1_000)
    for attempts, wait_us in ((0, 100_000), (1, 200_000), (2, 400_000), (3, 800_000)):
        delays = [backoff.delay_us(attempts) for _ in range(200)]
        assert min(delays) >= wait_us * 8 // 10
        assert max(delays) <= min(wait_us * 12 // 10, 1_000_000)
        assert len(set(delays)) > 50  # most of 200 drawn waits are different
    # With 70 doublings the wait would be far above the maximum, so it is varied around the maximum.
    # Of the drawn waits, those above the maximum are cut to it.
    delays = [backoff.delay_us(70) for _ in range(200)]
    assert 800_000 <= min(delays) < 1_000_000
    assert max(delays) == 1_000_000


def test_backoff_with_an_initial_wait_at_the_maximum_is_constant() -> None:
    """If the first wait is the longest one, Kafka does not vary it."""
    backoff = ExponentialBackoff(HostLab().host("c"), 1_000, 1_000)
    assert {backoff.delay_us(attempts) for attempts in range(5)} == {1_000_000}


@pytest.mark.parametrize("retriable", [True, False])
def test_retrying_repeats_only_retriable_errors_until_the_deadline(retriable: bool) -> None:
    """`with_retries` repeats a call that fails with a retriable error, until a deadline of 3 s.

    An error that is not retriable is raised at once. The clock of the host is simulated here, and
    begins at 0.
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
            await with_retries(host, backoff, deadline_us=3_000_000, attempt=fail)

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
    """A `set` that comes before the `wait` is not lost: it ends the next `wait` at once.

    A client waits for answers by `wakeup.wait`, and each answer that arrives leads to a call of
    `wakeup.set`. An answer may arrive while the client does something else.
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
    """When its request is complete, a RequestFuture calls its listeners in the order of adding.

    A listener that is added after the completion is called at once. The order matters for several
    commits that wait until the coordinator is found. As in Kafka, these commits must then be sent
    in the order in which they were made.
    """
    future: RequestFuture[int] = RequestFuture()
    calls: list[str] = []
    future.add_listener(lambda done: calls.append(f"a{done.value}"))
    future.add_listener(lambda done: calls.append(f"b{done.value}"))
    future.complete(1)
    future.add_listener(lambda done: calls.append(f"c{done.value}"))
    assert calls == ["a1", "b1", "c1"]
