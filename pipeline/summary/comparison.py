"""Comparison of runs: a table with a row for each figure, and a column for each run.

For example, one run uses classic rebalances and another cooperative ones. The comparison then shows
side by side how long members could not commit after the second crash, and in which figures the two
runs differ. Several runs can share a column, which shows the median and the range of their values.

Two kinds of rows are made from the summaries of the runs:

- Rows about a fault compare one fault of each run: the second crash of one run with the second
  crash of another run, for example. If no two runs have a kind of fault in common, their first
  faults are compared with one another, then their second faults, and so on.
- Rows about the whole run: the verdict, times with two coordinators or two owners, commits that
  failed, and the felt figures (what users of a group notice, such as records that wait).
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
"""Maximum number of runs that have a column each. If there are more runs, each experiment has a
column, which its runs share.
"""
MAX_FAULTS_OF_A_KIND = 8
"""Maximum number of faults of one kind for which each fault has its own rows. If a run has more
crashes than this, for example, the rows are about all its crashes together.
"""
_IN_FULL_ONLY = frozenset({"p90", "p99"})
"""Percentiles of phases and gaps that are left out, unless `compare_runs` is called with `in_full`.
"""
Statistic = Literal["p50", "p90", "p99", "max", "sum", ""]
"""How a row sums up the values of a figure. The commit gap, for example, has a value for each
member of a run, and a row shows the median of these values (p50). The statistic is empty for a
figure that is a single number of the run.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One run, or several runs with the same title. `runs` has the names of the runs."""

    title: str
    runs: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonRow:
    """One figure of all columns, such as the median of the commit gaps after the second crash.

    - `fault`: the fault that is compared, such as `crash 2`; None in a row about the whole run.
    - `group`: a key that tells under which heading the row stands; this is not a consumer group.
      A row about a measure of a fault has the measure's `figures.Chain`: `broker`, `client` or
      `gap`. Rows about rebalances and members after a fault have `outcome`. Rows about the whole
      run have `felt` or `run`.
    - `name`: the name of the figure, such as `commit gap`.
    - `cells`: one for each column; None if no run of the column has the figure.
    - `differs`: True if the columns differ notably (`comparison_cells.differs`). In a row about a
      fault, columns whose runs do not have the fault do not count.
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
        """The name of the figure and its statistic: `commit gap p50`."""
        return f"{self.name} {self.statistic}" if self.statistic else self.name

    @property
    def texts(self) -> tuple[str | None, ...]:
        """The text of each cell; None if no run of the column has the figure."""
        return tuple(None if cell is None else cell.text for cell in self.cells)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The comparison of runs. The rows about faults come before those about whole runs."""

    columns: tuple[Column, ...]
    rows: tuple[ComparisonRow, ...]

    @property
    def faults(self) -> tuple[str, ...]:
        """The names of the compared faults, such as `crash 1` and `crash 2`, in row order."""
        return tuple(dict.fromkeys(row.fault for row in self.rows if row.fault is not None))


def comparison_notes(comparison: Comparison, runtimes: Iterable[str]) -> tuple[str, ...]:
    """Return warnings about what may mislead the reader of a comparison.

    `runtimes` are the runtimes of the runs, such as `ray` and `virtual`.
    """
    distinct_runtimes = tuple(dict.fromkeys(runtimes))
    notes = []
    if len(distinct_runtimes) > 1:
        notes.append(
            f"runs on {' and '.join(distinct_runtimes)} stand beside each other: times in virtual "
            "time are the model's, those on ray are this machine's"
        )
    has_column_of_one_run = any(len(column.runs) == 1 for column in comparison.columns)
    if len(comparison.columns) > 1 and has_column_of_one_run:
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

    - `names`: the title of the column of each run. Runs with the same name share a column, which
      shows the median and the range of their values. By default, each run has a column of its own.
      If there are more than MAX_COLUMNS runs, all runs of an experiment share a column.
    - `verdicts`: the verdict of each run as a word, for the first row about the whole run.

    Raises: ValueError if there is not one name and one verdict for each summary.
    """
    titles = list(names) if names is not None else _titles(summaries)
    given_verdicts = list(verdicts) if verdicts is not None else [None] * len(summaries)
    if not len(titles) == len(given_verdicts) == len(summaries):
        raise ValueError(
            f"{len(summaries)} runs have {len(titles)} names and {len(given_verdicts)} verdicts: "
            "one each is needed"
        )

    # Runs with the same title share a column. A run is named by its index in `summaries`.
    indexes_by_title: dict[str, list[int]] = {}
    for index, title in enumerate(titles):
        indexes_by_title.setdefault(title, []).append(index)
    columns = tuple(
        Column(title=title, runs=tuple(summaries[index].run for index in indexes))
        for title, indexes in indexes_by_title.items()
    )

    runs_of_columns = tuple(tuple(indexes) for indexes in indexes_by_title.values())
    table = _Table(summaries, runs_of_columns, in_full)
    all_rows = (*table.fault_rows(), *table.run_rows(given_verdicts))
    rows_with_values = tuple(row for row in all_rows if any(cell is not None for cell in row.cells))
    return Comparison(columns=columns, rows=rows_with_values)


