"""`coordinator_crash` in virtual time against the acceptance bounds, computed from its rows.

MEASURED_FAILOVER kill is the behaviour of a real cluster; nothing here uses the pipeline's tables
or the checkers' models.
"""

from collections import Counter

import pytest

from chaos.experiment.loader import load_experiment
from protocol.trace import TraceKind
from results_schema.results import CheckOutcome, Verdict
from tests.support.worlds.acceptance import (
    DETECT_MAX_US,
    DETECT_MIN_US,
    RESUME_MAX_US,
    CoordinatorFailover,
    VirtualRun,
    coordinator_failover,
    lost_commits,
    play_virtual,
)

pytestmark = pytest.mark.slow

GROUP = "orders-readers"
SEEDS = (7, 0, 1)


@pytest.fixture(scope="module", params=SEEDS, ids=lambda seed: f"seed {seed}")
def run(request: pytest.FixtureRequest) -> VirtualRun:
    """Play one run for each seed; every test of this file reads it."""
    seed: int = request.param
    return play_virtual(load_experiment("coordinator_crash").experiment, seed=seed)


@pytest.fixture(scope="module")
def failover(run: VirtualRun) -> CoordinatorFailover:
    return coordinator_failover(run.rows, run.experiment, GROUP)


def test_run_passes_and_every_check_that_applies_judges(run: VirtualRun) -> None:
    """Not judged: the old leader is dead, so no append has an older epoch; it is back in time."""
    assert run.results.reasons == ()
    assert run.results.verdict is Verdict.PASS
    assert {report.check: report.outcome for report in run.results.checks} == {
        "fencing": CheckOutcome.NOTHING_SEEN,
        "durable_commits": CheckOutcome.PASS,
        "generations": CheckOutcome.PASS,
        "ownership": CheckOutcome.PASS,
        "liveness": CheckOutcome.PASS,
        "recovery": CheckOutcome.NOTHING_SEEN,
        "readers": CheckOutcome.PASS,
        "answers": CheckOutcome.PASS,
        "administration": CheckOutcome.NOTHING_SEEN,
        "stability": CheckOutcome.PASS,
        "needless_rebalance": CheckOutcome.PASS,
        "processing": CheckOutcome.PASS,
    }


def test_kill_is_detected_when_the_session_ends(failover: CoordinatorFailover) -> None:
    """The session runs from the last heartbeat, which was up to 2 s before the kill."""
    assert DETECT_MIN_US <= failover.detect_us <= DETECT_MAX_US


def test_successor_is_another_broker_and_loads_soon(failover: CoordinatorFailover) -> None:
    """MEASURED_FAILOVER kill: elected after 42 to 142 ms, loaded after 8 to 142 ms more."""
    assert failover.successor != failover.victim
    assert 0 < failover.publish_us < 200_000
    assert 0 < failover.load_us < 200_000
    assert failover.records_loaded > 0


def test_members_notice_a_kill_by_their_sockets(failover: CoordinatorFailover) -> None:
    """MEASURED_FAILOVER kill: 27 ms at the median, 58 ms at most; no timeout is involved."""
    notices = failover.notices_us()
    assert len(notices) == len(failover.members) == 12
    assert notices[-1] < 500_000


def test_before_detection_every_answer_names_the_dead_broker(
    run: VirtualRun, failover: CoordinatorFailover
) -> None:
    """MEASURED_FAILOVER 2: until the fencing every broker's metadata names the dead one."""
    for member in failover.members:
        assert set(member.answers_before_detection) == {failover.victim}, member.node
    answers = [
        row
        for row in run.rows
        if row.kind == TraceKind.RESPONSE_RECEIVED
        and row.api == "FindCoordinator"
        and row.group == GROUP
        and failover.killed_us < row.time_us <= failover.fenced_us
    ]
    assert {row.error for row in answers} == {"NONE"}
    asked = Counter(row.node for row in answers)
    assert asked == {
        member.node: len(member.answers_before_detection) for member in failover.members
    }


def test_failover_keeps_members_and_generation_without_a_rebalance(
    failover: CoordinatorFailover,
) -> None:
    """They are loaded from the log; each member's first heartbeat or commit is accepted."""
    assert failover.rebalances == 0
    members = {}
    for member in failover.members:
        (identity,) = member.identities
        members[member.node] = identity
    member_ids, generations = zip(*members.values(), strict=True)
    assert len(set(member_ids)) == 12
    assert set(generations) == {failover.generation_loaded}
    assert sorted(failover.members_loaded) == sorted(str(member_id) for member_id in member_ids)


def test_every_member_commits_again_soon_after_the_load(failover: CoordinatorFailover) -> None:
    """Measured: 0.25 s at most; the client's backoff allows 1.2 s."""
    resumes = failover.resumes_us()
    assert len(resumes) == 12
    assert 0 < resumes[0] <= resumes[-1] <= RESUME_MAX_US


def test_no_acknowledged_commit_is_lost(run: VirtualRun) -> None:
    """The offset read at the end is not older than any acknowledged one."""
    assert lost_commits(run.rows, run.experiment, GROUP) == []
