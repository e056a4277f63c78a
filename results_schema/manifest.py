"""manifest.json: the inputs of a run. With them the run can be read, compared and repeated.

A plan is the list of faults of a run. Its times count from the steady state. This is reached when
every group is Stable (no rebalance is in progress), every partition has a leader and all its
replicas in sync, and every committing member has committed. Healing undoes a fault.
"""

from enum import StrEnum
from typing import Any

import msgspec

from results_schema.forms import READ_FORMS

MANIFEST_FORMAT = READ_FORMS["run"][-1]
"""Format number of new manifests: the newest of those that this version can read."""


class RunStatus(StrEnum):
    """Status of a run. A run that is RUNNING, but whose process is gone, was killed."""

    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


class PlannedFault(msgspec.Struct, frozen=True, kw_only=True, rename={"from_": "from"}):
    """One fault of a plan.

    - `at_us`: time of the injection, after the steady state.
    - `duration_us`: time from the injection to the healing. None: until the end of the run, when
      all faults are healed.
    - `target`: the node or partition to disturb. A fault of links has `from` and `to` instead, and
      the target "".
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

    - `started_at`, `ended_at`: ISO 8601 in UTC.
    - `config`: the experiment as plain data, with the keys of its file.
    - `time_scale`: speed of the run's clock as a multiple of real time.
    - `clock_error_us`: largest difference between the clocks of two nodes.
    - `digest`: a hash over all rows of the trace; None if no hash was computed.
    - `pid`, `host`: process and machine that conduct the run.
    - `losses`: sentences on missing parts of the trace.
    - `replay`: the command that plays the run again.
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
