"""A machine that is lost by accident makes a run inconclusive, and is never taken for a bug.

A run on Ray uses several machines. Any of these machines may really fail during the run. This is an
accident: no fault of the plan did it. The machine is lost, or it is "disturbed", which means out of
reach for some time. After an accident the run must neither accuse Kafka (verdict VIOLATED) nor
report that coordlab itself has failed (INTERNAL_ERROR). The verdict is UNKNOWN instead.

Most tests play a plan with one fault, a crash, on a FakeRuntime, which has no nodes. Two attributes
of the FakeRuntime make the accident: `machines_away` has the accidents that it reports, and
`crash_fails_with` is the exception that the injection of the crash raises. The other tests look at
how the reports of the checks are changed after an accident.
"""

from pathlib import Path

import pytest

from chaos.checkers.evidence.faults_in_force import FAULT_KINDS
from chaos.checkers.registry import CHECKERS, CheckSuite, context_of
from chaos.results.run_directory import create_run_directory
from chaos.results.verdict import reach_verdict, without_lost_evidence
from chaos.run.plan import plan_of
from chaos.run.runner import ExperimentRun
from cluster.runtime import MachineEvent
from protocol.ids import NodeName
from results_schema.journal import decode_journal
from results_schema.results import (
    EXIT_UNKNOWN,
    CheckOutcome,
    CheckReport,
    Finding,
    Results,
    RunOutcome,
    Verdict,
)
from tests.support.builders.experiments import experiment
from tests.support.harness.fake_runtime import FakeRuntime

SECOND_US = 1_000_000
NODES = (NodeName("broker-2"), NodeName("consumer-readers-1"))
"""The nodes on the machine that is lost or disturbed."""
LOST = MachineEvent(
    address="10.0.0.3", from_us=7 * SECOND_US, until_us=None, nodes=NODES, is_lost=True
)
DISTURBED = MachineEvent(address="10.0.0.3", from_us=24_100_000, until_us=36_300_000, nodes=NODES)
KINDS_READ_BY = CheckSuite(context_of(experiment()), tuple(CHECKERS)).kinds_read()
"""Name of each check -> the kinds of trace rows that it reads, and needs to judge."""


def execute(runtime: FakeRuntime, tmp_path: Path) -> Results:
    """Play the plan on the runtime, with two checks, and record the run."""
    suite = CheckSuite(context_of(runtime.experiment), ("fencing", "durable_commits"))
    directory = create_run_directory(
        tmp_path,
        runtime.experiment,
        plan_of(runtime.experiment),
        seed=1,
        runtime="ray",
        replay="again",
    )
    return ExperimentRun(
        runtime.experiment, plan_of(runtime.experiment), runtime, suite, directory=directory
    ).execute()


def journal_of(tmp_path: Path) -> list[tuple[str, str | None]]:
    """Return the fault and the note of each entry in the only journal below the folder."""
    # The link `latest` leads to the directory of the run, so its journal is found twice.
    (path,) = [path for path in tmp_path.rglob("journal.json") if "latest" not in path.parts]
    return [(entry.fault, entry.note) for entry in decode_journal(path.read_bytes())]


def passed(check: str) -> CheckReport:
    """Return a report of a check that has passed."""
    return CheckReport(check=check, outcome=CheckOutcome.PASS)


def violated(*times_us: int) -> CheckReport:
    """Return a report of the check `fencing` with a finding at each of these times."""
    findings = tuple(
        Finding(check="fencing", summary="bad", time_us=time_us) for time_us in times_us
    )
    return CheckReport(
        check="fencing",
        outcome=CheckOutcome.VIOLATED,
        findings=findings,
        findings_total=len(findings),
    )


def reports_after_accident(
    *reports: CheckReport, event: MachineEvent, nodes_without_rows: tuple[NodeName, ...] = ()
) -> tuple[CheckReport, ...]:
    """Return the reports as the run changes them after an accident.

    If a lost machine took trace rows with it, `nodes_without_rows` names the nodes of these rows.
    """
    return without_lost_evidence(reports, (event,), nodes_without_rows, KINDS_READ_BY)


@pytest.mark.parametrize(
    "failure", [OSError("actor died"), None], ids=["the crash failed", "the run went on"]
)
def test_lost_machine_is_no_failure_of_the_lab_and_no_verdict(
    failure: Exception | None, tmp_path: Path
) -> None:
    """The verdict is unknown, and the first of its reasons names the machine.

    If the injection of the crash failed as well, because its node was on the machine, another
    reason names this failure.
    """
    runtime = FakeRuntime(experiment())
    runtime.machines_away = [LOST]
    runtime.crash_fails_with = failure

    results = execute(runtime, tmp_path)

    assert (results.outcome, results.verdict) == (RunOutcome.COMPLETED, Verdict.UNKNOWN)
    assert results.exit_code == EXIT_UNKNOWN
    assert results.reasons[0] == "machine 10.0.0.3 was lost at 7.0 s"
    is_failure_named = any("actor died" in reason for reason in results.reasons)
    assert is_failure_named == (failure is not None)
    assert ("machine_lost", "machine 10.0.0.3 was lost at 7.0 s") in journal_of(tmp_path)
    assert runtime.stopped


