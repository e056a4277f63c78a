"""Several runs side by side: one row a figure, one column a run, or a configuration of many runs.

Knows neither Spark nor page nor terminal: it works on summaries. Faults of unlike runs are lined up
by kind and order, so that the second crash of one run stands beside the second crash of another;
where no two runs have a kind of fault in common, the first fault stands beside the first.
What a run does not have is missing (None), never 0.
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
    middle,
    text_cell_of,
)
from pipeline.summary.felt import FELT_MEASURES, FeltGroup, Spread
from pipeline.summary.figures import (
    MEASURES,
    Distribution,
    FaultSummary,
    Measure,
    RunSummary,
)

MAX_COLUMNS = 8
"""Up to so many runs have a column each; more are put together by experiment."""
MAX_FAULTS_OF_A_KIND = 8
"""Up to so many faults of one kind are compared one by one; more are taken together."""
_IN_FULL_ONLY = frozenset({"p90", "p99"})
"""Percentiles of phases and gaps that only a comparison in full has."""
Statistic = Literal["p50", "p90", "p99", "max", "sum", ""]
"""Of the subjects of one run; empty: the figure is one number a run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One run, or all runs of one name. `runs` are their names, in the order in which they came."""

    title: str
    runs: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonRow:
    """One figure over all columns; a cell is None where it is missing.

    `fault` is the fault as it is lined up (`crash 2`, `fault 1`), None for a figure of the whole
    run. `group` says where it belongs: a chain, `outcome`, `felt` or `run`. `differs`: columns
    that have the fault are not alike.
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
        """The figure's name as people say it: `commit gap p50`."""
        return f"{self.name} {self.statistic}" if self.statistic else self.name

    @property
    def texts(self) -> tuple[str | None, ...]:
        """What each column shows; None: it has no such figure."""
        return tuple(None if cell is None else cell.text for cell in self.cells)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Runs side by side. Rows come fault by fault, in time order, then those of the whole runs."""

    columns: tuple[Column, ...]
    rows: tuple[ComparisonRow, ...]

    @property
    def faults(self) -> tuple[str, ...]:
        """The faults as they are lined up, in order."""
        return tuple(dict.fromkeys(row.fault for row in self.rows if row.fault is not None))


def comparison_notes(comparison: Comparison, runtimes: Iterable[str]) -> tuple[str, ...]:
    """Return what keeps columns from being compared figure by figure, a sentence each."""
    names = tuple(dict.fromkeys(runtimes))
    several = len(comparison.columns) > 1
    said = []
    if len(names) > 1:
        said.append(
            f"runs on {' and '.join(names)} stand beside each other: times in virtual time are the "
            "model's, those on ray are this machine's"
        )
    if several and any(len(column.runs) == 1 for column in comparison.columns):
        said.append(
            "a column of one run is one throw: what differs may be chance; `run --seeds 1..20` "
            "gives medians and ranges"
        )
    return tuple(said)


def compare_runs(
    summaries: Sequence[RunSummary],
    *,
    names: Sequence[str] | None = None,
    verdicts: Sequence[str | None] | None = None,
    in_full: bool = False,
) -> Comparison:
    """Put runs side by side: their main figures, or `in_full` all that closing summaries have.

    Shape: `names` and `verdicts` belong to `summaries`, one each. Runs of one name share a column,
    which then shows the median over runs and the range. Without names every run has a column, and
    past MAX_COLUMNS every experiment.
    Raises: ValueError if their numbers differ.
    """
    titles = list(names) if names is not None else _titles(summaries)
    said = list(verdicts) if verdicts is not None else [None] * len(summaries)
    if not len(titles) == len(said) == len(summaries):
        raise ValueError(
            f"{len(summaries)} runs have {len(titles)} names and {len(said)} verdicts: "
            "one each is needed"
        )
    places: dict[str, list[int]] = {}
    for place, title in enumerate(titles):
        places.setdefault(title, []).append(place)
    columns = tuple(
        Column(title=title, runs=tuple(summaries[place].run for place in found))
        for title, found in places.items()
    )
    table = _Table(summaries, tuple(tuple(found) for found in places.values()), in_full)
    rows = [row for row in (*table.fault_rows(), *table.run_rows(said)) if any(row.cells)]
    return Comparison(columns=columns, rows=tuple(rows))


def _titles(summaries: Sequence[RunSummary]) -> list[str]:
    """Return the default names: the run's own while they are few, else its experiment's."""
    if len(summaries) <= MAX_COLUMNS:
        return [summary.run for summary in summaries]
    return [summary.run.split("/", maxsplit=1)[0] for summary in summaries]


@dataclass(frozen=True, slots=True)
class _Table:
    """Builds rows: `places` are the runs of each column, by their place in `summaries`."""

    summaries: Sequence[RunSummary]
    places: tuple[tuple[int, ...], ...]
    in_full: bool

    def fault_rows(self) -> Iterator[ComparisonRow]:
        lined_up = _lined_up(self.summaries)
        for name, faults in lined_up.items():
            there = [bool(of_run) for of_run in faults]
            rows = [
                row
                for measure in MEASURES
                if measure.is_time or self.in_full
                for row in self._measure_rows(name, measure, faults)
            ]
            for figure, value_of in _OUTCOMES:
                rows.append(self._row(name, "outcome", figure, "count", _each(faults, value_of)))
            yield from (self._marked(row, there) for row in rows)

    def _marked(self, row: ComparisonRow, there: Sequence[bool]) -> ComparisonRow:
        """Return a row that differs only if columns differ which have the fault at all."""
        concerned = [
            cell
            for cell, places in zip(row.cells, self.places, strict=True)
            if any(there[place] for place in places)
        ]
        return replace(row, differs=differs(concerned, row.unit))

    def _measure_rows(
        self, name: str, measure: Measure, faults: Sequence[Sequence[FaultSummary]]
    ) -> Iterator[ComparisonRow]:
        shown = any(fault.is_about(measure) for of_run in faults for fault in of_run)
        if_zero = self.in_full and shown  # beside other runs a 0 is a figure
        found = [
            [
                fault.distribution(measure.name)
                for fault in of_run
                if fault.is_about(measure, if_zero=if_zero)
            ]
            for of_run in faults
        ]
        known = [[each for each in of_run if each is not None] for of_run in found]
        bounds = [max((each.bound_us for each in of_run), default=0) for of_run in known]
        statistics: tuple[tuple[Statistic, Callable[[Distribution], int | None], bool], ...] = (
            ("p50", lambda each: each.percentile(50), False),
            ("p90", lambda each: each.percentile(90), False),
            ("p99", lambda each: each.percentile(99), False),
            ("max", lambda each: each.maximum, True),
        )
        unit: Unit = "us" if measure.is_time else "count"
        for statistic, value_of, longest in statistics:
            if statistic in _IN_FULL_ONLY and not self.in_full:
                continue
            values = [_over_faults(map(value_of, of_run), longest=longest) for of_run in known]
            yield self._row(
                name, measure.chain, measure.name, unit, values, statistic=statistic, bounds=bounds
            )

    def run_rows(self, verdicts: Sequence[str | None]) -> Iterator[ComparisonRow]:
        """Yield what is said of runs as a whole."""
        yield self._text_row("verdict", verdicts)
        runs = self.summaries
        lengths = (
            ("two coordinators at once", [_coordinators_us(run) for run in runs]),
            ("two owners at once", [_owners_us(run) for run in runs]),
        )
        for name, values in lengths:
            yield _never_for_zero(self._row(None, "run", name, "us", values, statistic="max"))
        errors = [sum(each.commits for each in run.commit_errors) for run in runs]
        yield self._row(None, "run", "commits that failed", "count", _if_complete(runs, errors))
        yield from self._felt_rows()

    def _felt_rows(self) -> Iterator[ComparisonRow]:
        """Yield what was felt over all partitions.

        What no run felt anything of is left out, unless a 0 is asked for, too.
        """
        bounds = [run.clock_error_us for run in self.summaries]
        groups = [None if run.felt is None else run.felt.in_all for run in self.summaries]
        for measure in FELT_MEASURES:
            spreads = [None if each is None else each.spreads.get(measure.name) for each in groups]
            known = [spread for spread in spreads if spread is not None]
            as_zero = self.in_full and measure.if_zero and known
            if not as_zero and not any(spread.says_something for spread in known):
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
                    None, "felt", measure.name, unit, values, statistic=statistic, bounds=bounds
                )
            missing = [None if spread is None else spread.missing for spread in spreads]
            if measure.is_time and any(missing):
                yield self._row(None, "felt", f"{measure.name}: never", "count", missing)
        for name, count_of in _FELT_COUNTS:
            counts = [None if each is None else count_of(each) for each in groups]
            yield self._row(None, "felt", name, "count", counts)

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
    ) -> ComparisonRow:
        cells = tuple(
            cell_of([values[place] for place in places], unit, _bound(places, bounds))
            for places in self.places
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
        cells = tuple(text_cell_of([values[place] for place in places]) for places in self.places)
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
    """Return a row in which a length of 0 reads as what it means: it never happened."""
    cells = tuple(
        replace(cell, text=NEVER) if cell is not None and cell.high == 0 else cell
        for cell in row.cells
    )
    return replace(row, cells=cells)


def _bound(places: Sequence[int], bounds: Sequence[int] | None) -> int:
    return 0 if bounds is None else max(bounds[place] for place in places)


def _lined_up(
    summaries: Sequence[RunSummary],
) -> dict[str, tuple[tuple[FaultSummary, ...], ...]]:
    """Return the faults that stand beside one another, by name: for each run none, one or many.

    By kind and order; if no two runs have a kind in common, by order alone.
    """
    by_kind: dict[str, list[list[FaultSummary]]] = {}
    for place, summary in enumerate(summaries):
        for fault in summary.faults:
            runs = by_kind.setdefault(fault.kind or "fault", [[] for _ in summaries])
            runs[place].append(fault)
    if len(summaries) > 1 and all(sum(map(bool, runs)) == 1 for runs in by_kind.values()):
        by_kind = {"fault": [list(summary.faults) for summary in summaries]}  # nothing in common
    found: dict[str, tuple[tuple[FaultSummary, ...], ...]] = {}
    for kind, runs in by_kind.items():
        most = max(len(faults) for faults in runs)
        if most > MAX_FAULTS_OF_A_KIND:
            found[f"{kind}, all"] = tuple(tuple(faults) for faults in runs)
            continue
        for nth in range(most):
            name = kind if most == 1 else f"{kind} {nth + 1}"
            found[name] = tuple(tuple(faults[nth : nth + 1]) for faults in runs)
    return found


def _over_faults(values: Iterable[int | None], *, longest: bool) -> int | None:
    """Return one value for the faults of a run that are taken together."""
    known = sorted(value for value in values if value is not None)
    if not known:
        return None
    return known[-1] if longest else middle(known)


def _each(
    faults: Sequence[Sequence[FaultSummary]], value_of: Callable[[FaultSummary], int | None]
) -> list[int | None]:
    """Return the sum of a count over the faults of each run; None: it has none."""
    found = []
    for of_run in faults:
        known = [value for value in map(value_of, of_run) if value is not None]
        found.append(sum(known) if known else None)
    return found


def _rebalances(fault: FaultSummary) -> int | None:
    return fault.rebalance_count


def _kept(fault: FaultSummary) -> int | None:
    return fault.members_kept if fault.members else None


def _members(fault: FaultSummary) -> int | None:
    return fault.members or None


_OUTCOMES: tuple[tuple[str, Callable[[FaultSummary], int | None]], ...] = (
    ("rebalances", _rebalances),
    ("members kept", _kept),
    ("members", _members),
)


_FELT_COUNTS: tuple[tuple[str, Callable[[FeltGroup], int]], ...] = (
    ("rebalances", lambda group: group.rebalances),
    ("partitions moved", lambda group: group.moved),
    ("partitions that came back", lambda group: group.came_back),
    ("members sent away needlessly", lambda group: group.sent_away),
)


def _if_complete(runs: Sequence[RunSummary], values: Sequence[int]) -> list[int | None]:
    """Return counts, where a 0 of a run without events is no count."""
    return [value if run.events else None for run, value in zip(runs, values, strict=True)]


def _coordinators_us(run: RunSummary) -> int | None:
    longest = max((both.to_us - both.from_us for both in run.coordinators), default=0)
    return longest if run.events else None


def _owners_us(run: RunSummary) -> int | None:
    lengths = [both.longest_us for both in run.owners if both.longest_us >= run.clock_error_us]
    return max(lengths, default=0) if run.events else None
