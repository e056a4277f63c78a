"""The results of `run --seeds`: a SeedRun for each seed, and a SeedRuns for all of them.

The exit code, the JSON document and the JUnit file of the command are made of these results. The
results also give the median and the range of each figure over the seeds. The module `seeds` plays
the seeds and makes the SeedRuns. The module `seeds_view` prints the SeedRuns.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from chaos.results.run_directory import PastRun
from coordlab.junit import Suite, junit_document, suite_of_failure, suite_of_run
from pipeline.summary.caveats import caveats_of
from pipeline.summary.comparison import Comparison, ComparisonRow, compare_runs
from pipeline.summary.comparison_cells import middle
from pipeline.summary.figures import RunSummary, duration_text
from results_schema.results import (
    EXIT_INTERNAL_ERROR,
    EXIT_INTERRUPTED,
    EXIT_PASS,
    EXIT_UNKNOWN,
    EXIT_VIOLATED,
    CheckOutcome,
    Results,
    RunOutcome,
    Verdict,
)


class SeedState(StrEnum):
    """How a seed ended. The output lists the states in this order.

    Most seeds have a verdict: VIOLATED, UNKNOWN or PASSED. FAILED means that coordlab itself
    failed, so the seed says nothing about the cluster. At a Ctrl-C, the runs in progress are
    INTERRUPTED, and the seeds that have not begun are NOT_PLAYED.
    """

    FAILED = "failed"
    VIOLATED = "violated"
    UNKNOWN = "unknown"
    PASSED = "passed"
    INTERRUPTED = "interrupted"
    NOT_PLAYED = "not played"


_STATE_BY_VERDICT = {
    Verdict.PASS: SeedState.PASSED,
    Verdict.VIOLATED: SeedState.VIOLATED,
    Verdict.UNKNOWN: SeedState.UNKNOWN,
}
_CHOOSING_MEASURES = ("detect", "commit gap", "processing gap")
"""The measures by which `SeedRuns.chosen` finds a typical run.

The first of these measures that some run has is used:

