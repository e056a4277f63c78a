"""A rebalance timeout of zero.

The stories of all timers are in scenarios/delayed.txt. Numbers such as 3.4 are sections of
docs/kafka/BEHAVIOUR.md.
"""

import pytest

from protocol.ids import RequestId
from tests.support.builders.requests import (
    join_group,
)
from tests.support.harness.coordinator_harness import CoordinatorHarness

REBALANCE_MS = 30_000


def join_v3(h: CoordinatorHarness, *, rebalance_timeout_ms: int = REBALANCE_MS) -> RequestId:
    """Let a new member join without a member id, as clients did before KIP-394 (version 4)."""
    return h.submit(join_group(rebalance_timeout_ms=rebalance_timeout_ms), version=3)


# -- the delayed sync (BEHAVIOUR 3.4) --


@pytest.mark.parametrize("rebalance_timeout_ms", [0, -1])
def test_rebalance_timeout_of_zero_evicts_the_member_before_it_can_sync(
    rebalance_timeout_ms: int,
) -> None:
    """A member that sends no SyncGroup in time is removed, here as soon as the join phase ends.

    The time is the member's rebalance timeout.

    A negative timeout counts as zero (BEHAVIOUR 0.1).
    """
    h = CoordinatorHarness()
    join_v3(h, rebalance_timeout_ms=rebalance_timeout_ms)
    # The initial rebalance delay ends, and with it the join phase.
    h.advance(0)
    assert h.summary().members == ()
