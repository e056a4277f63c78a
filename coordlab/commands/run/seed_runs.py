"""SeedRuns: the results of several seeds of one experiment, with exit code, figures and documents.

`seeds` plays the seeds, `seeds_view` prints the results. A seed determines all random choices of a
run. A figure is a number that each run prints at its end; over several seeds it has a median and a
range.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from chaos.results.run_directory import PastRun
from coordlab.junit import Suite, document, suite_of_failure, suite_of_run
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
    """Outcome of a seed. The output of `run --seeds` lists the outcomes in this order.

    If a seed FAILED, coordlab itself failed, so the run says nothing about Kafka. VIOLATED, UNKNOWN
    and PASSED are the verdicts of complete runs, the worst first.
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
"""Measures by which `SeedRuns.chosen` finds the median run. It uses the first measure that at least
one run has. A measure is a length of time after a fault:

- "detect": from the fault until the controller has decided what to do about the failed node;
- "commit gap": a member's time without an acknowledged commit of its offsets;
- "processing gap": a partition's time in which no member processes its records.
"""


@dataclass(frozen=True, kw_only=True)
class SeedRun:
    """The result of one seed.

    - `replay`: the command that plays the seed again. A seed that was not played has no more than
      `seed` and `replay`.
    - `past`: the run directory; None if none was made.
    - `results`: None if the run wrote none.
    - `summary`: None if the run did not complete, or if its trace is so large that only Spark
      computes its figures (`coordlab analyze`).
    - `failure`: the traceback of an error of coordlab itself.
    """

    seed: int
    replay: str
    past: PastRun | None = None
    results: Results | None = None
    summary: RunSummary | None = None
    failure: str | None = None

    @cached_property
    def state(self) -> SeedState:
        """Outcome of the seed."""
        results = self.results
        if self.failure is not None:
            return SeedState.FAILED
        if results is None:
            # A run that began but has no results was broken off by Ctrl-C, because any other reason
            # would be in `failure`.
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
        """One line on the reason for which the seed did not pass."""
        if self.failure is not None:
            # The last line of the traceback has the exception.
            return self.failure.strip().rpartition("\n")[2]
        if self.results is None:
            return ""
        if self.state is SeedState.VIOLATED:
            findings = self.results.findings
            # The first finding is printed. The results keep only some of the others, but count all.
            more = sum(check.findings_total for check in self.results.checks) - 1
            first = f"{findings[0].check}: {findings[0].summary}" if findings else "no finding kept"
            return f"{first} (and {more:,} more)" if more > 0 else first
        # The reasons of an interrupted run contain the word "interrupted", which is printed anyway.
        return "; ".join(reason for reason in self.results.reasons if reason != self.state.value)


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """The run whose report is written, and the reason for this choice."""

    run: SeedRun
    because: str