def _titles(summaries: Sequence[RunSummary]) -> list[str]:
    """Return the default names of the columns: the runs' names or their experiments' names."""
    if len(summaries) <= MAX_COLUMNS:
        return [summary.run for summary in summaries]
    # The name of a run begins with its experiment: `coordinator_crash/2026-03-01T120000`.
    return [summary.run.split("/", maxsplit=1)[0] for summary in summaries]


@dataclass(frozen=True, slots=True)
class _Table:
    """Builds the rows of a comparison.

    - `runs_of_columns`: for each column, the indexes of its runs in `summaries`. `((0, 2), (1,))`
      stands for two columns. The first column has the runs 0 and 2, and the second column has run
      1.
    - `in_full`: see `compare_runs`.

    The methods first make lists with an entry for each run, such as `values`. Then `_row` makes a
    cell for each column from the entries of the column's runs.
    """

    summaries: Sequence[RunSummary]
    runs_of_columns: tuple[tuple[int, ...], ...]
    in_full: bool

    def fault_rows(self) -> Iterator[ComparisonRow]:
        """Yield the rows about each fault: phases and gaps, then rebalances and members."""
        for fault, faults in _matched_faults(self.summaries).items():
            rows: list[ComparisonRow] = []
            for measure in MEASURES:
                # The main figures are times. Counts are only in a comparison in full.
                if measure.is_time or self.in_full:
                    rows += self._measure_rows(fault, measure, faults)
            for name, count_of in _OUTCOMES:
                sums = _sums_over_faults(faults, count_of)
                row = self._row(fault=fault, group="outcome", name=name, unit="count", values=sums)
                rows.append(row)
            runs_with_fault = [len(faults_of_run) > 0 for faults_of_run in faults]
            yield from (self._with_differs(row, runs_with_fault) for row in rows)

    def _with_differs(self, row: ComparisonRow, has_fault: Sequence[bool]) -> ComparisonRow:
        """Return the row with `differs` computed only over the columns that have the fault.

        A column without the fault has no figure in any row about the fault. If such a column
        counted, all rows about the fault would differ. `has_fault` has an entry for each run: True
        if the run has the fault.
        """
        cells_with_fault = [
            cell
            for cell, runs_of_column in zip(row.cells, self.runs_of_columns, strict=True)
            if any(has_fault[run] for run in runs_of_column)
        ]
        return replace(row, differs=differs(cells_with_fault, row.unit))

    def _measure_rows(
        self, fault: str, measure: Measure, faults: Sequence[Sequence[FaultSummary]]
    ) -> Iterator[ComparisonRow]:
        """Yield the rows of one measure, one for each statistic (percentile or maximum).

        `faults` has a list for each run. The list of a run contains the fault that is compared, or
        several faults that are compared together. It is empty if the run has no such fault.
        """
        distributions = self._distributions(measure, faults)
        # For each run, how far the clocks of its machines were apart. A time that is shorter than
        # this is not certain.
        bounds = [
            max((distribution.bound_us for distribution in of_run), default=0)
            for of_run in distributions
        ]
        disturbed = [
            any(distribution.disturbed for distribution in of_run) for of_run in distributions
        ]
        for statistic, value_of, over_faults in _STATISTICS:
            if statistic in _IN_FULL_ONLY and not self.in_full:
                continue
            values = [
                _one_value([value_of(distribution) for distribution in of_run], over_faults)
                for of_run in distributions
            ]
            yield self._row(
                fault=fault,
                group=measure.chain,
                name=measure.name,
                statistic=statistic,
                unit="us" if measure.is_time else "count",
                values=values,
                bounds=bounds,
                disturbed=disturbed,
            )

    def _distributions(
        self, measure: Measure, faults: Sequence[Sequence[FaultSummary]]
    ) -> list[list[Distribution]]:
        """Return for each run the distributions of a measure after its compared faults."""
        # `is_about` leaves out a measure that says nothing about a fault, often because the measure
        # is 0 for all subjects. But if the measure says something about the fault of one run, a
        # comparison in full also shows the 0 of the other runs.
        says_something = any(
            fault.is_about(measure) for faults_of_run in faults for fault in faults_of_run
        )
        if_zero = self.in_full and says_something
        return [
            [
                distribution
                for fault in faults_of_run
                if fault.is_about(measure, if_zero=if_zero)
                and (distribution := fault.distribution(measure.name)) is not None
            ]
            for faults_of_run in faults
        ]

    def run_rows(self, verdicts: Sequence[str | None]) -> Iterator[ComparisonRow]:
        """Yield the rows about the runs as a whole."""
        yield self._text_row("verdict", verdicts)
        runs = self.summaries
        two_coordinators = self._row(
            group="run",
            name="two coordinators at once",
            statistic="max",
            unit="us",
            values=[_longest_two_coordinators_us(run) for run in runs],
            disturbed=[any(pair.disturbed for pair in run.coordinators) for run in runs],
        )
        yield _never_for_zero(two_coordinators)
        two_owners = self._row(
            group="run",
            name="two owners at once",
            statistic="max",
            unit="us",
            values=[_longest_two_owners_us(run) for run in runs],
            disturbed=[any(pair.disturbed for pair in run.owners) for run in runs],
        )
        yield _never_for_zero(two_owners)
        yield self._row(
            group="run",
            name="commits that failed",
            unit="count",
            values=[_failed_commits(run) for run in runs],
        )
        yield from self._felt_rows()

    def _felt_rows(self) -> Iterator[ComparisonRow]:
        """Yield the rows of the felt measures, over all partitions of a run.

        A measure that is 0 in all runs is left out. But a comparison in full shows some measures
        even then (`FeltMeasure.if_zero`).
        """
        bounds = [run.clock_error_us for run in self.summaries]
        felt_in_all = [None if run.felt is None else run.felt.in_all for run in self.summaries]
        disturbed = [run.felt is not None and run.felt.disturbed for run in self.summaries]
        for measure in FELT_MEASURES:
            spreads = [
                None if felt is None else felt.spreads.get(measure.name) for felt in felt_in_all
            ]
            known_spreads = [spread for spread in spreads if spread is not None]
            if not known_spreads:
                continue
            is_zero = not any(spread.says_something for spread in known_spreads)
            is_shown_if_zero = self.in_full and measure.if_zero
            if is_zero and not is_shown_if_zero:
                continue

            for statistic, value_of in _FELT_STATISTICS:
                if statistic == "sum" and not measure.adds_up:
                    continue
                yield self._row(
                    group="felt",
                    name=measure.name,
                    statistic=statistic,
                    unit="us" if measure.is_time else "count",
                    values=[None if spread is None else value_of(spread) for spread in spreads],
                    bounds=bounds,
                    disturbed=disturbed,
                )

            # A partition has no value (is missing) if its time had not ended when the run ended.
            missing = [None if spread is None else spread.missing for spread in spreads]
            if measure.is_time and any(missing):
                yield self._row(
                    group="felt",
                    name=f"{measure.name}: never",
                    unit="count",
                    values=missing,
                    disturbed=disturbed,
                )

        for name, count_of in _FELT_COUNTS:
            yield self._row(
                group="felt",
                name=name,
                unit="count",
                values=[None if felt is None else count_of(felt) for felt in felt_in_all],
                disturbed=disturbed,
            )

    def _row(
        self,
        *,
        fault: str | None = None,
        group: str,
        name: str,
        statistic: Statistic = "",
        unit: Unit,
        values: Sequence[int | None],
        bounds: Sequence[int] | None = None,
        disturbed: Sequence[bool] | None = None,
    ) -> ComparisonRow:
        """Return a row of figures.

        `fault`, `group`, `name`, `statistic` and `unit` become the fields of the ComparisonRow. The
        other parameters have an entry for each run:

        - `values`: the value of the figure; None if the run does not have it.
        - `bounds`: the difference between the clocks of the run's machines, in microseconds.
        - `disturbed`: True if a machine was away by accident while the figure was measured.
        """
        cells = []
        for runs_of_column in self.runs_of_columns:
            bound_us = 0 if bounds is None else max(bounds[run] for run in runs_of_column)
            cell = cell_of([values[run] for run in runs_of_column], unit, bound_us)
            if disturbed is not None and any(disturbed[run] for run in runs_of_column):
                cell = marked(cell)
            cells.append(cell)
        return ComparisonRow(
            fault=fault,
            group=group,
            name=name,
            statistic=statistic,
            unit=unit,
            cells=tuple(cells),
            differs=differs(cells, unit),
        )

    def _text_row(self, name: str, texts: Sequence[str | None]) -> ComparisonRow:
        """Return a row of texts, such as the verdicts of the runs.

        Columns differ if the first words of their cells differ. `PASS 19, VIOLATED 1` and `PASS 20`
        do not differ.
        """
        cells = tuple(
            text_cell_of([texts[run] for run in runs_of_column])
            for runs_of_column in self.runs_of_columns
        )
        first_words = {None if cell is None else cell.text.split(" ")[0] for cell in cells}
        return ComparisonRow(
            fault=None,
            group="run",
            name=name,
            statistic="",
            unit="text",
            cells=cells,
            differs=len(first_words) > 1,
        )


