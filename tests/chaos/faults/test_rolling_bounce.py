"""The experiment `rolling_bounce`: its callbacks and ownership changes, for any seed.

A group of twelve members reads twelve partitions. Six of the members leave and join again, one
after the other. A callback tells a member's application which partitions the member was assigned,
or which were revoked. A partition is handed out when it gets another owner.
"""

import pytest

from chaos.experiment.loader import load_experiment
from results_schema.results import Verdict
from tests.support.worlds.acceptance import play_virtual
from tests.support.worlds.rolling_bounce import rolling_bounce_of

LONGEST_US = 4_000_000
"""Limit of one change: a heartbeat interval, the start of a consumer, and slow messages."""


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_twelve_partitions_change_owners_in_each_leave_and_join(seed: int) -> None:
    """138 partitions-assigned callbacks and 138 revoked ones are made, as in a real cluster.

    In each of the 6 leaves the other 11 members have one of each kind, in each of the 6 joins all
    12 members: 6 * (11 + 12) = 138. The measurement is in section bounce of
    docs/kafka/MEASURED_BOUNCE.md.
    """
    run = play_virtual(
        load_experiment("rolling_bounce").experiment, seed=seed, trace_messages=False
    )
    bounce = rolling_bounce_of(run.rows, "orders-readers")

    assert run.results.verdict == Verdict.PASS
    assert (bounce.assigned, bounce.revoked) == (138, 138)
    assert [change.handed_out for change in (*bounce.leaves, *bounce.joins)] == [12] * 12
    assert (len(bounce.leaves), len(bounce.joins)) == (6, 6)
    assert all(0 < change.settled_us < LONGEST_US for change in (*bounce.leaves, *bounce.joins))
    assert bounce.commit_errors == {}
