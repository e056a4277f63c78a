"""`coordinator_crash` with Kafka's real default timeouts on a local Ray, five runs.

The figures are those of MEASURED_FAILOVER.md, section "kill", in its order, so that the two can be
read side by side.
"""

from pathlib import Path

import pytest

from chaos.checkers.base import CheckOutcome
from chaos.verdict import Verdict
from cluster.machine_files import start_ticks
from protocol.trace import TraceRow
from tests.support.acceptance import (
    DETECT_MAX_US,
    DETECT_MIN_US,
    RESUME_MAX_US,
    CoordinatorFailover,
    coordinator_failover,
    crash_shifted,
    lost_commits,
    play_ray,
)
from tests.support.soak import say, say_failovers

pytestmark = [
    pytest.mark.soak,
    pytest.mark.ray,
    pytest.mark.timeout(1_800),
    pytest.mark.usefixtures("local_ray"),
]

GROUP = "orders-readers"
RUNS = 5
SHIFT_MS = 400
"""Each run's fault fires this much later: together they cover one interval of the heartbeats."""


def test_five_kills_land_near_what_a_real_cluster_does(tmp_path: Path) -> None:
    """The issue's bounds hold in each run; the figures over all of them are for people."""
    failovers: list[CoordinatorFailover] = []
    for seed in range(RUNS):
        failover = one_run(tmp_path / f"run-{seed}", seed)
        resumes = failover.resumes_us()
        say(
            f"run {seed}: detect {failover.detect_us / 1e3:.0f} ms, publish "
            f"{failover.publish_us / 1e3:.0f} ms, load {failover.load_us / 1e3:.1f} ms of "
            f"{failover.records_loaded} records, loaded to last member's commit "
            f"{resumes[-1] / 1e3:.0f} ms, rebalances {failover.rebalances}"
        )
        failovers.append(failover)
    say_failovers(failovers)

    for failover in failovers:
        assert DETECT_MIN_US <= failover.detect_us <= DETECT_MAX_US
        assert failover.rebalances == 0
        assert len(failover.resumes_us()) == 12
        assert failover.resumes_us()[-1] <= RESUME_MAX_US
        for member in failover.members:
            assert len(member.identities) == 1
            assert set(member.answers_before_detection) == {failover.victim}


def one_run(run_dir: Path, seed: int) -> CoordinatorFailover:
    """Run the experiment, its fault a little later with each seed.

    Verdict, checks, the kill of the real process and the commits must be right.
    """
    experiment = crash_shifted(seed * SHIFT_MS)
    run_dir.mkdir()
    rows: list[TraceRow] = []
    results = play_ray(experiment, run_dir, seed=seed, observers=[rows.append])
    assert results.reasons == ()
    assert results.verdict is Verdict.PASS
    assert {report.outcome for report in results.checks} == {CheckOutcome.PASS}
    (fault,) = results.faults
    assert fault.pid is not None
    assert start_ticks(fault.pid) is None
    assert lost_commits(rows, experiment, GROUP) == []
    return coordinator_failover(rows, experiment, GROUP)