def _never_for_zero(row: ComparisonRow) -> ComparisonRow:
    """Return the row with NEVER in each cell that is 0 in all runs of its column."""
    return replace(row, cells=tuple(_never_if_zero(cell) for cell in row.cells))


def _never_if_zero(cell: Cell | None) -> Cell | None:
    """Return the cell with the text NEVER if its greatest value is 0."""
    if cell is not None and cell.high == 0:
        return replace(cell, text=NEVER)
    return cell


def _matched_faults(
    summaries: Sequence[RunSummary],
) -> dict[str, tuple[tuple[FaultSummary, ...], ...]]:
    """Return which faults are compared with one another. The key is the name of the fault in rows.

    Example: the first run has two crashes and a cut, and the second run has a crash.

        "crash 1": ((first crash of run 1,), (crash of run 2,))
        "crash 2": ((second crash of run 1,), ())
        "cut": ((cut of run 1,), ())

    If no two runs have a kind of fault in common, the first faults of the runs are compared as
    `fault 1`, their second faults as `fault 2`, and so on. If a run has more than
    MAX_FAULTS_OF_A_KIND crashes, for example, the entry "crash, all" has all crashes of each run.
    """
    by_kind: dict[str, list[list[FaultSummary]]] = {}  # for each kind, a list for each run
    for run, summary in enumerate(summaries):
        for fault in summary.faults:
            kind = fault.kind or "fault"  # `kind` is None if the run did not record it
            by_kind.setdefault(kind, [[] for _ in summaries])[run].append(fault)
    if len(summaries) > 1 and not any(map(_several_runs_have, by_kind.values())):
        by_kind = {"fault": [list(summary.faults) for summary in summaries]}

    matched: dict[str, tuple[tuple[FaultSummary, ...], ...]] = {}
    for kind, faults_of_runs in by_kind.items():
        most = max(len(faults) for faults in faults_of_runs)
        if most > MAX_FAULTS_OF_A_KIND:
            matched[f"{kind}, all"] = tuple(tuple(faults) for faults in faults_of_runs)
            continue
        for index in range(most):
            name = kind if most == 1 else f"{kind} {index + 1}"
            # A run can have fewer faults of this kind. Then the slice is empty.
            matched[name] = tuple(tuple(faults[index : index + 1]) for faults in faults_of_runs)
    return matched


