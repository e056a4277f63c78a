"""Comparison of runs: one row per figure, one column per run or per set of runs.

A figure is one number of a run's summary, such as the median of its commit gaps. A measure is one
quantity of a fault: a phase of the failover, a count, or a gap in service. The measure has a value
for each subject of the fault (partition, member or group). Its distribution over the subjects gives
the figures: the percentiles and the maximum. A felt measure is about an effect that users of a
group notice, such as records that wait. It has a value for each partition of the run, and its
distribution is called a spread.

A row about a fault compares one fault of each run. Faults are matched by kind and order: the second
crash of one run with the second crash of another. If no two runs have a kind of fault in common,
faults are matched by order alone. A figure that a run lacks is None, never 0.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pipeline.summary.comparison_cells import (
    NEVER,
    Cell,
    Unit,
    cell_of,
    differs,
    marked,
    middle,
    text_cell_of,
)
from pipeline.summary.felt import FELT_MEASURES, FeltGroup, Spread
from pipeline.summary.figures import (
    MARK,
    MEASURES,
    Distribution,
    FaultSummary,
    Measure,
    RunSummary,
)

MAX_COLUMNS = 8
"""Maximum number of runs that have a column each. If there are more, all runs of an experiment
share a column.
"""
MAX_FAULTS_OF_A_KIND = 8
"""Maximum number of faults of one kind that are compared one by one. If a run has more, all faults
of the kind are compared as one set.
"""
_IN_FULL_ONLY = frozenset({"p90", "p99"})
"""Percentiles of phases and gaps that only a full comparison shows."""
Statistic = Literal["p50", "p90", "p99", "max", "sum", ""]
"""Statistic over the subjects of one run; empty if the figure is one number per run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One run, or all runs with the same title. `runs` are the names of the runs.

    They are in the order in which the runs were given.
    """

    title: str
    runs: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonRow:
    """One figure over all columns.

    - `fault`: the name of the matched faults (`crash 2`, `fault 1`); None for a figure of the whole
      run.
    - `group`: the heading under which the row stands (not a consumer group): a chain of phases
      (`broker`, `client`), `gap`, `outcome`, `felt` or `run`.
    - `cells`: one for each column; None if the column lacks the figure.
    - `differs`: True if the columns differ notably (`comparison_cells.differs`). In a row about a
      fault, only the columns with this fault count.
    """

    fault: str | None
    group: str
    name: str
    statistic: Statistic
    unit: Unit
    cells: tuple[Cell | None, ...]
    differs: bool

    @property
    def label(self) -> str:
        """The name of the figure with its statistic: `commit gap p50`."""
        return f"{self.name} {self.statistic}" if self.statistic else self.name

    @property
    def texts(self) -> tuple[str | None, ...]:
        """The text of each column; None if it lacks the figure."""
        return tuple(None if cell is None else cell.text for cell in self.cells)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The comparison of runs. The rows about faults come before those about whole runs."""

    columns: tuple[Column, ...]
    rows: tuple[ComparisonRow, ...]

    @property
    def faults(self) -> tuple[str, ...]:
        """The names of the matched faults, in the order of their rows."""
        return tuple(dict.fromkeys(row.fault for row in self.rows if row.fault is not None))


def comparison_notes(comparison: Comparison, runtimes: Iterable[str]) -> tuple[str, ...]:
    """Return warnings about different runtimes, columns of one run, and machines that were away."""
    names = tuple(dict.fromkeys(runtimes))
    several = len(comparison.columns) > 1
    notes = []
    if len(names) > 1:
        notes.append(
            f"runs on {' and '.join(names)} stand beside each other: times in virtual time are the "
            "model's, those on ray are this machine's"
        )
    if several and any(len(column.runs) == 1 for column in comparison.columns):
        notes.append(
            "a column of one run is one throw: what differs may be chance; `run --seeds 1..20` "
            "gives medians and ranges"
        )
    if any(cell is not None and cell.disturbed for row in comparison.rows for cell in row.cells):
        notes.append(
            f"{MARK.strip()} marks figures of a time in which a machine was away by accident: they "
            "prove nothing"
        )
    return tuple(notes)


