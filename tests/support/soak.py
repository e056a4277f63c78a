"""Saved results and printed lines of the soak; docs/SOAK.md records the lines.

The soak (`make soak`) runs tests that are too long for each change; a part of it takes up to an
hour. Its results are saved in `.soak/`, in folders named by an id of the code that computed them.
So an interrupted soak continues where it ended, and after a change of the code it begins anew.
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
KEPT = ROOT / ".soak"
CODE = (
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
"""Code that has an effect on the results of a run; the code of reports and commands has none."""


def say(line: str) -> None:
    """Print one line of the record."""
    # The newline comes first, because pytest may have printed a line without its end.
    print(f"\nsoak: {line}", flush=True)


def load_or_compute(part: str, key: str, kind: type[T], compute: Callable[[], T]) -> T:
    """Return the saved result of `key` for the present code; if there is none, compute and save it.

    `kind` is the type of the result. msgspec must be able to write it as JSON and to read it again.

    The file is `.soak/<part>/<id of the code>/<key>.json`.
    """
    path = _path_of(part, key)
    if path.exists():
        return msgspec.json.decode(path.read_bytes(), type=kind)
    value = compute()
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".unfinished")
    # The file is renamed when it is complete, so that an interruption leaves no half result.
    unfinished.write_bytes(msgspec.json.encode(value))
    unfinished.replace(path)
    return value


def has_result(part: str, key: str) -> bool:
    """Return True if `load_or_compute` has a value for `key`."""
    return _path_of(part, key).exists()


def _path_of(part: str, key: str) -> Path:
    """Return the file of a result; its folder names the code."""
    return KEPT / part / code_id() / f"{key}.json"


@cache
def code_id(paths: tuple[str, ...] = CODE) -> str:
    """Return an id of the code below `paths`, which changes with each committed or local change.

    The default of `paths` is the code that has an effect on the results of a run.
    """
    digest = hashlib.sha256()
    # `ls-files -s` prints the hashes of committed files, `diff HEAD` all changes since.
    for command in (["ls-files", "-s", "--"], ["diff", "HEAD", "--"]):
        done = subprocess.run(["git", *command, *paths], cwd=ROOT, capture_output=True, check=True)
        digest.update(done.stdout)
    return digest.hexdigest()[:12]


def say_failovers(failovers: Sequence[Failover]) -> None:
    """Print the figures of docs/kafka/MEASURED_FAILOVER.md over all members and runs.

    A figure is left out if its event occurred in no run, for example if the fault moved no
    leadership.
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
    say(f"rebalances: {sum(f.rebalances for f in failovers)}")
    errors: dict[str, int] = {}
    for failover in failovers:
        for name, count in failover.commit_errors.items():
            errors[name] = errors.get(name, 0) + count
    counts_text = ", ".join(f"{name} {count}" for name, count in sorted(errors.items()))
    say(f"errors that commits met: {counts_text or 'none'}")


def _say_runs(what: str, values_us: Sequence[int | None]) -> None:
    """Print the median and the range of a figure that each run has at most once."""
    ascending = sorted(value for value in values_us if value is not None)
    if ascending:
        middle = _ms(percentile(ascending, 50))
        say(f"{what}: {middle} ({_ms(ascending[0])} - {_ms(ascending[-1])})")


def _say_members(what: str, values_us: Sequence[Sequence[int]]) -> None:
    """Print percentiles of a figure that each run has for several members."""
    ascending = sorted(value for values in values_us for value in values)
    if ascending:
        p50, p90 = percentile(ascending, 50), percentile(ascending, 90)
        say(f"{what}: p50 {_ms(p50)} / p90 {_ms(p90)} / max {_ms(ascending[-1])}")


def _ms(value_us: int) -> str:
    return f"{value_us / 1_000:.1f}" if abs(value_us) < 10_000 else f"{value_us / 1_000:.0f}"
