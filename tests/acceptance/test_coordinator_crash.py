"""The failover of a killed coordinator takes as long as on a real cluster.

The experiment `coordinator_crash` kills the coordinator (the victim) of a group with 12 members.
Another broker, the successor, takes over in three phases:

- detect: from the kill until the controller fences the victim
- publish: until the successor knows that it is the coordinator
- load: until the successor has read the group from its log

The bounds come from measurements of a real cluster: (MEASURED_FAILOVER kill) is the column `kill`
of the table in docs/kafka/MEASURED_FAILOVER.md, and (MEASURED_FAILOVER 2) is point 2 of that page.

The tests compute all times from the trace of a run in virtual time, that is, from the list of all
recorded events. They use neither the tables of the analysis nor the checks of the run. So an error
in the analysis or in a check shows here.
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
"""Seeds of the played runs. Other seeds would do, too."""


@pytest.fixture(scope="module", params=SEEDS, ids=lambda seed: f"seed {seed}")
def run(request: pytest.FixtureRequest) -> VirtualRun:
    """Play one run for each seed; every test of this file reads it."""
    seed: int = request.param
    return play_virtual(load_experiment("coordinator_crash").experiment, seed=seed)


@pytest.fixture(scope="module")
def failover(run: VirtualRun) -> CoordinatorFailover:
    """Return how the failover of `run` went, and what each member noticed of it."""
    return coordinator_failover(run.rows, run.experiment, GROUP)


def test_run_passes_and_every_check_that_applies_judges(run: VirtualRun) -> None:
    """Each check judges one promise of Kafka. Three checks have nothing to judge (NOTHING_SEEN).

    - `fencing`: the old leader is dead, so no append comes from an older leader.
    - `recovery`: the killed broker is back in time.
    - `administration`: the experiment has no order of an administrator.
    """
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
    """The controller fences the victim when the victim's session ends.

    A session ends 9 s after the last heartbeat. This heartbeat was up to 2 s before the kill, so
    the kill is detected after 7 to 9 s.
    """
    assert DETECT_MIN_US <= failover.detect_us <= DETECT_MAX_US


def test_successor_is_another_broker_and_loads_soon(failover: CoordinatorFailover) -> None:
    """The phases publish and load may take up to 200 ms each.

    In a real cluster, publish took 42 to 142 ms, and load took 8 to 142 ms (MEASURED_FAILOVER
    kill).
    """
    assert failover.successor != failover.victim
    assert 0 < failover.publish_us < 200_000
    assert 0 < failover.load_us < 200_000
    assert failover.records_loaded > 0


def test_members_notice_a_kill_by_their_sockets(failover: CoordinatorFailover) -> None:
    """A kill closes the sockets, so no member has to wait for a timeout.

    Half of the real members noticed the kill within 27 ms, and all of them within 58 ms
    (MEASURED_FAILOVER kill).
    """
    notices = failover.notices_us()  # in ascending order
    assert len(notices) == len(failover.members) == 12
    assert notices[-1] < 500_000


def test_before_detection_every_answer_names_the_dead_broker(
    run: VirtualRun, failover: CoordinatorFailover
) -> None:
    """Until the controller fences the dead broker, all brokers still name it as the coordinator.

    They answer from their metadata, which only the controller changes (MEASURED_FAILOVER 2).
    """
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
    answers_by_member = Counter(row.node for row in answers)
    assert answers_by_member == {
        member.node: len(member.answers_before_detection) for member in failover.members
    }


def test_failover_keeps_members_and_generation_without_a_rebalance(
    failover: CoordinatorFailover,
) -> None:
    """The new coordinator loads members and generation from the log, so it accepts the members.

    `member.identities` has the pairs of member id and generation that the member used.
    """
    assert failover.rebalances == 0
    member_ids = set()
    for member in failover.members:
        # There is only one pair, so the member kept it through the whole failover.
        ((member_id, generation),) = member.identities
        assert generation == failover.generation_loaded
        member_ids.add(str(member_id))
    assert len(member_ids) == 12
    assert sorted(failover.members_loaded) == sorted(member_ids)


def test_every_member_commits_again_soon_after_the_load(failover: CoordinatorFailover) -> None:
    """Real members commit within 0.25 s after the load. The client's backoff allows up to 1.2 s."""
    resumes = failover.resumes_us()  # in ascending order
    assert len(resumes) == 12
    assert 0 < resumes[0] <= resumes[-1] <= RESUME_MAX_US


def test_no_acknowledged_commit_is_lost(run: VirtualRun) -> None:
    """The offset that is read at the end is not older than any offset that was acknowledged."""
    assert lost_commits(run.rows, run.experiment, GROUP) == []
