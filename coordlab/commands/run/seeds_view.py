"""Output of `run --seeds` on a terminal: verdicts, checks, and each figure with its range.

A figure is what a run prints at its end about one measured thing, such as the phase "detect". Most
figures are distributions within the run, which have several statistics: p50 (the median), p90, max,
and sum for counts. A figure that is one number has the statistic "".

A ComparisonRow is one statistic of one figure. It is about the time after one fault, or about the
whole run if its `fault` is None. Here it has only one cell, with the median and the range over the
seeds.
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
"""Limit of the seeds of one outcome that have lines of their own."""
_GAP = 2
"""Blanks behind each column."""
_NAME_WIDTH = 22
"""Width that is kept free for the names of figures; a longer name takes two lines."""
_WHERE_WIDTH = 10
"""Width of the column with the number of seeds (`_Line.where`, such as "12 of 20"), and its gap."""
_CHOICES: tuple[tuple[Statistic, ...], ...] = (("p50", "p90", "max"), ("p50", "max"), ("max",))
"""Choices of columns. The first choice that fits into the terminal's width is shown."""
_CHOICES_WITH_SUM: tuple[tuple[Statistic, ...], ...] = (
    ("p50", "p90", "max", "sum"),
    ("p50", "max", "sum"),
    ("max", "sum"),
    ("max",),
)
"""Choices of columns for figures that have a sum."""
_STYLES = {
    SeedState.FAILED: "bold magenta",
    SeedState.VIOLATED: "bold red",
    SeedState.UNKNOWN: "bold yellow",
    SeedState.PASSED: "bold green",
    SeedState.INTERRUPTED: "bold yellow",
    SeedState.NOT_PLAYED: "bold yellow",
}
_EXPLAINED = (SeedState.FAILED, SeedState.VIOLATED, SeedState.UNKNOWN)
"""Outcomes whose seeds are printed with reason and command."""
_CHECK_COLUMNS = {
    "passed": CheckOutcome.PASS,
    "not tested": CheckOutcome.NOTHING_SEEN,
    "violated": CheckOutcome.VIOLATED,
    "unknown": CheckOutcome.INCONCLUSIVE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """One figure, with a cell for each statistic.

    `where`: how many seeds have the figure, such as "12 of 20"; "" if all have it.
    """

    name: str
    cells: tuple[str, ...]
    where: str


def print_seed_runs(console: Console, seed_runs: SeedRuns) -> None:
    """Print the numbers of seeds by outcome, the seeds that did not pass, and the checks."""
    console.print()
    _print_verdicts(console, seed_runs)
    for state in _EXPLAINED:
        _print_explained(console, state, seed_runs.of(state))
    counts = seed_runs.check_counts()
    if not counts:
        return
    console.print()
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("check, in how many seeds")
    for heading in _CHECK_COLUMNS:
        table.add_column(heading, justify="right")
    for check, of_check in counts.items():
        # A zero is shown as an empty cell.
        cells = (str(of_check[outcome] or "") for outcome in _CHECK_COLUMNS.values())
        table.add_row(check.replace("_", " "), *cells)
    print_table(console, table)


def _print_verdicts(console: Console, seed_runs: SeedRuns) -> None:
    """Print the worst outcome, the numbers of seeds by outcome, and the caveats of passed seeds.

    After a Ctrl-C the word INTERRUPTED replaces the word for the worst outcome, but not its colour.
    """
    total = counted(len(seed_runs.runs), "seed")
    by_state = {state: seed_runs.of(state) for state in SeedState if seed_runs.of(state)}
    # `by_state` has the order of SeedState, which begins with the worst outcome.
    worst = next(iter(by_state))
    word = "PASS" if worst is SeedState.PASSED else worst.value.upper()
    numbers = ", ".join(f"{len(runs)} {state.value}" for state, runs in by_state.items())
    line = Text.assemble(
        ("INTERRUPTED" if seed_runs.interrupted else word, _STYLES[worst]),
        f"  {seed_runs.experiment} on {seed_runs.runtime}, {total}: {numbers}",
    )
    console.print(line, highlight=False, soft_wrap=True)
    for state, runs in by_state.items():
        if state not in _EXPLAINED:
            print_lines(console, [f"{state.value}: {seeds_text(run.seed for run in runs)}"])
    with_caveats = [run for run in seed_runs.of(SeedState.PASSED) if caveats_of(run.summary)]
    if with_caveats:
        first = with_caveats[0]
        example = f"in seed {first.seed} {'; '.join(caveats_of(first.summary))}"
        caveat = f"{len(with_caveats)} of the passed seeds have caveats: {example}"
        print_lines(console, [f"  {caveat}; no promise forbids this here"])


def _print_explained(console: Console, state: SeedState, runs: Sequence[SeedRun]) -> None:
    """Print each seed of a state with its reason and its command.

    After the first _MAX_LISTED seeds, the others are only listed by their numbers.
    """
    for run in runs[:_MAX_LISTED]:
        why = f": {run.why}" if run.why else ""
        print_lines(console, [f"seed {run.seed} {state.value}{why}"], style=_STYLES[state])
        # On one line, so that the command can be copied.
        console.print(Text(f"  again: {to_paste(run.replay)}"), soft_wrap=True, highlight=False)
    more = runs[_MAX_LISTED:]
    if more:
        print_lines(console, [f"{state.value} too: {seeds_text(run.seed for run in more)}"])


def print_seed_figures(console: Console, figures: Comparison, seeds: int) -> None:
    """Print every figure of the closing summary as median and range over the seeds."""
    console.print()
    heading = f"median over {counted(seeds, 'seed')} (smallest to largest)"
    print_lines(console, [heading], style="bold")
    for fault in (*figures.faults, None):
        rows = [row for row in figures.rows if row.fault == fault]
        if fault is not None and rows:
            console.print()
            print_lines(console, [f"after {fault}"], style="bold")
        # The keys of the dict are the groups of figures in the order of the rows, each once.
        for group in dict.fromkeys(row.group for row in rows):
            _print_group(console, group, [row for row in rows if row.group == group], seeds)
        if fault is not None:
            print_lines(console, _same_gap_lines(figures, fault), style="dim")


def _same_gap_lines(figures: Comparison, fault: str) -> Iterator[str]:
    """Yield a line for each longest gap after `fault` that is also the longest after another fault.

    A gap is a time without commits or without processing. One gap can be counted for two faults
    that follow each other soon. Two gaps with equal figures over all seeds count as one gap. The
    line names the first fault of the plan that has this gap.
    """
    longest = [row for row in figures.rows if row.group == "gap" and row.statistic == "max"]
    for gap in (row for row in longest if row.fault == fault):
        # The rows are in the order of the plan, so this is the first fault with an equal gap. It is
        # `fault` itself if no earlier fault has such a gap.
        first = next(
            row.fault for row in longest if row.name == gap.name and row.cells == gap.cells
        )
        # The largest value is 0 if no seed had such a gap at all.
        if first != fault and gap.cells[0] is not None and gap.cells[0].high:
            yield f"the longest {gap.name} is the one after {first}"


def _print_group(console: Console, group: str, rows: Sequence[ComparisonRow], seeds: int) -> None:
    """Print the figures of one group, such as the phases or the gaps, under its heading."""
    console.print(Text(GROUP_HEADINGS[group], style="underline"))
    # One table for the distributions, one for the figures of one number per run (statistic "").
    for statistics in (_statistics(console, rows, seeds), ("",)):
        lines = list(_lines(rows, statistics, seeds))
        if lines:
            print_table(console, _table(statistics, lines))


def _table(statistics: Sequence[str], lines: Sequence[_Line]) -> Table:
    """Return a table of figures.

    If some seeds lack a figure, the table also has a column with the number of seeds.
    """
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, _GAP, 0, 0))
    table.add_column("")
    for statistic in statistics:
        table.add_column(statistic or "in a run", justify="right", no_wrap=True)
    partial = any(line.where for line in lines)
    if partial:
        table.add_column("in seeds", justify="right", no_wrap=True)
    for line in lines:
        table.add_row(line.name, *line.cells, *([line.where] if partial else []))
    return table


