"""Prints the results of `run --seeds`: verdicts, checks, and each figure with its range.

The figures look like this:

    after crash-0
    broker chain, per offsets partition
            p50                      max
    detect  8.00 s (7.20 to 9.10 s)  8.00 s (7.20 to 9.10 s)

Each line is about one figure, such as "detect", which has one or several values in each run. Each
column is a statistic of the values within a run, such as their maximum. A cell has the median of
this statistic over the seeds, and its range. In the example, the longest "detect" of a run took
8.00 s in the middle run, and at most 9.10 s in any run.

The figures are passed to this module as ComparisonRows, one for each statistic of a figure. A
figure that is a single number in each run has one ComparisonRow, with the statistic "".
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from rich.console import Console
from rich.table import Table
from rich.text import Text

from coordlab.commands.run.seed_runs import SeedRun, SeedRuns, SeedState
from coordlab.console import print_lines, print_table
from coordlab.program import to_paste
from coordlab.seed_names import seeds_text
from pipeline.summary.caveats import caveats_of
from pipeline.summary.comparison import Comparison, ComparisonRow, Statistic
from pipeline.summary.comparison_cells import Cell, range_text
from pipeline.summary.story import GROUP_HEADINGS, counted
from results_schema.results import CheckOutcome

_MAX_LISTED = 20
"""The largest number of seeds of a state that get lines of their own. The others share a line."""
_GAP_WIDTH = 2
"""Number of blanks after each column."""
_NAME_WIDTH = 22
"""Width of the column with the names of figures; a longer name takes two lines."""
_SEED_COUNT_WIDTH = 10
"""Width of the column with texts such as "12 of 20", with the blanks after it."""
_COLUMN_CHOICES: tuple[tuple[Statistic, ...], ...] = (
    ("p50", "p90", "max"),
    ("p50", "max"),
    ("max",),
)
"""Choices of statistics to show as columns. The first choice that fits is taken."""
_COLUMN_CHOICES_WITH_SUM: tuple[tuple[Statistic, ...], ...] = (
    ("p50", "p90", "max", "sum"),
    ("p50", "max", "sum"),
    ("max", "sum"),
    ("max",),
)
"""The choices for figures that also have a sum, such as numbers of records."""
_STYLES = {
    SeedState.FAILED: "bold magenta",
    SeedState.VIOLATED: "bold red",
    SeedState.UNKNOWN: "bold yellow",
    SeedState.PASSED: "bold green",
    SeedState.INTERRUPTED: "bold yellow",
    SeedState.NOT_PLAYED: "bold yellow",
}
_STATES_WITH_REASONS = (SeedState.FAILED, SeedState.VIOLATED, SeedState.UNKNOWN)
"""The states of seeds that are printed with a reason, and with a command that plays them again."""
_CHECK_COLUMNS = {
    "passed": CheckOutcome.PASS,
    "not tested": CheckOutcome.NOTHING_SEEN,
    "violated": CheckOutcome.VIOLATED,
    "unknown": CheckOutcome.INCONCLUSIVE,
}
"""Heading of a column -> the outcome of a check that the column counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _FigureLine:
    """A line of the table: one figure, with a cell for each column.

    `seed_count`: "12 of 20" if only 12 of 20 seeds have the figure; "" if all seeds have it.
    """

    name: str
    cells: tuple[str, ...]
    seed_count: str


def print_seed_runs(console: Console, seed_runs: SeedRuns) -> None:
    """Print the verdict over all seeds, the seeds that did not pass, and a table of the checks."""
    console.print()
    _print_verdicts(console, seed_runs)
    for state in _STATES_WITH_REASONS:
        _print_seeds_with_reasons(console, state, seed_runs.of(state))
    counts = seed_runs.check_counts()
    if not counts:
        return
    console.print()
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("check, in how many seeds")
    for heading in _CHECK_COLUMNS:
        table.add_column(heading, justify="right")
    for check, outcome_counts in counts.items():
        shown_counts = [outcome_counts[outcome] for outcome in _CHECK_COLUMNS.values()]
        cells = ["" if count == 0 else str(count) for count in shown_counts]
        table.add_row(check.replace("_", " "), *cells)
    print_table(console, table)