- "detect": how long after a fault the controller has decided what to do about the failed node;
- "commit gap": how long a member got no acknowledgement for a commit of its offsets;
- "processing gap": how long no member processed the records of a partition.
"""


@dataclass(frozen=True, kw_only=True)
class SeedRun:
    """The result of one seed. A seed that was not played has only the first two fields.

    - `replay`: the command that plays the seed again.
    - `past`: the run directory; None if no directory was made.
    - `results`: the verdict and findings; None if the run wrote no results.
    - `summary`: the figures of the run; None if it did not complete, or if its trace is so large
      that only Spark can compute them.
    - `failure`: the traceback, if coordlab itself failed.
    """

    seed: int
    replay: str
    past: PastRun | None = None
    results: Results | None = None
    summary: RunSummary | None = None
    failure: str | None = None

    @cached_property
    def state(self) -> SeedState:
        """How the seed ended."""
        results = self.results
        if self.failure is not None:
            return SeedState.FAILED
        if results is None:
            # A run that has a directory but no results was broken off. The reason was a Ctrl-C: for
            # any other reason there would be a `failure`.
            return SeedState.NOT_PLAYED if self.past is None else SeedState.INTERRUPTED
        match results.outcome:
            case RunOutcome.INTERNAL_ERROR:
                return SeedState.FAILED
            case RunOutcome.INTERRUPTED:
                return SeedState.INTERRUPTED
            case RunOutcome.COMPLETED:
                return _STATE_BY_VERDICT[results.verdict]

    @property
    def why(self) -> str:
        """One line that says why the seed did not pass; "" if it passed or was not played."""
        if self.failure is not None:
            last_line_of_traceback = self.failure.strip().rpartition("\n")[2]
            return last_line_of_traceback
        if self.results is None:
            return ""
        if self.state is SeedState.VIOLATED:
            first = "no finding kept"
            if self.results.findings:
                finding = self.results.findings[0]
                first = f"{finding.check}: {finding.summary}"
            # The results keep only the first few findings of each check, but count all findings.
            more = sum(check.findings_total for check in self.results.checks) - 1
            return f"{first} (and {more:,} more)" if more > 0 else first
        # A reason that only repeats the state is left out: "seed 7 interrupted: interrupted".
        return "; ".join(reason for reason in self.results.reasons if reason != self.state.value)


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """The run whose report is written, and why it was chosen.

    `because`: a phrase such as `the first seed with a violation`.
    """

    run: SeedRun
    because: str


@dataclass(frozen=True, kw_only=True)
class SeedRuns:
    """The results of all seeds that the user named, in that order.

    `interrupted`: True if a Ctrl-C ended the command early.
    """

    experiment: str
    runtime: str
    runs: tuple[SeedRun, ...]
    interrupted: bool = False

    def of(self, state: SeedState) -> tuple[SeedRun, ...]:
        """Return the runs that ended in this state."""
        return tuple(run for run in self.runs if run.state is state)

    @property
    def finished(self) -> tuple[SeedRun, ...]:
        """The runs that have a verdict."""
        with_verdict = frozenset(_STATE_BY_VERDICT.values())
        return tuple(run for run in self.runs if run.state in with_verdict)

    @property
    def exit_code(self) -> int:
        """The exit code of the command, which is the exit code of its worst seed.

        After a Ctrl-C it is always EXIT_INTERRUPTED, because not all seeds were played.
        """
        if self.interrupted or self.of(SeedState.INTERRUPTED):
            return EXIT_INTERRUPTED
        if self.of(SeedState.FAILED):
            return EXIT_INTERNAL_ERROR
        if self.of(SeedState.VIOLATED):
            return EXIT_VIOLATED
        return EXIT_UNKNOWN if self.of(SeedState.UNKNOWN) else EXIT_PASS

    def check_counts(self) -> Mapping[str, Mapping[CheckOutcome, int]]:
        """Return for each check the number of seeds with each outcome.

        For 20 seeds this is `{"one_owner": {PASS: 18, VIOLATED: 2, ...}}`, for example.
        """
        counts: dict[str, dict[CheckOutcome, int]] = {}
        for run in self.finished:
            if run.results is None:
                continue
            for check in run.results.checks:
                no_seeds = dict.fromkeys(CheckOutcome, 0)
                counts_of_check = counts.setdefault(check.check, no_seeds)
                counts_of_check[check.outcome] += 1
        return counts

    def figures(self, summaries: Sequence[RunSummary]) -> Comparison:
        """Return each figure as its median and range over these runs."""
        # `compare_runs` compares experiments: it makes one column of all runs with the same name.
        # Here all runs are of one experiment, so there is a single column.
        return compare_runs(summaries, names=[self.experiment] * len(summaries), in_full=True)

    def chosen(self, summaries: Mapping[int, RunSummary]) -> Chosen | None:
        """Return the run whose report is most useful; None if no seed has a verdict.

        This is the first run with a violation. If there is no violation, it is a typical run: the
        run in the middle, if the runs are sorted by their longest "detect", for instance. If no run
        has any of the _CHOOSING_MEASURES, the runs are sorted by their lengths.

        `summaries`: seed -> the figures of its run.
        """
        violated = self.of(SeedState.VIOLATED)
        if violated:
            return Chosen(run=violated[0], because="the first seed with a violation")
        for measure in _CHOOSING_MEASURES:
            longest = {seed: _longest_us(summary, measure) for seed, summary in summaries.items()}
            median = self._median_run(longest)
            if median is not None:
                run, value_us = median
                because = f"its longest {measure}, {duration_text(value_us)}, is the median"
                return Chosen(run=run, because=because)
        # A run begins at 0 on its clock, so the time of its end is its length.
        lengths_us = {run.seed: run.results.ended_at_us for run in self.finished if run.results}
        median = self._median_run(lengths_us)
        if median is None:
            return None
        run, value_us = median
        return Chosen(run=run, because=f"its length, {duration_text(value_us)}, is the median")

    def _median_run(self, values_us: Mapping[int, int | None]) -> tuple[SeedRun, int] | None:
        """Return the run with the median value, and this value; None if no run has a value.

        If the number of values is even, the lower one of the two middle values is taken. Their mean
        would be the value of no run.

        `values_us`: seed -> the value of its run; None if the run has no value.
        """
        runs_with_values: list[tuple[SeedRun, int]] = []
        for run in self.finished:
            value_us = values_us.get(run.seed)
            if value_us is not None:
                runs_with_values.append((run, value_us))
        if not runs_with_values:
            return None
        median_us = middle(sorted(value_us for _, value_us in runs_with_values))
        return next(pair for pair in runs_with_values if pair[1] == median_us)

    def document(self) -> dict[str, object]:
        """Return the document that `--json` prints."""
        summaries = [run.summary for run in self.finished if run.summary is not None]
        rows = self.figures(summaries).rows if summaries else ()
        return {
            "experiment": self.experiment,
            "runtime": self.runtime,
            "exit_code": self.exit_code,
            "seeds": {state.value: [run.seed for run in self.of(state)] for state in SeedState},
            "checks": {
                check: {outcome.value: count for outcome, count in counts.items()}
                for check, counts in self.check_counts().items()
            },
            "figures": [figure for row in rows for figure in _figure_documents(row)],
            "runs": [
                {
                    "seed": run.seed,
                    "state": run.state.value,
                    "again": run.replay,
                    "run_directory": None if run.past is None else str(run.past.path),
                    "manifest": None if run.past is None else run.past.manifest,
                    "results": run.results,
                    # A caveat says what users of a group noticed although the run passed, such as
                    # a long time without commits.
                    "caveats": caveats_of(run.summary) if run.state is SeedState.PASSED else (),
                    "failure": run.failure,
                }
                for run in self.runs
            ],
        }

    def junit(self) -> bytes:
        """Return JUnit XML with a suite for each seed. A suite is green only if its seed passed."""
        return junit_document([self._suite(run) for run in self.runs])

    def _suite(self, run: SeedRun) -> Suite:
        """Return the suite of a seed: a case for each check, or an error if it has no results."""
        name = f"{self.experiment}.seed-{run.seed}"
        if run.failure is None and run.past is not None and run.results is not None:
            return suite_of_run(run.past.manifest, run.results, run.past.path, name=name)
        if run.failure is not None:
            return suite_of_failure(name, run.failure, kind="internal_error")
        return suite_of_failure(name, f"the seed was {run.state.value}", kind="interrupted")


def _longest_us(summary: RunSummary, measure: str) -> int | None:
    """Return the longest value of a measure after any fault of a run; None without a value."""
    longest_us: list[int] = []
    for fault in summary.faults:
        distribution = fault.distribution(measure)
        if distribution is not None and distribution.maximum is not None:
            longest_us.append(distribution.maximum)
    return max(longest_us, default=None)


def _figure_documents(row: ComparisonRow) -> Iterator[dict[str, object]]:
    """Yield the JSON entries of one statistic of a figure, such as the p90 of "detect".

    There is at most one entry, because the Comparison has a single column.
    """
    for cell in row.cells:
        if cell is not None and cell.median is not None:
            yield {
                "fault": row.fault,
                "section": row.group,
                "group": row.group,  # the same as `section`, for readers of older documents
                "figure": row.name,
                "statistic": row.statistic or None,
                "unit": row.unit,
                "median": cell.median,
                "smallest": cell.low,
                "largest": cell.high,
                "seeds": cell.runs,
            }
