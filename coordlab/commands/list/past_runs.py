"""Past runs as a list shows them: one line of facts each, however badly the run ended."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from chaos.results.run_directory import NotARun, PastRun, scan_runs
from coordlab.report_facts import status_of
from pipeline.report.facts import Status
from pipeline.summary.figures import RunSummary
from pipeline.summary.summary_file import read_summary

COMMIT_GAP = "commit gap"
"""The measure that a list shows: what a group felt of a fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedRun:
    """One run.

    Units: `started_at`, `ended_at` are ISO 8601. `verdict`, `exit_code` None: it has no results,
    and `problem` says why if they cannot be read. `commit_gap_us` is the longest of any member
    after any fault, None if the run was not analysed or has none.
    """

    run: str
    directory: str
    experiment: str
    started_at: str
    ended_at: str | None
    runtime: str
    seed: int
    status: Status
    verdict: str | None
    exit_code: int | None
    commit_gap_us: int | None
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PastRuns:
    """Runs by the time they began, the newest last. `total` counts those left out too.

    `unreadable` says of each directory that holds no readable run what is wrong with it.
    """

    runs: tuple[ListedRun, ...]
    total: int
    unreadable: tuple[str, ...]


def find_past_runs(root: Path, *, limit: int | None = None) -> PastRuns:
    """Return the newest `limit` runs under `root` (None: all), and what could not be read."""
    found: list[PastRun] = []
    unreadable: list[str] = []
    for each in scan_runs(root):
        if isinstance(each, PastRun):
            found.append(each)
        else:
            unreadable.append(str(each))
    found.sort(key=lambda past: past.manifest.started_at)
    shown = found if limit is None else found[-limit:]
    return PastRuns(
        runs=tuple(_listed(past) for past in shown),
        total=len(found),
        unreadable=tuple(unreadable),
    )


def _listed(past: PastRun) -> ListedRun:
    manifest = past.manifest
    problem = None
    try:
        results = past.results()
    except NotARun as error:
        results, problem = None, str(error)
    return ListedRun(
        run=manifest.run,
        directory=str(past.path),
        experiment=manifest.experiment,
        started_at=manifest.started_at,
        ended_at=manifest.ended_at,
        runtime=manifest.runtime,
        seed=manifest.seed,
        status=status_of(past),
        verdict=None if results is None else results.verdict.value,
        exit_code=None if results is None else results.exit_code,
        commit_gap_us=longest_commit_gap_us(read_summary(past.path)),
        problem=problem,
    )


def longest_commit_gap_us(summary: RunSummary | None) -> int | None:
    """Return the longest time that any member of a run went without an acknowledged commit."""
    return max(_commit_gaps_us(summary), default=None)


def _commit_gaps_us(summary: RunSummary | None) -> Iterator[int]:
    for fault in () if summary is None else summary.faults:
        gap = fault.distribution(COMMIT_GAP)
        if gap is not None and gap.maximum is not None:
            yield gap.maximum
