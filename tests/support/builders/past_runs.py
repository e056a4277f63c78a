"""Directories of runs that never happened, for tests of the commands that read runs.

`past_run` writes a directory with the files that a run leaves. `analysed_run` also writes the
tables and the summary, which the analysis of a run adds.
"""

import re
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from chaos.experiment.structs import Experiment
from chaos.results.run_directory import EVENTS_FILE, RunDirectory, create_run_directory
from chaos.run.plan import plan_of
from pipeline.summary.figures import FaultSummary, RunSummary
from pipeline.summary.summary_file import write_summary
from results_schema.journal import JournalEntry
from results_schema.manifest import Manifest, RunStatus
from results_schema.results import EXIT_PASS, CheckReport, Results, RunOutcome, Verdict, exit_code
from tests.support.builders.experiments import experiment

_TABLES_PAGE = Path(__file__).parents[3] / "docs" / "TABLES.md"
# The name of a column's type in docs/TABLES.md -> the type in a Parquet file.
_TYPES: Mapping[str, pa.DataType] = {
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "array<string>": pa.list_(pa.string()),
}
EVENTS = 3
"""The number of rows of events in the directory of a past run."""


def manifest(**changes: object) -> Manifest:
    """Return the manifest of a run of coordinator_crash that took 4.25 s."""
    made = Manifest(
        run="coordinator_crash/x",
        experiment="coordinator_crash",
        config={},
        plan=(),
        seed=7,
        runtime="virtual",
        pid=1,
        host="here",
        started_at="2026-01-01T00:00:00.000+00:00",
        ended_at="2026-01-01T00:00:04.250+00:00",
        replay="python -m coordlab run coordinator_crash --runtime virtual --seed 7",
    )
    return msgspec.structs.replace(made, **changes)


def results(
    *checks: CheckReport,
    verdict: Verdict = Verdict.PASS,
    outcome: RunOutcome = RunOutcome.COMPLETED,
    reasons: tuple[str, ...] = (),
    faults: tuple[JournalEntry, ...] = (),
) -> Results:
    """Return the results of a run. Their exit code fits the outcome and the verdict."""
    return Results(
        outcome=outcome,
        verdict=verdict,
        exit_code=exit_code(outcome, verdict),
        reasons=reasons,
        checks=checks,
        faults=faults,
    )


def past_run(
    root: Path, of: Experiment | None = None, *, verdict: Verdict = Verdict.PASS
) -> RunDirectory:
    """Write the directory of a run of the experiment `of`, by default of a small experiment.

    The run was steady from 6 s on and ended at 46 s. The exit code in its results is always 0, even
    if the verdict is not PASS.
    """
    own_experiment = of or experiment()
    run = create_run_directory(
        root,
        own_experiment,
        plan_of(own_experiment),
        seed=7,
        runtime="virtual",
        replay=f"python -m coordlab run {own_experiment.name} --runtime virtual --seed 7",
    )
    run.write_results(
        Results(
            outcome=RunOutcome.COMPLETED,
            verdict=verdict,
            exit_code=EXIT_PASS,
            steady_at_us=6_000_000,
            ended_at_us=46_000_000,
        )
    )
    write_rows(run, EVENTS)
    run.finish(RunStatus.COMPLETED)
    return run


def write_rows(run: RunDirectory, count: int) -> None:
    """Write `count` rows as the events of a run.

    The rows have a single column, because the tested commands only count the rows.
    """
    rows = pa.table({"run": [run.manifest.run] * count})
    pq.write_table(rows, run.events / EVENTS_FILE)


def analysed_run(
    root: Path,
    *faults: FaultSummary,
    of: Experiment | None = None,
    verdict: Verdict = Verdict.PASS,
) -> RunDirectory:
    """Write the directory of a run that was analysed.

    All tables exist, but they have no rows. The summary of the run has the faults `faults`.
    """
    run = past_run(root, of, verdict=verdict)
    for name, columns in _columns_of_tables().items():
        folder = run.path / "tables" / name
        folder.mkdir(parents=True)
        schema = pa.schema([(column, _TYPES[kind]) for column, kind in columns])
        pq.write_table(schema.empty_table(), folder / "part-empty.parquet")
    write_summary(
        RunSummary(
            run=run.manifest.run,
            directory=run.path,
            events=EVENTS,
            completed=True,
            clock_error_us=0,
            bad_rows=(),
            unreadable=(),
            faults=faults,
        )
    )
    return run


def _columns_of_tables() -> dict[str, list[tuple[str, str]]]:
    """Return the columns of every table as (name, type) pairs.

    The columns are taken from the page docs/TABLES.md. Another test makes sure that this page
    agrees with the tables that the pipeline writes.
    """
    tables: dict[str, list[tuple[str, str]]] = {}
    columns: list[tuple[str, str]] = []
    for line in _TABLES_PAGE.read_text(encoding="utf-8").splitlines():
        # On the page, a heading such as `## rebalances` begins the description of a table. Below
        # the heading, each column has a line such as "| `group` | string | ... |".
        if heading := re.fullmatch(r"## (\w+)", line):
            columns = tables.setdefault(heading[1], [])
        elif row := re.fullmatch(r"\| `(\w+)` \| (\S+) \| .*\|", line):
            columns.append((row[1], row[2]))
    return tables
