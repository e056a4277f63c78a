"""Builders of what a report is made from: facts, tables in memory, a summary, and a small chart."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import altair as alt

from pipeline.report.charts.chart import Chart, time_params, time_x
from pipeline.report.facts import FaultFact, RunFacts
from pipeline.report.report_input import ReportInput
from pipeline.report.run_tables import RunTables
from pipeline.summary.figures import RunSummary

RUN = "a_run/2026-01-02T03-04-05.678Z"
SECOND_US = 1_000_000
_TABLES = Path(__file__).parents[3] / "docs" / "TABLES.md"


def run_facts(**changes: Any) -> RunFacts:  # noqa: ANN401 - any field of RunFacts
    """Return the facts of a run that ended well, without faults."""
    facts = RunFacts(
        run=RUN,
        experiment="a_run",
        question="What happens?",
        expect="Nothing.",
        runtime="virtual",
        seed=7,
        status="completed",
        replay="python -m coordlab run a_run --runtime virtual --seed 7",
        started_at="2026-01-02T03:04:05.678+00:00",
        verdict="pass",
        exit_code=0,
        steady_at_us=6 * SECOND_US,
        ended_at_us=60 * SECOND_US,
    )
    return replace(facts, **changes)


def fault_fact(**changes: Any) -> FaultFact:  # noqa: ANN401 - any field of FaultFact
    """Return the facts of a broker's crash from 11.25 s to 36.25 s."""
    fact = FaultFact(
        fault_id="crash-0",
        kind="crash",
        target="coordinator-of(readers)",
        outcome="hit",
        momentary=False,
        hit="broker-2",
        nodes=("broker-2",),
        groups=("readers",),
        partitions=("__consumer_offsets-2",),
        injected_us=11_250_000,
        in_force_us=11_250_000,
        in_force_until_us=36_250_000,
        healed_us=36_250_000,
        healed_by="plan",
    )
    return replace(fact, **changes)


def run_summary(**changes: Any) -> RunSummary:  # noqa: ANN401 - any field of RunSummary
    """Return the summary of a complete run in which nothing happened."""
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
    """Return what a report is made from; every table that is not given has no rows."""
    given = {name: tuple(dict(row) for row in rows) for name, rows in (tables or {}).items()}
    documented = re.findall(r"^## (\w+)$", _TABLES.read_text(encoding="utf-8"), re.M)
    rows = {name: given.get(name, ()) for name in (*documented, *given)}
    return ReportInput(
        facts=facts or run_facts(),
        tables=RunTables(Path("nowhere"), rows),
        summary=summary or run_summary(),
    )


def small_chart(**changes: Any) -> Chart:  # noqa: ANN401 - any field of Chart
    """Return a chart of two bars on the time axis."""
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
