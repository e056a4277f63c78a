"""What a run directory's JSON files say, in the report's own words: plain values, nothing of chaos.

The command line fills these from manifest, journal and results. All times are microseconds of the
run's clock, all names of nodes the trace's.
"""

from dataclasses import dataclass, field
from typing import Literal

Status = Literal["completed", "interrupted", "failed", "running", "killed"]
"""How the run itself ended; `killed`: its process is gone without having said so."""
Verdict = Literal["pass", "violated", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultFact:
    """One fault of the plan and what became of it.

    `outcome` is hit | missed | failed | planned; `hit` says for people who was hit. `error` says
    why it missed or failed, `note` what was remarkable about its undoing. None: that never came.
    Momentary faults are never healed.
    """

    fault_id: str
    kind: str
    target: str
    outcome: str
    momentary: bool
    hit: str
    nodes: tuple[str, ...] = ()
    links_from: tuple[str, ...] = ()
    links_to: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    injected_us: int | None = None
    in_force_us: int | None = None
    in_force_until_us: int | None = None
    healed_us: int | None = None
    healed_by: str | None = None
    note: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceFact:
    """One row of the trace that proves a violation: where it is, and as a sentence."""

    time_us: int
    node: str
    kind: str
    text: str
    group: str | None = None
    partition: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingFact:
    """One broken promise: `summary` in a sentence, `evidence` in time order."""

    summary: str
    time_us: int
    group: str | None = None
    partition: str | None = None
    evidence: tuple[EvidenceFact, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckFact:
    """What one checker concluded.

    `outcome` is pass | violated | inconclusive | nothing_seen; `promise` says what it checks,
    `seen` what it judged and measured, in words. `findings_total` counts all, listed or not.
    """

    name: str
    promise: str
    outcome: str
    seen: tuple[str, ...] = ()
    note: str = ""
    findings: tuple[FindingFact, ...] = ()
    findings_total: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingFact:
    """One setting of the experiment, by its path in the file; `default` None: it has none."""

    section: str
    name: str
    value: str
    default: str | None = None

    @property
    def differs(self) -> bool:
        """Whether it is not what Kafka, or the lab, would have had."""
        return self.default is not None and self.value != self.default


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """A run without its trace.

    `verdict`, `exit_code` None: there are no results. `reasons` say why a verdict is unknown or the
    tool failed; `losses` what of the trace is missing. `plan` and `experiment_file` are for running
    it again, `replay` is the command. `coordinator` is Kafka's coordinator that it is faithful to.
    Units: `clock_error_us` bounds how far clocks of two nodes are apart; `started_at` is ISO 8601.
    """

    run: str
    experiment: str
    question: str
    expect: str
    runtime: str
    seed: int
    status: Status
    replay: str
    started_at: str
    ended_at: str | None = None
    time_scale: float = 1.0
    verdict: Verdict | None = None
    exit_code: int | None = None
    reasons: tuple[str, ...] = ()
    losses: tuple[str, ...] = ()
    steady_at_us: int | None = None
    healed_at_us: int | None = None
    ended_at_us: int | None = None
    records_produced: int = 0
    records_consumed: int = 0
    commits_acknowledged: int = 0
    clock_error_us: int = 0
    digest: str | None = None
    git_commit: str | None = None
    versions: tuple[tuple[str, str], ...] = ()
    faults: tuple[FaultFact, ...] = ()
    checks: tuple[CheckFact, ...] = ()
    settings: tuple[SettingFact, ...] = ()
    links: tuple[tuple[str, str], ...] = field(default=())
    experiment_file: str | None = None
    experiment_yaml: str | None = None
    coordinator: str | None = None
