"""Live checks report findings during a run. If the live checks fail, the run goes on.

On Ray the nodes write their trace rows into files. Live checks read these files while the run goes
on, so that a person who watches the run sees a violation early. Some rows arrive late or not at
all, so the findings of live checks are preliminary. After the run the checks judge the whole trace,
and only these judgements decide the verdict.

Live checks get their rows from a "follower". This is a function that returns the rows that have
become readable since it was called last.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from chaos.checkers.context import CheckContext
from chaos.checkers.registry import CheckSuite, context_of
from chaos.results.run_directory import create_run_directory
from chaos.run.live_checks import LiveChecks, TraceFollower
from chaos.run.plan import plan_of
from chaos.run.runner import ExperimentRun, Progress
from protocol.trace import TraceKind, TraceRow
from results_schema.results import Finding, RunOutcome, Verdict
from tests.support.builders.experiments import experiment
from tests.support.builders.rows import Rows
from tests.support.harness.fake_runtime import FakeRuntime

SAFETY = ("fencing", "durable_commits")
"""The names of the checks in these tests."""


def broken_rows() -> list[TraceRow]:
    """Return rows that the check `fencing` must find: two brokers lead a partition in epoch 0."""
    rows = Rows()
    rows.leads(time_s=1, node="broker-0", leader_epoch=0, log_end=0)
    rows.leads(time_s=2, node="broker-1", leader_epoch=0, log_end=0)
    return list(rows.rows)


def following(rows: Sequence[TraceRow]) -> TraceFollower:
    """Return a follower that yields each row once, when the clock has reached its time."""
    unread = list(rows)

    def follow(now_us: int) -> Iterable[TraceRow]:
        while unread and unread[0].time_us <= now_us:
            yield unread.pop(0)

    return follow


def test_finding_is_reported_when_its_rows_can_be_read() -> None:
    """The row of the second leader proves the finding.

    So the finding is reported when this row is read. It is reported only once.
    """
    reported: list[Finding] = []
    live = LiveChecks(CheckSuite(CheckContext(), SAFETY), following(broken_rows()))
    live.report_findings_to(reported.append)
    last_us = broken_rows()[-1].time_us

    live.advance(last_us - 1)
    assert reported == []
    live.advance(last_us)
    live.advance(last_us + 1)

    assert [finding.check for finding in reported] == ["fencing"]


def test_failure_of_the_live_checks_ends_only_them() -> None:
    """If live checks cannot read a file, only the live checks end, and the run goes on."""

    def follow(now_us: int) -> Iterable[TraceRow]:
        raise OSError("the file went away")

    live = LiveChecks(CheckSuite(CheckContext(), SAFETY), follow)
    live.advance(1)  # fails
    live.advance(2)  # does nothing

    assert live.trouble == "not checked while running: OSError: the file went away"


def test_run_shows_possible_violations_and_judges_by_the_whole_trace(
    tmp_path: Path,
) -> None:
    """The live rows violate a promise, but the whole trace of the run does not.

    So the progress and the log show a possible violation, and the trace and the verdict show none.
    """
    own_experiment = experiment()
    rows: list[TraceRow] = []
    progress: list[Progress] = []
    # This suite judges the whole trace. The live checks have a suite of their own, below.
    suite = CheckSuite(context_of(own_experiment), SAFETY)
    plan = plan_of(own_experiment)
    # `replay` would be the command that plays the run again. There is none for a fake runtime.
    directory = create_run_directory(
        tmp_path, own_experiment, plan, seed=0, runtime="fake", replay=""
    )
    live = LiveChecks(CheckSuite(context_of(own_experiment), SAFETY), following(broken_rows()))

    results = ExperimentRun(
        own_experiment,
        plan,
        FakeRuntime(own_experiment, rows.append),
        suite,
        directory=directory,
        progress=progress.append,
        live_checks=live,
    ).execute()

    assert results.outcome is RunOutcome.COMPLETED
    assert results.verdict is not Verdict.VIOLATED
    assert [finding.check for finding in progress[-1].findings] == ["fencing"]
    assert not [row for row in rows if row.kind == TraceKind.VIOLATION]
    assert "fencing seems violated" in (directory.path / "log.txt").read_text()
