"""Inputs of a report: the facts, tables and summary of a run, and a small chart."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import altair as alt
import msgspec

from pipeline.report.charts.chart import Chart, time_params, time_x
from pipeline.report.facts import RunFacts
from pipeline.report.report_input import ReportInput, RunTables
from pipeline.summary.figures import RunSummary
from results_schema.journal import BlastRadius, FaultOutcome, JournalEntry
from results_schema.manifest import Manifest, RunStatus
from results_schema.results import Results, RunOutcome, Verdict

RUN = "a_run/2026-01-02T03-04-05.678Z"
"""The name of the run. It consists of the name of the experiment and the time of the start."""
SECOND_US = 1_000_000
_TABLES = Path(__file__).parents[3] / "docs" / "TABLES.md"


def run_facts(**changes: Any) -> RunFacts:  # noqa: ANN401 - any field of the structs in it
    """Return the facts of a run without faults that passed: steady from 6 s on, ended at 60 s.

    RunFacts contains a Manifest, which contains keys of the experiment's file, and Results. A test
    can change a field of each of these three structs, and the keys `question`, `expect` and
    `links`, as in `run_facts(seed=8, verdict=Verdict.VIOLATED)`. With `verdict=None` the facts have
    no results.
    """

    def taken(names: Iterable[str]) -> dict[str, Any]:
        """Remove the changes with these names from `changes`, and return them."""
        return {name: changes.pop(name) for name in names if name in changes}

    facts_changes = taken(RunFacts.__dataclass_fields__)
    manifest_changes = taken(Manifest.__struct_fields__)
    config_changes = taken(("question", "expect", "links"))
    config = {"question": "What happens?", "expect": "Nothing."} | config_changes
    manifest: dict[str, Any] = {
        "run": RUN,
        "experiment": "a_run",
        "config": config,
        "plan": (),
        "runtime": "virtual",
        "seed": 7,
        "status": RunStatus.COMPLETED,
        "pid": 1,
        "host": "here",
        "replay": "python -m coordlab run a_run --runtime virtual --seed 7",
        "started_at": "2026-01-02T03:04:05.678+00:00",
    }
    results: dict[str, Any] = {
        "outcome": RunOutcome.COMPLETED,
        "verdict": Verdict.PASS,
        "exit_code": 0,
        "steady_at_us": 6 * SECOND_US,
        "ended_at_us": 60 * SECOND_US,
    }
    # The changes that are left belong to the results.
    results |= changes
    facts: dict[str, Any] = {
        "manifest": Manifest(**manifest | manifest_changes),
        "results": None if results["verdict"] is None else Results(**results),
        "status": "completed",
    }
    return RunFacts(**facts | facts_changes)


def journal_entry(**changes: Any) -> JournalEntry:  # noqa: ANN401 - any field of JournalEntry
    """Return the journal's entry of crash-0: broker-2 is down from 11.25 s to 36.25 s.

    `changes` are fields of JournalEntry. A test may also pass `groups` and `partitions`: the groups
    and partitions that the fault affects, which are called the fault's blast radius.
    """
    radius = BlastRadius(
        groups=changes.pop("groups", ("readers",)),
        partitions=changes.pop("partitions", ("__consumer_offsets-2",)),
    )
    entry = JournalEntry(
        fault_id="crash-0",
        fault="crash",
        target="coordinator-of(readers)",
        duration_us=25_000_000,
        outcome=FaultOutcome.HIT,
        nodes=("broker-2",),
        blast_radius=radius,
        fired_at_us=11_250_000,
        in_force_from_us=11_250_000,
        in_force_until_us=36_250_000,
        healed_at_us=36_250_000,
        healed_by="plan",
    )
    return msgspec.structs.replace(entry, **changes)


def run_summary(**changes: Any) -> RunSummary:  # noqa: ANN401 - any field of RunSummary
    """Return the summary of a complete run without faults."""
    summary = RunSummary(
        run=RUN,
        directory=Path("runs") / RUN,
        events=1_000,
        completed=True,
        clock_error_us=0,
        bad_rows=(),
        unreadable=(),
        faults=(),
    )
    return replace(summary, **changes)


def report_input(
    facts: RunFacts | None = None,
    summary: RunSummary | None = None,
    tables: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
) -> ReportInput:
    """Return the input of a report. A table that is not in `tables` exists, but has no rows."""
    given = {name: tuple(dict(row) for row in rows) for name, rows in (tables or {}).items()}
    # docs/TABLES.md describes all tables. The description of a table has a heading with the name
    # of the table: `## rebalances`.
    all_tables = re.findall(r"^## (\w+)$", _TABLES.read_text(encoding="utf-8"), re.M)
    rows = {name: given.get(name, ()) for name in (*all_tables, *given)}
    return ReportInput(
        facts=facts or run_facts(),
        tables=RunTables(Path("nowhere"), rows),
        summary=summary or run_summary(),
    )


def small_chart(**changes: Any) -> Chart:  # noqa: ANN401 - any field of Chart
    """Return a chart of two bars on the time axis.

    The second bar has the name `</script>`. A page must escape this name. If it does not, the name
    ends the page's script too early, and the test fails.
    """
    from_s, to_s = time_params()
    spec = (
        alt.Chart(alt.NamedData("bars"))
        .mark_bar(clip=True)
        .encode(x=time_x("a"), x2="b", y=alt.Y("who:N", title=None), tooltip=["who:N"])
        .properties(width="container", height=alt.Step(18))
        .add_params(from_s, to_s)
    )
    chart = Chart(
        id="lane-small",
        title="Small",
        about="Two bars.",
        spec=spec,
        data={"bars": ({"who": "a", "a": 1.0, "b": 3.0}, {"who": "</script>", "a": 2.0, "b": 4})},
        on_time_axis=True,
    )
    return replace(chart, **changes)
