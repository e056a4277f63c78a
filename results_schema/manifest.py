"""manifest.json: the inputs of a run, so that the run can be read, compared and repeated.

A plan is the list of faults that are injected in a run. The times in a plan count from the steady
state. The cluster is in the steady state when every group is Stable, every partition has a leader
and all its replicas in sync, and every member that commits offsets has committed once.
"""

from enum import StrEnum
from typing import Any

import msgspec

from results_schema.forms import READ_FORMS

MANIFEST_FORMAT = READ_FORMS["run"][-1]
"""Format number of new manifests: the newest format that this version can read."""


class RunStatus(StrEnum):
    """Status of a run. A run that is RUNNING, but whose process is gone, was killed."""

    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


class PlannedFault(msgspec.Struct, frozen=True, kw_only=True, rename={"from_": "from"}):
    """One fault of a plan.

    - `at_us`: when to inject the fault, counted from the steady state.
    - `duration_us`: when to heal the fault, that is, to undo it, counted from the injection. None
      means that the fault is healed at the end of the run, when all faults are healed.
    - `target`: the node or partition to disturb, such as `broker(0)`. A fault of links has `from`
      and `to` instead, and its target is "".
    """

    fault_id: str
    at_us: int
    fault: str
    target: str = ""
    from_: tuple[str, ...] = ()
    to: tuple[str, ...] = ()
    duration_us: int | None = None
    args: dict[str, Any] = {}  # checked when the experiment's file was read

    @property
    def aimed_at(self) -> str:
        """The target as text: `broker(0)`, or `broker(0) <-> controller, brokers`."""
        if not self.from_:
            return self.target
        arrow = "->" if self.args.get("direction") == "one_way" else "<->"
        return f"{', '.join(self.from_)} {arrow} {', '.join(self.to)}"


Plan = tuple[PlannedFault, ...]


class Manifest(msgspec.Struct, kw_only=True):
    """The manifest of one run.

    - `started_at`, `ended_at`: times in UTC, in the format of ISO 8601.
    - `config`: the experiment, as plain data with the keys of its file.
    - `time_scale`: how many times as fast as real time the run's clock is.
    - `clock_error_us`: the largest difference between the clocks of two nodes.
    - `digest`: a hash over all rows of the trace, None if it was not computed. Two runs with the
      same digest had the same events.
    - `pid`, `host`: the process and the machine that conduct the run.
    - `losses`: sentences that say which parts of the trace are missing.
    - `replay`: the command that repeats the run.
    """

    format: int = MANIFEST_FORMAT
    run: str
    experiment: str
    experiment_file: str | None = None
    config: dict[str, Any]  # its keys are the fields of chaos.experiment.structs.Experiment
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