def _several_runs_have(faults_of_runs: Sequence[Sequence[FaultSummary]]) -> bool:
    """Return whether two or more runs have faults, given the faults of each run."""
    return sum(1 for faults in faults_of_runs if faults) > 1


_OverFaults = Literal["median", "longest"]
"""How the values of several faults become one value: it is the median of the values, or the longest
value. This is needed if a run has so many faults that they are compared together.
"""


def _one_value(values: Iterable[int | None], over_faults: _OverFaults) -> int | None:
    """Return one value for all faults of a run that are compared together.

    Returns None if no fault has a value.
    """
    known = sorted(value for value in values if value is not None)
    if not known:
        return None
    return known[-1] if over_faults == "longest" else middle(known)


_STATISTICS: tuple[tuple[Statistic, Callable[[Distribution], int | None], _OverFaults], ...] = (
    ("p50", lambda distribution: distribution.percentile(50), "median"),
    ("p90", lambda distribution: distribution.percentile(90), "median"),
    ("p99", lambda distribution: distribution.percentile(99), "median"),
    ("max", lambda distribution: distribution.maximum, "longest"),
)
"""The statistics of the measures of a fault: the name of each, how to get its value after one
fault, and how to get one value for several faults.
"""

_FELT_STATISTICS: tuple[tuple[Statistic, Callable[[Spread], int | None]], ...] = (
    ("p50", lambda spread: spread.p50),
    ("p90", lambda spread: spread.p90),
    ("max", lambda spread: spread.maximum),
    ("sum", lambda spread: spread.total),
)
"""The statistics of the felt measures: the name of each, and how to get its value."""


