"""A member whose rebalance timeout is zero.

The file scenarios/delayed.txt shows what happens when the other timers of a group fire. BEHAVIOUR
3.4 is a section of docs/kafka/BEHAVIOUR.md.
"""

import pytest

from tests.support.builders.requests import join_group
from tests.support.harness.coordinator_harness import CoordinatorHarness


@pytest.mark.parametrize("rebalance_timeout_ms", [0, -1])
def test_rebalance_timeout_of_zero_evicts_the_member_before_it_can_sync(
    rebalance_timeout_ms: int,
) -> None:
    """A member must send its SyncGroup within its rebalance timeout (BEHAVIOUR 3.4).

    If this timeout is zero, the member is removed as soon as the join phase ends. A negative
    timeout counts as zero (BEHAVIOUR 0.1).
    """
    h = CoordinatorHarness()
    # Before version 4 (KIP-394) a client need not fetch a member id before it joins.
    h.submit(join_group(rebalance_timeout_ms=rebalance_timeout_ms), version=3)
    h.advance(0)  # the initial rebalance delay is 0, so this ends the join phase
    assert h.summary().members == ()
