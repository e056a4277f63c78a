"""Helpers of the soak: they save its results and print its lines.

The soak (`make soak`) runs tests that take too long to run after each change; one part takes up to
an hour. Its results are saved in the folder `.soak/`, so that an interrupted soak continues where
it ended. The path of a result contains an id of the code, so that after a change of the code the
soak computes the result anew. The lines that the soak prints are recorded in docs/SOAK.md.
"""

import hashlib
import subprocess
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TypeVar

import msgspec

from tests.support.worlds.acceptance import percentile
from tests.support.worlds.failover import Failover

T = TypeVar("T")

ROOT = Path(__file__).resolve().parents[2]
SAVED_RESULTS = ROOT / ".soak"
"""The folder with the results that `load_or_compute` saves."""
CODE_OF_RUNS = (
    "protocol",
    "partition_log",
    "coordinator",
    "cluster",
    "results_schema",
    "chaos",
    "experiments",
    "explorations",
    "benchmarks/planted_bugs",
    "constraints.txt",
)
"""The code on which the results of a run depend. Reports and commands are not part of it."""


def say(line: str) -> None:
    """Print one line, such as `soak: 40 of 40 seeds silent without a bug`."""
    # The newline comes first, because pytest may have printed a line without its end.
    print(f"\nsoak: {line}", flush=True)


def load_or_compute(part: str, key: str, kind: type[T], compute: Callable[[], T]) -> T:
    """Return the result that is saved as `.soak/<part>/<id of the code>/<key>.json`.

    If the file does not exist, call `compute`, save its result and return it. `kind` is the type of
    the result. msgspec must be able to write it as JSON and to read it again.
    """
    path = _path_of(part, key)
    if path.exists():
        return msgspec.json.decode(path.read_bytes(), type=kind)
    value = compute()
    path.parent.mkdir(parents=True, exist_ok=True)
    # The file gets its name only when it is complete: an interruption must leave no half result.
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_bytes(msgspec.json.encode(value))
    unfinished.replace(path)
    return value


def has_result(part: str, key: str) -> bool:
    """Return True if `load_or_compute` would find a saved result."""
    return _path_of(part, key).exists()


def _path_of(part: str, key: str) -> Path:
    """Return the file of a result: `.soak/<part>/<id of the code>/<key>.json`."""
    return SAVED_RESULTS / part / code_id() / f"{key}.json"


@cache
def code_id(paths: tuple[str, ...] = CODE_OF_RUNS) -> str:
    """Return an id of the code below `paths`. Any change gives another id, committed or not.

    The id does not depend on new files that Git does not track yet.
    """
    digest = hashlib.sha256()
    hashes_of_files = ["ls-files", "-s", "--"]
    uncommitted_changes = ["diff", "HEAD", "--"]
    for command in (hashes_of_files, uncommitted_changes):
        done = subprocess.run(["git", *command, *paths], cwd=ROOT, capture_output=True, check=True)
        digest.update(done.stdout)
    return digest.hexdigest()[:12]


def say_failovers(failovers: Sequence[Failover]) -> None:
    """Print the figures of docs/kafka/MEASURED_FAILOVER.md, over all members and runs.

    A figure is missing in a run in which its event did not happen, for example because the fault
    moved no leadership. If it is missing in all runs, its line is not printed.
    """
    _say_runs("controller decides, ms", [failover.decided_us for failover in failovers])
    _say_runs(
        "decided -> applied by the new coordinator, ms",
        [failover.publish_us for failover in failovers],
    )
    _say_runs("load, ms", [failover.load_us for failover in failovers])
    _say_runs(
        "old coordinator unloaded, relative to the new one's activity, ms",
        [failover.unloaded_after_active_us for failover in failovers],
    )
    _say_members(
        "member first marks coordinator unknown, ms",
        [failover.notices_us for failover in failovers],
    )
    _say_runs(
        "first acknowledged commit of any member, ms",
        [failover.first_commit_us for failover in failovers],
    )
    _say_runs("every member commits again, ms", [failover.last_commit_us for failover in failovers])
    _say_members("commit gap per member, ms", [failover.commit_gaps_us for failover in failovers])
    _say_members(
        "loaded -> member's first commit, ms", [failover.resumes_us for failover in failovers]
    )
    say(f"rebalances: {sum(failover.rebalances for failover in failovers)}")
    errors: dict[str, int] = {}
    for failover in failovers:
        for name, count in failover.commit_errors.items():
            errors[name] = errors.get(name, 0) + count
    counts_text = ", ".join(f"{name} {count}" for name, count in sorted(errors.items()))
    say(f"errors that commits met: {counts_text or 'none'}")


def _say_runs(what: str, values_us: Sequence[int | None]) -> None:
    """Print median and range of a figure that a run has once or not at all.

    For example `load, ms: 31 (8.4 - 214)`.
    """
    ascending = sorted(value for value in values_us if value is not None)
    if ascending:
        middle = _ms(percentile(ascending, 50))
        say(f"{what}: {middle} ({_ms(ascending[0])} - {_ms(ascending[-1])})")


def _say_members(what: str, values_us: Sequence[Sequence[int]]) -> None:
    """Print percentiles of a figure that a run has once for each of its members."""
    ascending = sorted(value for values in values_us for value in values)
    if ascending:
        p50, p90 = percentile(ascending, 50), percentile(ascending, 90)
        say(f"{what}: p50 {_ms(p50)} / p90 {_ms(p90)} / max {_ms(ascending[-1])}")


def _ms(value_us: int) -> str:
    """Return milliseconds, with one digit after the point below 10 ms: `9.3` or `214`."""
    return f"{value_us / 1_000:.1f}" if abs(value_us) < 10_000 else f"{value_us / 1_000:.0f}"