def _sums_over_faults(
    faults: Sequence[Sequence[FaultSummary]], count_of: Callable[[FaultSummary], int | None]
) -> list[int | None]:
    """Return for each run the sum of a count over its faults; None if no fault has the count."""
    sums = []
    for faults_of_run in faults:
        counts = [count_of(fault) for fault in faults_of_run]
        known = [count for count in counts if count is not None]
        sums.append(sum(known) if known else None)
    return sums


def _rebalances(fault: FaultSummary) -> int | None:
    """Return the number of rebalances between the fault and the next fault."""
    return fault.rebalance_count


def _kept(fault: FaultSummary) -> int | None:
    """Return how many members kept member id and generation; None if no group was affected."""
    return fault.members_kept if fault.members else None


def _members(fault: FaultSummary) -> int | None:
    """Return the number of members of the affected groups; None if the fault affected no group."""
    return fault.members or None


_OUTCOMES: tuple[tuple[str, Callable[[FaultSummary], int | None]], ...] = (
    ("rebalances", _rebalances),
    ("members kept", _kept),
    ("members", _members),
)
"""Names of the counts of a fault, and the functions that return these counts."""


_FELT_COUNTS: tuple[tuple[str, Callable[[FeltGroup], int]], ...] = (
    ("rebalances", lambda group: group.rebalances),
    ("partitions moved", lambda group: group.moved),
    ("partitions that came back", lambda group: group.came_back),
    ("members sent away needlessly", lambda group: group.sent_away),
)
"""Counts that belong to the felt figures: the name of each, and the function that returns it."""


# The next three functions return None for a run without events. Such a run has no owners and no
# errors, but a 0 would sound as if the cluster had worked well.


def _failed_commits(run: RunSummary) -> int | None:
    """Return how many commits failed after the first fault."""
    if not run.events:
        return None
    return sum(error.commits for error in run.commit_errors)


def _longest_two_coordinators_us(run: RunSummary) -> int | None:
    """Return the longest time in which a group had two coordinators; 0 if there was none."""
    if not run.events:
        return None
    return max((pair.to_us - pair.from_us for pair in run.coordinators), default=0)


def _longest_two_owners_us(run: RunSummary) -> int | None:
    """Return the longest time in which a partition had two owners; 0 if there was none.

    A time that is shorter than the difference between the clocks is not certain, and not counted.
    """
    if not run.events:
        return None
    lengths = [pair.longest_us for pair in run.owners if pair.longest_us >= run.clock_error_us]
    return max(lengths, default=0)