def _print_verdicts(console: Console, seed_runs: SeedRuns) -> None:
    """Print the verdict over all seeds, the seeds that need no reason, and an example of a caveat.

    A verdict is `VIOLATED  fencing on virtual, 20 seeds: 2 violated, 18 passed`, for instance. Its
    first word is the worst state of a seed. After a Ctrl-C the first word is INTERRUPTED, in the
    colour of the worst state.
    """
    total = counted(len(seed_runs.runs), "seed")
    runs_by_state = {state: seed_runs.of(state) for state in SeedState if seed_runs.of(state)}
    worst = next(iter(runs_by_state))  # SeedState is sorted, the worst state first
    if seed_runs.interrupted:
        verdict = "INTERRUPTED"
    elif worst is SeedState.PASSED:
        verdict = "PASS"
    else:
        verdict = worst.value.upper()
    numbers = ", ".join(f"{len(runs)} {state.value}" for state, runs in runs_by_state.items())
    line = Text.assemble(
        (verdict, _STYLES[worst]),
        f"  {seed_runs.experiment} on {seed_runs.runtime}, {total}: {numbers}",
    )
    console.print(line, highlight=False, soft_wrap=True)
    for state, runs in runs_by_state.items():
        if state not in _STATES_WITH_REASONS:
            print_lines(console, [f"{state.value}: {seeds_text(run.seed for run in runs)}"])
    with_caveats = [run for run in seed_runs.of(SeedState.PASSED) if caveats_of(run.summary)]
    if with_caveats:
        first = with_caveats[0]
        example = f"in seed {first.seed} {'; '.join(caveats_of(first.summary))}"
        caveat = f"{len(with_caveats)} of the passed seeds have caveats: {example}"
        print_lines(console, [f"  {caveat}; no promise forbids this here"])


def _print_seeds_with_reasons(console: Console, state: SeedState, runs: Sequence[SeedRun]) -> None:
    """Print the seeds of one state with their reasons, and the commands that play them again."""
    for run in runs[:_MAX_LISTED]:
        why = f": {run.why}" if run.why else ""
        print_lines(console, [f"seed {run.seed} {state.value}{why}"], style=_STYLES[state])
        # `soft_wrap` does not wrap the line, so that the command can be copied.
        console.print(Text(f"  again: {to_paste(run.replay)}"), soft_wrap=True, highlight=False)
    more = runs[_MAX_LISTED:]
    if more:
        print_lines(console, [f"{state.value} too: {seeds_text(run.seed for run in more)}"])


def print_seed_figures(console: Console, figures: Comparison, seeds: int) -> None:
    """Print every figure of a run's closing summary as its median and range over the seeds."""
    console.print()
    heading = f"median over {counted(seeds, 'seed')} (smallest to largest)"
    print_lines(console, [heading], style="bold")
    for fault in (*figures.faults, None):
        rows = [row for row in figures.rows if row.fault == fault]
        if fault is not None and rows:
            console.print()
            print_lines(console, [f"after {fault}"], style="bold")
        groups = dict.fromkeys(row.group for row in rows)  # each once, in the order of the rows
        for group in groups:
            _print_group(console, group, [row for row in rows if row.group == group], seeds)
        if fault is not None:
            print_lines(console, _lines_about_shared_gaps(figures, fault), style="dim")