@dataclass(frozen=True, kw_only=True)
class SeedRuns:
    """The results of all requested seeds, in the order of the command line.

    `interrupted`: a Ctrl-C ended the command early.
    """

    experiment: str
    runtime: str
    runs: tuple[SeedRun, ...]
    interrupted: bool = False

    def of(self, state: SeedState) -> tuple[SeedRun, ...]:
        """Return the seeds with this outcome, in order."""
        return tuple(run for run in self.runs if run.state is state)

    @property
    def finished(self) -> tuple[SeedRun, ...]:
        """Results of the seeds that have a verdict."""
        with_verdict = frozenset(_STATE_BY_VERDICT.values())
        return tuple(run for run in self.runs if run.state in with_verdict)

    @property
    def exit_code(self) -> int:
        """The exit code of an interruption, else of a failure, else of the worst verdict."""
        if self.interrupted or self.of(SeedState.INTERRUPTED):
            return EXIT_INTERRUPTED
        if self.of(SeedState.FAILED):
            return EXIT_INTERNAL_ERROR
        if self.of(SeedState.VIOLATED):
            return EXIT_VIOLATED
        return EXIT_UNKNOWN if self.of(SeedState.UNKNOWN) else EXIT_PASS

    def check_counts(self) -> Mapping[str, Mapping[CheckOutcome, int]]:
        """Return the number of finished seeds with each outcome of each check."""
        counts: dict[str, dict[CheckOutcome, int]] = {}
        for run in self.finished:
            if run.results is None:
                continue
            for check in run.results.checks:
                of_check = counts.setdefault(check.check, dict.fromkeys(CheckOutcome, 0))
                of_check[check.outcome] += 1
        return counts

    def figures(self, summaries: Sequence[RunSummary]) -> Comparison:
        """Return every figure that a run prints at its end, over all `summaries`."""
        # `compare_runs` makes one column for each name. All runs get the same name, so there is one
        # column, whose cells have a median and a range over all runs.
        return compare_runs(summaries, names=[self.experiment] * len(summaries), in_full=True)

    def chosen(self, summaries: Mapping[int, RunSummary]) -> Chosen | None:
        """Return the run whose report is most useful; None if no seed is finished.

        It is the run of the first violated seed. If no seed was violated, it is the median run: the
        runs are ordered by their longest value of a measure (_CHOOSING_MEASURES), or by their
        lengths if no run has such a measure.

        `summaries`: the summary of each seed.
        """
        violated = self.of(SeedState.VIOLATED)
        if violated:
            return Chosen(run=violated[0], because="the first seed with a violation")
        for measure in _CHOOSING_MEASURES:
            longest = {seed: _longest_us(summary, measure) for seed, summary in summaries.items()}
            median = self._median_run(longest)
            if median is not None:
                run, value_us = median
                longest_text = duration_text(value_us)
                return Chosen(
                    run=run, because=f"its longest {measure}, {longest_text}, is the median"
                )
        # A run begins at 0 on its clock, so the time of its end is its length.
        lengths_us = {run.seed: run.results.ended_at_us for run in self.finished if run.results}
        median = self._median_run(lengths_us)
        if median is None:
            return None
        run, value_us = median
        return Chosen(run=run, because=f"its length, {duration_text(value_us)}, is the median")

    def _median_run(self, values_us: Mapping[int, int | None]) -> tuple[SeedRun, int] | None:
        """Return the finished run with the median value, and this value; None if there is no value.

        Of two middle values, the lower one is the median, so that a run has this value.

        `values_us`: the value of each seed; None if the seed has no value.
        """
        known = {
            run.seed: value_us
            for run in self.finished
            if (value_us := values_us.get(run.seed)) is not None
        }
        if not known:
            return None
        median_us = middle(sorted(known.values()))
        median_run = next(run for run in self.finished if known.get(run.seed) == median_us)
        return median_run, median_us

    def document(self) -> dict[str, object]:
        """Return the document that `--json` prints."""
        known = [run.summary for run in self.finished if run.summary is not None]
        figures = self.figures(known).rows if known else ()
        return {
            "experiment": self.experiment,
            "runtime": self.runtime,
            "exit_code": self.exit_code,
            "seeds": {state.value: [run.seed for run in self.of(state)] for state in SeedState},
            "checks": {
                check: {outcome.value: count for outcome, count in counts.items()}
                for check, counts in self.check_counts().items()
            },
            "figures": [figure for row in figures for figure in _figure_documents(row)],
            "runs": [
                {
                    "seed": run.seed,
                    "state": run.state.value,
                    "again": run.replay,
                    "run_directory": None if run.past is None else str(run.past.path),
                    "manifest": None if run.past is None else run.past.manifest,
                    "results": run.results,
                    # A caveat says what users of a group noticed although the run passed.
                    "caveats": caveats_of(run.summary) if run.state is SeedState.PASSED else (),
                    "failure": run.failure,
                }
                for run in self.runs
            ],
        }

    def junit(self) -> bytes:
        """Return JUnit XML with one suite per seed. A suite succeeds only if its seed passed."""
        return document([self._suite(run) for run in self.runs])

    def _suite(self, run: SeedRun) -> Suite:
        """Return the suite of a seed. If the run has no results, its only case is an error."""
        name = f"{self.experiment}.seed-{run.seed}"
        if run.failure is None and run.past is not None and run.results is not None:
            return suite_of_run(run.past.manifest, run.results, run.past.path, name=name)
        if run.failure is not None:
            return suite_of_failure(name, run.failure, kind="internal_error")
        return suite_of_failure(name, f"the seed was {run.state.value}", kind="interrupted")


def _longest_us(summary: RunSummary, measure: str) -> int | None:
    """Return the longest value of a measure over all faults of a run."""
    distributions = [fault.distribution(measure) for fault in summary.faults]
    maxima = (figures.maximum for figures in distributions if figures is not None)
    return max((maximum for maximum in maxima if maximum is not None), default=None)


def _figure_documents(row: ComparisonRow) -> Iterator[dict[str, object]]:
    """Yield the JSON entry of each cell in a row, except cells without a median."""
    for cell in row.cells:
        if cell is not None and cell.median is not None:
            yield {
                "fault": row.fault,
                "section": row.group,
                "group": row.group,  # the earlier name of `section`
                "figure": row.name,
                "statistic": row.statistic or None,
                "unit": row.unit,
                "median": cell.median,
                "smallest": cell.low,
                "largest": cell.high,
                "seeds": cell.runs,
            }