def compare_runs(
    summaries: Sequence[RunSummary],
    *,
    names: Sequence[str] | None = None,
    verdicts: Sequence[str | None] | None = None,
    in_full: bool = False,
) -> Comparison:
    """Compare runs by their main figures, or, with `in_full`, by all figures that they have.

    `names` and `verdicts` have one entry per summary. Runs with the same name share a column, which
    shows the median over these runs and the range. Without `names`, up to MAX_COLUMNS runs have a
    column each; more runs share one column per experiment.
    Raises: ValueError if the numbers of summaries, names and verdicts differ.
    """
    titles = list(names) if names is not None else _titles(summaries)
    given_verdicts = list(verdicts) if verdicts is not None else [None] * len(summaries)
    if not len(titles) == len(given_verdicts) == len(summaries):
        raise ValueError(
            f"{len(summaries)} runs have {len(titles)} names and {len(given_verdicts)} verdicts: "
            "one each is needed"
        )

    indexes_by_title: dict[str, list[int]] = {}
    for index, title in enumerate(titles):
        indexes_by_title.setdefault(title, []).append(index)
    columns = tuple(
        Column(title=title, runs=tuple(summaries[index].run for index in indexes))
        for title, indexes in indexes_by_title.items()
    )

    indexes_by_column = tuple(tuple(indexes) for indexes in indexes_by_title.values())
    table = _Table(summaries, indexes_by_column, in_full)
    all_rows = (*table.fault_rows(), *table.run_rows(given_verdicts))
    # A cell without a value is None. A row is shown if at least one of its cells has a value.
    rows_with_values = tuple(row for row in all_rows if any(row.cells))
    return Comparison(columns=columns, rows=rows_with_values)


def _titles(summaries: Sequence[RunSummary]) -> list[str]:
    """Return the default names: the runs' names or, for many runs, their experiments' names."""
    if len(summaries) <= MAX_COLUMNS:
        return [summary.run for summary in summaries]
    # The name of a run is EXPERIMENT/RUN.
    return [summary.run.split("/", maxsplit=1)[0] for summary in summaries]


