"""manifest.json: what a run was made of, so that it can be read, compared and run again."""

from enum import StrEnum
from typing import Any

import msgspec

from results_schema.forms import READ_FORMS

MANIFEST_FORMAT = READ_FORMS["run"][-1]


class RunStatus(StrEnum):
    """Where a run is. `running` in a directory whose process is gone means: it was killed."""

    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


class PlannedFault(msgspec.Struct, frozen=True, kw_only=True, rename={"from_": "from"}):
    """One fault of a plan.

    Units: `at_us` counts from the steady state, `duration_us` from the injection; None lasts until
    the healing at the end.
    Shape: `target` is "" for a fault of links, which has its ends in `from` and `to` instead.
    """

    fault_id: str
    at_us: int
    fault: str
    target: str = ""
    from_: tuple[str, ...] = ()
    to: tuple[str, ...] = ()
    duration_us: int | None = None
    args: dict[str, Any] = {}  # checked by the fault's own struct when the file was read

    @property
    def aimed_at(self) -> str:
        """The target as people read it: `broker(0)`, `broker(0) <-> controller, brokers`."""
        if not self.from_:
            return self.target
        arrow = "->" if self.args.get("direction") == "one_way" else "<->"
        return f"{', '.join(self.from_)} {arrow} {', '.join(self.to)}"


Plan = tuple[PlannedFault, ...]


class Manifest(msgspec.Struct, kw_only=True):
    """The manifest of one run.

    Units: `started_at`, `ended_at` are ISO 8601 in UTC; `clock_error_us` bounds how far the clocks
    of the run's nodes are apart; the run's clock is `time_scale` times faster than a real one.
    Shape: `config` is the experiment as its file would say it;
    `digest` is the trace's, None where none was computed; `losses` says what of the trace is
    missing.
    """

    format: int = MANIFEST_FORMAT
    run: str
    experiment: str
    experiment_file: str | None = None
    config: dict[str, Any]  # the experiment's own structs say what it holds
    plan: Plan
    seed: int
    runtime: str
    time_scale: float = 1.0
    status: RunStatus = RunStatus.RUNNING
    pid: int
    host: str
    started_at: str
    ended_at: str | None = None
    versions: dict[str, str] = {}
    git_commit: str | None = None
    digest: str | None = None
    clock_error_us: int = 0
    losses: tuple[str, ...] = ()
    replay: str
