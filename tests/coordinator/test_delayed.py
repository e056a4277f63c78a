"""A rebalance timeout of zero.

The stories of all timers are in scenarios/delayed.txt. BEHAVIOUR 3.4 is a section of
docs/kafka/BEHAVIOUR.md.
"""

import pytest

from tests.support.builders.requests import join_group
from tests.support.harness.coordinator_harness import CoordinatorHarness


@pytest.mark.parametrize("rebalance_timeout_ms", [0, -1])
def test_rebalance_timeout_of_zero_evicts_the_member_before_it_can_sync(
    rebalance_timeout_ms: int,
) -> None:
    """A member must send its SyncGroup within its rebalance timeout (BEHAVIOUR 3.4).

    A negative timeout counts as zero (BEHAVIOUR 0.1).
    """
    h = CoordinatorHarness()
    # Before version 4 (KIP-394) a client joins without a member id.
    h.submit(join_group(rebalance_timeout_ms=rebalance_timeout_ms), version=3)
    # The initial rebalance delay ends, and with it the join phase.
    h.advance(0)
    assert h.summary().members == ()