@dataclass(frozen=True, slots=True)
class _Table:
    """Builds the rows of a comparison.

    - `indexes`: for each column, the indexes of its runs in `summaries`.
    - `in_full`: see `compare_runs`.

    The parameter `faults` of some methods holds the matched faults of one row: a sequence for each
    run, which is empty if the run lacks the fault.
    """

    summaries: Sequence[RunSummary]
    indexes: tuple[tuple[int, ...], ...]
    in_full: bool

    def fault_rows(self) -> Iterator[ComparisonRow]:
        """Yield the rows about each fault: phases and gaps, then rebalances and members."""
        for name, faults in _matched_faults(self.summaries).items():
            has_fault = [bool(faults_of_run) for faults_of_run in faults]
            rows = [
                row
                for measure in MEASURES
                # The main figures are times; counts are only in a full comparison.
                if measure.is_time or self.in_full
                for row in self._measure_rows(name, measure, faults)
            ]
            for figure, value_of in _OUTCOMES:
                sums = _sums_over_faults(faults, value_of)
                rows.append(self._row(name, "outcome", figure, "count", sums))
            yield from (self._with_differs(row, has_fault) for row in rows)

    def _with_differs(self, row: ComparisonRow, has_fault: Sequence[bool]) -> ComparisonRow:
        """Return the row with `differs` computed over the columns that have the fault.

        A column without the fault lacks all its figures. If it counted, every row would differ.
        `has_fault`: for each run, whether it has the fault.
        """
        cells_with_fault = [
            cell
            for cell, indexes in zip(row.cells, self.indexes, strict=True)
            if any(has_fault[index] for index in indexes)
        ]
        return replace(row, differs=differs(cells_with_fault, row.unit))

    def _measure_rows(
        self, name: str, measure: Measure, faults: Sequence[Sequence[FaultSummary]]
    ) -> Iterator[ComparisonRow]:
        """Yield the rows of one measure, one for each statistic (percentile or maximum)."""
        # `is_about` leaves out a measure that says nothing about the fault, often because it is 0
        # for all subjects. `if_zero` keeps such zeros, because a full comparison needs them beside
        # a run in which the measure says something.
        is_shown = any(fault.is_about(measure) for of_run in faults for fault in of_run)
        if_zero = self.in_full and is_shown
        # For each run, the measure's distributions: one for each of the run's matched faults.
        figures = [
            [
                distribution
                for fault in of_run
                if fault.is_about(measure, if_zero=if_zero)
                and (distribution := fault.distribution(measure.name)) is not None
            ]
            for of_run in faults
        ]

        # For each run, the error of its clocks, and whether a machine was away by accident.
        bounds = [max((figure.bound_us for figure in of_run), default=0) for of_run in figures]
        disturbed = [any(figure.disturbed for figure in of_run) for of_run in figures]

        # Each statistic is a tuple: its name, the function that gets its value from a distribution,
        # and `longest`. If several faults of one run are compared as one set, their values become
        # one value: the maximum if `longest` is True, else the median.
        statistics: tuple[tuple[Statistic, Callable[[Distribution], int | None], bool], ...] = (
            ("p50", lambda figure: figure.percentile(50), False),
            ("p90", lambda figure: figure.percentile(90), False),
            ("p99", lambda figure: figure.percentile(99), False),
            ("max", lambda figure: figure.maximum, True),
        )
        unit: Unit = "us" if measure.is_time else "count"
        for statistic, value_of, longest in statistics:
            if statistic in _IN_FULL_ONLY and not self.in_full:
                continue
            values = [_over_faults(map(value_of, of_run), longest=longest) for of_run in figures]
            yield self._row(
                name,
                measure.chain,
                measure.name,
                unit,
                values,
                statistic=statistic,
                bounds=bounds,
                disturbed=disturbed,
            )

    def run_rows(self, verdicts: Sequence[str | None]) -> Iterator[ComparisonRow]:
        """Yield the rows about the runs as a whole."""
        yield self._text_row("verdict", verdicts)
        runs = self.summaries
        # Each row as a tuple: its name, and for each run the longest time and whether a machine was
        # away by accident in such a time.
        lengths = (
            (
                "two coordinators at once",
                [_coordinators_us(run) for run in runs],
                [any(pair.disturbed for pair in run.coordinators) for run in runs],
            ),
            (
                "two owners at once",
                [_owners_us(run) for run in runs],
                [any(pair.disturbed for pair in run.owners) for run in runs],
            ),
        )
        for name, values, disturbed in lengths:
            row = self._row(None, "run", name, "us", values, statistic="max", disturbed=disturbed)
            yield _never_for_zero(row)
        errors = [sum(error.commits for error in run.commit_errors) for run in runs]
        yield self._row(None, "run", "commits that failed", "count", _if_complete(runs, errors))
        yield from self._felt_rows()

    def _felt_rows(self) -> Iterator[ComparisonRow]:
        """Yield the rows of the felt measures, over all partitions.

        A measure that is 0 in all runs is left out, except in a full comparison if the measure's
        `if_zero` is set.
        """
        bounds = [run.clock_error_us for run in self.summaries]
        groups = [None if run.felt is None else run.felt.in_all for run in self.summaries]
        disturbed = [run.felt is not None and run.felt.disturbed for run in self.summaries]
        for measure in FELT_MEASURES:
            spreads = [
                None if group is None else group.spreads.get(measure.name) for group in groups
            ]
            spreads_of_runs = [spread for spread in spreads if spread is not None]
            # A measure that no run has is not shown at all.
            is_zero_shown = self.in_full and measure.if_zero and spreads_of_runs
            is_zero = not any(spread.says_something for spread in spreads_of_runs)
            if is_zero and not is_zero_shown:
                continue

            statistics: tuple[tuple[Statistic, Callable[[Spread], int | None]], ...] = (
                ("p50", lambda spread: spread.p50),
                ("p90", lambda spread: spread.p90),
                ("max", lambda spread: spread.maximum),
                ("sum", lambda spread: spread.total),
            )
            for statistic, value_of in statistics:
                if statistic == "sum" and not measure.adds_up:
                    continue
                values = [None if spread is None else value_of(spread) for spread in spreads]
                unit: Unit = "us" if measure.is_time else "count"
                yield self._row(
                    None,
                    "felt",
                    measure.name,
                    unit,
                    values,
                    statistic=statistic,
                    bounds=bounds,
                    disturbed=disturbed,
                )

            # `missing` counts partitions whose time had not ended when the run ended.
            missing = [None if spread is None else spread.missing for spread in spreads]
            if measure.is_time and any(missing):
                never = f"{measure.name}: never"
                yield self._row(None, "felt", never, "count", missing, disturbed=disturbed)

        for name, count_of in _FELT_COUNTS:
            counts = [None if group is None else count_of(group) for group in groups]
            yield self._row(None, "felt", name, "count", counts, disturbed=disturbed)

    def _row(
        self,
        fault: str | None,
        group: str,
        name: str,
        unit: Unit,
        values: Sequence[int | None],
        *,
        statistic: Statistic = "",
        bounds: Sequence[int] | None = None,
        disturbed: Sequence[bool] | None = None,
    ) -> ComparisonRow:
        """Return a row of figures.

        `values`, `bounds` and `disturbed` have one entry for each run. `bounds` are the errors of
        the clocks in microseconds. `disturbed` is True for a run in which a machine was away by
        accident in the time of the figure.
        """
        cells = tuple(
            cell_of([values[index] for index in indexes], unit, _bound(indexes, bounds))
            for indexes in self.indexes
        )
        if disturbed is not None:
            cells = tuple(
                marked(cell) if any(disturbed[index] for index in indexes) else cell
                for cell, indexes in zip(cells, self.indexes, strict=True)
            )
        return ComparisonRow(
            fault=fault,
            group=group,
            name=name,
            statistic=statistic,
            unit=unit,
            cells=cells,
            differs=differs(cells, unit),
        )

    def _text_row(self, name: str, values: Sequence[str | None]) -> ComparisonRow:
        """Return a row of texts, such as verdicts.

        Columns differ if the first words of their texts differ. In a column of several runs, this
        is the first text that occurs; the numbers that follow do not matter.
        """
        cells = tuple(
            text_cell_of([values[index] for index in indexes]) for indexes in self.indexes
        )
        texts = {None if cell is None else cell.text.split(" ")[0] for cell in cells}
        return ComparisonRow(
            fault=None,
            group="run",
            name=name,
            statistic="",
            unit="text",
            cells=cells,
            differs=len(texts) > 1,
        )


