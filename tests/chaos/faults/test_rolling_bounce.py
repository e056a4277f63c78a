"""The experiment `rolling_bounce` costs a group as many rebalance callbacks as a real Kafka does.

Twelve members read twelve partitions. Six of the members leave and join again, one after the other,
as when a new version of an application is deployed. A consumer has two rebalance callbacks: one for
partitions that it must give up, and one for partitions that it gets. The number of calls does not
depend on the seed.
"""

import pytest

from chaos.experiment.loader import load_experiment
from results_schema.results import Verdict
from tests.support.worlds.acceptance import play_virtual
from tests.support.worlds.rolling_bounce import rolling_bounce_of

LONGEST_US = 4_000_000
"""After a leave or a join, all partitions must be assigned again within this time.

4 s are enough for a heartbeat interval, the start of a consumer, and slow messages.
"""


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_twelve_partitions_change_owners_in_each_leave_and_join(seed: int) -> None:
    """In each leave and each join, all partitions are revoked and assigned again.

    A leave calls both callbacks of each of the 11 members that stay. A join calls both callbacks of
    all 12 members. A real cluster had the same number of calls (section bounce of
    docs/kafka/MEASURED_BOUNCE.md).
    """
    run = play_virtual(
        load_experiment("rolling_bounce").experiment, seed=seed, trace_messages=False
    )
    bounce = rolling_bounce_of(run.rows, "orders-readers")

    assert run.results.verdict == Verdict.PASS
    callbacks = 6 * 11 + 6 * 12  # six leaves and six joins
    assert (bounce.assigned, bounce.revoked) == (callbacks, callbacks)
    assert (len(bounce.leaves), len(bounce.joins)) == (6, 6)
    for change in (*bounce.leaves, *bounce.joins):
        assert change.handed_out == 12  # partitions
        assert 0 < change.settled_us < LONGEST_US
    assert bounce.commit_errors == {}