def test_same_failure_without_a_lost_machine_is_one_of_the_lab() -> None:
    """Without an accident, a failed injection can only mean that the lab itself has a defect."""
    runtime = FakeRuntime(experiment())
    runtime.crash_fails_with = OSError("actor died")
    suite = CheckSuite(context_of(runtime.experiment), ("fencing",))

    results = ExperimentRun(
        runtime.experiment, plan_of(runtime.experiment), runtime, suite
    ).execute()

    assert results.outcome is RunOutcome.INTERNAL_ERROR


def test_run_that_cannot_continue_without_the_machine_ends_at_once(tmp_path: Path) -> None:
    """The machine of the only controller is lost.

    Without its controller the cluster never becomes steady, so the run must not wait for the steady
    state.
    """
    runtime = FakeRuntime(experiment())
    why_no_run_can_continue = (
        "controller-100 was on it, whose disk held the only copy of what it knew"
    )
    lost = MachineEvent(
        address="10.0.0.2",
        from_us=SECOND_US,
        until_us=None,
        nodes=NODES,
        is_lost=True,
        ends_run=why_no_run_can_continue,
    )
    runtime.machines_away = [lost]

    results = execute(runtime, tmp_path)

    assert results.reasons[:2] == (lost.sentence, why_no_run_can_continue)
    assert results.exit_code == EXIT_UNKNOWN
    assert results.steady_at_us is None


def test_disturbed_machine_is_listed_and_keeps_a_pass(tmp_path: Path) -> None:
    """The journal has an entry for the disturbance, which is marked as an accident.

    The run is judged as if there had been no accident, so it can pass.
    """
    runtime = FakeRuntime(experiment())
    runtime.machines_away = [DISTURBED]

    results = execute(runtime, tmp_path)

    entry = results.faults[-1]
    assert (entry.fault, entry.in_force_from_us, entry.healed_at_us) == (
        "machine_disturbed",
        24_100_000,
        36_300_000,
    )
    assert entry.note == "machine 10.0.0.3 was disturbed from 24.1 to 36.3 s"
    assert results.outcome is RunOutcome.COMPLETED
    assert entry.is_by_accident


def test_violation_after_a_disturbance_is_inconclusive_and_one_before_it_stands() -> None:
    """A slow or silent machine may break a promise that Kafka keeps on a sound machine.

    The disturbance begins at 24.1 s. So a finding at 30 s is dropped, and a finding at 5 s is kept.
    """
    before_us, after_us = 5 * SECOND_US, 30 * SECOND_US
    (found_after,) = reports_after_accident(violated(after_us), event=DISTURBED)
    (found_both,) = reports_after_accident(violated(before_us, after_us), event=DISTURBED)

    assert (found_after.outcome, found_after.findings) == (CheckOutcome.INCONCLUSIVE, ())
    assert [finding.time_us for finding in found_both.findings] == [before_us]
    assert found_both.outcome is CheckOutcome.VIOLATED


def test_check_whose_rows_are_lost_is_never_violated() -> None:
    """The check `fencing` reads rows of brokers, and the rows of broker-2 are lost.

    The lost rows might disprove a finding. So the finding is dropped: the check is inconclusive.
    """
    reports = reports_after_accident(violated(SECOND_US), event=LOST, nodes_without_rows=NODES)

    verdict, _ = reach_verdict(reports=reports, entries=(), unknown_because=(LOST.sentence,))
    assert verdict is Verdict.UNKNOWN
    assert reports[0].outcome is CheckOutcome.INCONCLUSIVE
    assert reports[0].note == "the rows of broker-2 were lost with their machine"


def test_check_whose_rows_are_complete_is_judged() -> None:
    """Only the rows of a consumer are lost.

    `fencing` and `positions_never_go_back` read no rows of consumers, so their outcomes stay.
    `processing` reads rows of consumers, so it can no longer pass.
    """
    _, consumer = NODES  # broker-2, consumer-readers-1

    violation, *passes = reports_after_accident(
        violated(SECOND_US),
        passed("fencing"),
        passed("positions_never_go_back"),
        passed("processing"),
        event=LOST,
        nodes_without_rows=(consumer,),
    )

    assert violation.outcome is CheckOutcome.VIOLATED
    assert [report.outcome for report in passes] == [
        CheckOutcome.PASS,
        CheckOutcome.PASS,
        CheckOutcome.INCONCLUSIVE,
    ]
    assert "consumer-readers-1" in passes[2].note


@pytest.mark.parametrize("name", sorted(CHECKERS))
def test_every_check_names_the_kinds_of_rows_that_it_depends_on(name: str) -> None:
    """A check reads its own kinds of rows, and those of faults.

    Every check must know which faults are in force, because faults excuse some events.
    """
    kinds = CheckSuite(context_of(experiment()), (name,)).kinds_read()[name]

    assert kinds >= CHECKERS[name].kinds
    assert kinds >= FAULT_KINDS


def test_run_without_accidents_keeps_its_reports() -> None:
    """Without an accident no evidence is lost, so the reports are returned as they are."""
    reports = (violated(SECOND_US),)

    assert without_lost_evidence(reports, (), (), KINDS_READ_BY) is reports