def _never_for_zero(row: ComparisonRow) -> ComparisonRow:
    """Return a row that shows NEVER instead of a length of 0."""
    cells = tuple(
        # `high` is the greatest length. If it is 0, the measured thing happened in no run.
        replace(cell, text=NEVER) if cell is not None and cell.high == 0 else cell
        for cell in row.cells
    )
    return replace(row, cells=cells)


def _bound(indexes: Sequence[int], bounds: Sequence[int] | None) -> int:
    """Return the largest error of the clocks over the runs of one column."""
    return 0 if bounds is None else max(bounds[index] for index in indexes)


def _matched_faults(
    summaries: Sequence[RunSummary],
) -> dict[str, tuple[tuple[FaultSummary, ...], ...]]:
    """Return the faults that are compared with one another, by the name of their rows (`crash 2`).

    Faults are matched by kind and order. If no two runs have a kind in common, they are matched by
    order alone. An entry has a tuple for each run. The tuple holds the run's matched fault, and is
    empty if the run has no such fault. If some run has more than MAX_FAULTS_OF_A_KIND faults of a
    kind, the tuples hold all faults of that kind.
    """
    by_kind: dict[str, list[list[FaultSummary]]] = {}  # for each kind, the faults of each run
    for index, summary in enumerate(summaries):
        for fault in summary.faults:
            # `kind` is None if the run did not record it.
            runs = by_kind.setdefault(fault.kind or "fault", [[] for _ in summaries])
            runs[index].append(fault)
    # `sum` counts the runs that have a fault of a kind. If it is 1 for all kinds, no two runs have
    # a kind in common.
    if len(summaries) > 1 and all(sum(map(bool, runs)) == 1 for runs in by_kind.values()):
        by_kind = {"fault": [list(summary.faults) for summary in summaries]}

    matched: dict[str, tuple[tuple[FaultSummary, ...], ...]] = {}
    for kind, runs in by_kind.items():
        most = max(len(faults) for faults in runs)
        if most > MAX_FAULTS_OF_A_KIND:
            matched[f"{kind}, all"] = tuple(tuple(faults) for faults in runs)
            continue
        for nth in range(most):
            name = kind if most == 1 else f"{kind} {nth + 1}"
            # A slice instead of an index: it is empty if a run has fewer faults of the kind.
            matched[name] = tuple(tuple(faults[nth : nth + 1]) for faults in runs)
    return matched


