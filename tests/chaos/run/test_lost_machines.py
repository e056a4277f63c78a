"""A machine lost by accident: the run reports it, and accuses neither Kafka nor the lab.

An accident is not in the plan of faults: a machine that the run uses is lost, or disturbed (out of
reach for some time). The lab is the tool itself. A FakeRuntime has no nodes; `machines_away` are
the accidents that it reports, and an injected crash fails with `crash_fails_with`. The plan is one
crash.
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

S = 1_000_000  # microseconds of a second
NODES = (NodeName("broker-2"), NodeName("consumer-readers-1"))
"""The nodes of the machine that is lost or disturbed."""
LOST = MachineEvent(address="10.0.0.3", from_us=7 * S, until_us=None, nodes=NODES, is_lost=True)
DISTURBED = MachineEvent(address="10.0.0.3", from_us=24_100_000, until_us=36_300_000, nodes=NODES)
KINDS = CheckSuite(context_of(experiment()), tuple(CHECKERS)).kinds_read()
"""Kinds of rows that each check depends on, by the check's name."""


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
    """Return fault and note of each entry in the only journal below the folder."""
    (path,) = [path for path in tmp_path.rglob("journal.json") if "latest" not in path.parts]
    return [(entry.fault, entry.note) for entry in decode_journal(path.read_bytes())]


def passed(check: str) -> CheckReport:
    return CheckReport(check=check, outcome=CheckOutcome.PASS)


def violated(*times_us: int) -> CheckReport:
    """Return a report of fencing with a finding at each of these times."""
    findings = tuple(
        Finding(check="fencing", summary="bad", time_us=time_us) for time_us in times_us
    )
    return CheckReport(
        check="fencing",
        outcome=CheckOutcome.VIOLATED,
        findings=findings,
        findings_total=len(findings),
    )


def without_evidence(
    *reports: CheckReport, event: MachineEvent, nodes_without_rows: tuple[NodeName, ...] = ()
) -> tuple[CheckReport, ...]:
    """Return what the run makes of these reports after an accident.

    `nodes_without_rows` are the nodes whose rows are lost; a disturbed machine loses none.
    """
    return without_lost_evidence(reports, (event,), nodes_without_rows, KINDS)


@pytest.mark.parametrize(
    "failure", [OSError("actor died"), None], ids=["an act failed", "the run went on"]
)
def test_lost_machine_is_no_failure_of_the_lab_and_no_verdict(
    failure: Exception | None, tmp_path: Path
) -> None:
    """The exit code is 2. The reasons name the machine first, then the failures that followed."""
    runtime = FakeRuntime(experiment())
    runtime.machines_away = [LOST]
    runtime.crash_fails_with = failure

    results = execute(runtime, tmp_path)

    assert (results.outcome, results.verdict) == (RunOutcome.COMPLETED, Verdict.UNKNOWN)
    assert results.exit_code == EXIT_UNKNOWN
    assert results.reasons[0] == "machine 10.0.0.3 was lost at 7.0 s"
    assert any("actor died" in reason for reason in results.reasons) == (failure is not None)
    assert ("machine_lost", "machine 10.0.0.3 was lost at 7.0 s") in journal_of(tmp_path)
    assert runtime.stopped


def test_same_failure_without_a_lost_machine_is_one_of_the_lab() -> None:
    """Only a defect of the lab explains the failure (INTERNAL_ERROR, exit code 255)."""
    runtime = FakeRuntime(experiment())
    runtime.crash_fails_with = OSError("actor died")
    suite = CheckSuite(context_of(runtime.experiment), ("fencing",))

    results = ExperimentRun(
        runtime.experiment, plan_of(runtime.experiment), runtime, suite
    ).execute()

    assert results.outcome is RunOutcome.INTERNAL_ERROR


def test_run_that_cannot_continue_without_the_machine_ends_at_once(tmp_path: Path) -> None:
    """The run does not wait for a steady state that never comes.

    `ends_run` is the reason why no run can continue without the machine.
    """
    runtime = FakeRuntime(experiment())
    why = "controller-100 was on it, whose disk held the only copy of what it knew"
    lost = MachineEvent(
        address="10.0.0.2", from_us=S, until_us=None, nodes=NODES, is_lost=True, ends_run=why
    )
    runtime.machines_away = [lost]

    results = execute(runtime, tmp_path)

    assert results.reasons[:2] == (lost.sentence, why)
    assert results.exit_code == EXIT_UNKNOWN
    assert results.steady_at_us is None


def test_disturbed_machine_is_listed_and_keeps_a_pass(tmp_path: Path) -> None:
    """The journal lists the disturbance like a fault, with begin and end, but as an accident."""
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

    The disturbance begins at 24.1 s; findings are at 5 s and at 30 s.
    """
    (after,) = without_evidence(violated(30 * S), event=DISTURBED)
    (both,) = without_evidence(violated(5 * S, 30 * S), event=DISTURBED)

    assert (after.outcome, after.findings) == (CheckOutcome.INCONCLUSIVE, ())
    assert [finding.time_us for finding in both.findings] == [5 * S]
    assert both.outcome is CheckOutcome.VIOLATED


def test_check_whose_rows_are_lost_is_never_violated() -> None:
    """Fencing reads rows of brokers, and the lost rows of broker-2 might disprove a finding."""
    reports = without_evidence(violated(S), event=LOST, nodes_without_rows=NODES)

    verdict, _ = reach_verdict(reports=reports, entries=(), unknown_because=(LOST.sentence,))
    assert verdict is Verdict.UNKNOWN
    assert reports[0].outcome is CheckOutcome.INCONCLUSIVE
    assert reports[0].note == "the rows of broker-2 were lost with their machine"


def test_check_whose_rows_are_complete_is_judged() -> None:
    """Only the rows of a consumer are lost. `fencing` does not depend on them.

    `processing` depends on them, so it can no longer pass.
    """
    _, consumer = NODES

    first, *others = without_evidence(
        violated(S),
        passed("fencing"),
        passed("positions_never_go_back"),
        passed("processing"),
        event=LOST,
        nodes_without_rows=(consumer,),
    )

    assert first.outcome is CheckOutcome.VIOLATED
    assert [report.outcome for report in others] == [
        CheckOutcome.PASS,
        CheckOutcome.PASS,
        CheckOutcome.INCONCLUSIVE,
    ]
    assert "consumer-readers-1" in others[2].note


@pytest.mark.parametrize("name", sorted(CHECKERS))
def test_every_check_names_the_kinds_of_rows_that_it_depends_on(name: str) -> None:
    """A check depends on its own kinds of rows, and on those of the evidence that all checks share.

    An example of shared evidence is the list of the faults in force.
    """
    kinds = CheckSuite(context_of(experiment()), (name,)).kinds_read()[name]

    assert kinds >= CHECKERS[name].kinds
    assert kinds >= FAULT_KINDS


def test_run_without_accidents_keeps_its_reports() -> None:
    """Without an accident no evidence can be lost, so the reports are returned as they are."""
    reports = (violated(S),)

    assert without_lost_evidence(reports, (), (), KINDS) is reports