def _lines_about_shared_gaps(figures: Comparison, fault: str) -> Iterator[str]:
    """Yield a line for each longest gap after `fault` that is also the longest after another fault.

    A gap is a time without commits or without processing. If two faults follow each other soon, one
    long gap counts for both faults. A line such as `the longest commit gap is the one after
    1-kill_broker` tells the reader not to look for two gaps. Two gaps are taken for the same gap if
    their figures over all seeds are equal.
    """
    longest = [row for row in figures.rows if row.group == "gap" and row.statistic == "max"]
    for gap in (row for row in longest if row.fault == fault):
        # The rows are in the order of the plan. If no earlier fault has an equal gap, `first` is
        # the fault of `gap` itself.
        first = next(
            row.fault for row in longest if row.name == gap.name and row.cells == gap.cells
        )
        # If no seed had such a gap, its largest value over the seeds (`high`) is 0.
        (cell,) = gap.cells
        if first != fault and cell is not None and cell.high:
            yield f"the longest {gap.name} is the one after {first}"


def _print_group(console: Console, group: str, rows: Sequence[ComparisonRow], seeds: int) -> None:
    """Print the figures of one group, such as the phases or the gaps, under its heading."""
    console.print(Text(GROUP_HEADINGS[group], style="underline"))
    # The figures that are a single number in each run (statistic "") get a table of their own.
    for statistics in (_statistics_that_fit(console, rows, seeds), ("",)):
        lines = list(_figure_lines(rows, statistics, seeds))
        if lines:
            print_table(console, _figures_table(statistics, lines))


def _figures_table(statistics: Sequence[str], lines: Sequence[_FigureLine]) -> Table:
    """Return the lines as a table.

    If some seeds lack a figure, the table has one more column, with the number of seeds that have
    the figure.
    """
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, _GAP_WIDTH, 0, 0))
    table.add_column("")
    for statistic in statistics:
        table.add_column(statistic or "in a run", justify="right", no_wrap=True)
    some_lack_a_figure = any(line.seed_count for line in lines)
    if some_lack_a_figure:
        table.add_column("in seeds", justify="right", no_wrap=True)
    for line in lines:
        cells = [line.name, *line.cells]
        if some_lack_a_figure:
            cells.append(line.seed_count)
        table.add_row(*cells)
    return table


def _statistics_that_fit(
    console: Console, rows: Sequence[ComparisonRow], seeds: int
) -> tuple[Statistic, ...]:
    """Return the statistics to show as columns: the first choice that fits into the console.

    If no choice fits, the last choice is returned. The name of a figure may take two lines, so the
    names need at most _NAME_WIDTH. A cell stays on one line.
    """
    present = {row.statistic for row in rows}
    choices = _COLUMN_CHOICES_WITH_SUM if "sum" in present else _COLUMN_CHOICES
    for choice in choices:
        statistics = tuple(statistic for statistic in choice if statistic in present)
        lines = list(_figure_lines(rows, statistics, seeds))
        if not lines:
            return statistics
        columns = zip(*(line.cells for line in lines), strict=True)
        width = min(_NAME_WIDTH, max(len(line.name) for line in lines))
        width += sum(max(map(len, column)) + _GAP_WIDTH for column in columns)
        if any(line.seed_count for line in lines):
            width += _SEED_COUNT_WIDTH
        if width <= console.width:
            return statistics
    return statistics


def _figure_lines(
    rows: Sequence[ComparisonRow], statistics: Sequence[str], seeds: int
) -> Iterator[_FigureLine]:
    """Yield a line for each figure that has at least one of `statistics`.

    `seeds`: the number of all seeds.
    """
    # The rows about one figure stand together, one for each statistic.
    for name, group in groupby(rows, key=lambda row: row.name):
        rows_of_figure = list(group)
        unit = rows_of_figure[0].unit  # all rows of a figure have the same unit
        cell_by_statistic: dict[str, Cell] = {
            row.statistic: row.cells[0] for row in rows_of_figure if row.cells[0] is not None
        }
        shown = [cell_by_statistic.get(statistic) for statistic in statistics]
        if not any(shown):
            continue
        texts = tuple("" if cell is None else range_text(cell, unit) for cell in shown)
        seeds_with_figure = max(cell.runs for cell in shown if cell is not None)
        seed_count = f"{seeds_with_figure} of {seeds}" if seeds_with_figure < seeds else ""
        yield _FigureLine(name=name, cells=texts, seed_count=seed_count)