def _over_faults(values: Iterable[int | None], *, longest: bool) -> int | None:
    """Return one value for several faults of a run: the longest, or the median."""
    known = sorted(value for value in values if value is not None)
    if not known:
        return None
    return known[-1] if longest else middle(known)


def _sums_over_faults(
    faults: Sequence[Sequence[FaultSummary]], value_of: Callable[[FaultSummary], int | None]
) -> list[int | None]:
    """Return for each run the sum of a count over its faults; None if no fault has the count."""
    sums = []
    for of_run in faults:
        known = [value for value in map(value_of, of_run) if value is not None]
        sums.append(sum(known) if known else None)
    return sums


def _rebalances(fault: FaultSummary) -> int | None:
    return fault.rebalance_count


def _kept(fault: FaultSummary) -> int | None:
    """Return how many members kept their member id and generation (number of the rebalance).

    Returns None if the fault affected no group.
    """
    return fault.members_kept if fault.members else None


def _members(fault: FaultSummary) -> int | None:
    """Return the number of members of the affected groups; None if the fault affected no group."""
    return fault.members or None


_OUTCOMES: tuple[tuple[str, Callable[[FaultSummary], int | None]], ...] = (
    ("rebalances", _rebalances),
    ("members kept", _kept),
    ("members", _members),
)
"""Name of each count of a fault's outcomes, and the function that returns it."""


_FELT_COUNTS: tuple[tuple[str, Callable[[FeltGroup], int]], ...] = (
    ("rebalances", lambda group: group.rebalances),
    ("partitions moved", lambda group: group.moved),
    ("partitions that came back", lambda group: group.came_back),
    ("members sent away needlessly", lambda group: group.sent_away),
)
"""Name of each felt count of a run, and the function that returns it."""


def _if_complete(runs: Sequence[RunSummary], values: Sequence[int]) -> list[int | None]:
    """Return counts, but None for a run without events, because its 0 would mean nothing."""
    return [value if run.events else None for run, value in zip(runs, values, strict=True)]


def _coordinators_us(run: RunSummary) -> int | None:
    """Return the longest time with two coordinators; None for a run without events."""
    longest = max((pair.to_us - pair.from_us for pair in run.coordinators), default=0)
    return longest if run.events else None


def _owners_us(run: RunSummary) -> int | None:
    """Return the longest time with two owners; None for a run without events.

    A time shorter than the error of the clocks is not certain, and does not count.
    """
    lengths = [pair.longest_us for pair in run.owners if pair.longest_us >= run.clock_error_us]
    return max(lengths, default=0) if run.events else None