def _statistics(
    console: Console, rows: Sequence[ComparisonRow], seeds: int
) -> tuple[Statistic, ...]:
    """Return as many statistics as fit into the width: the first of the choices that fits.

    If none fits, return the last choice. The width of a long name is counted only up to
    _NAME_WIDTH, because a name can take two lines. A range must stay on one line.
    """
    present = {row.statistic for row in rows}
    for choice in _CHOICES_WITH_SUM if "sum" in present else _CHOICES:
        statistics = tuple(statistic for statistic in choice if statistic in present)
        lines = list(_lines(rows, statistics, seeds))
        if not lines:
            return statistics
        widths = [max(len(line.cells[place]) for line in lines) for place in range(len(statistics))]
        name = min(_NAME_WIDTH, max(len(line.name) for line in lines))
        where = _WHERE_WIDTH if any(line.where for line in lines) else 0
        if name + sum(width + _GAP for width in widths) + where <= console.width:
            return statistics
    return statistics


def _lines(rows: Sequence[ComparisonRow], statistics: Sequence[str], seeds: int) -> Iterator[_Line]:
    """Yield a line for each figure that has one of `statistics`."""
    # The rows of one figure follow each other.
    for name, of_name in groupby(rows, key=lambda row: row.name):
        by_statistic: dict[str, Cell] = {
            row.statistic: row.cells[0] for row in of_name if row.cells[0] is not None
        }
        shown = [by_statistic.get(statistic) for statistic in statistics]
        if not any(shown):
            continue
        # All rows of a figure have the same unit. `of_name` is an iterator, which is at its end
        # here, so the unit comes from `rows`.
        unit = next(row.unit for row in rows if row.name == name)
        cells = tuple("" if cell is None else range_text(cell, unit) for cell in shown)
        runs = max(cell.runs for cell in shown if cell is not None)
        yield _Line(name=name, cells=cells, where=f"{runs} of {seeds}" if runs < seeds else "")
