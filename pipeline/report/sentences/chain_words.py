"""A sentence for each chain of a fault: the longest phases, and the settings that decide them.

A chain is a series of phases after a fault:

- An offsets partition is a partition of `__consumer_offsets`, whose leader coordinates the groups
  in it. The broker chain of an offsets partition ends when its new coordinator is active.
- The client chain of a member ends with the member's first success at the new coordinator.

The sentence is about the median subject (partition or member): half of the subjects were faster.

The phases of one subject follow one another, so each is a share of the subject's whole time. Phases
of different subjects, or of different chains, cannot be compared in this way. All functions are
pure; they read rows of `broker_phases`, `client_phases` and `availability`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from pipeline.report.charts.chart import TextTable
from pipeline.report.rendering import render_line
from pipeline.report.report_input import Row, Settings
from pipeline.summary.figures import Distribution, FaultSummary

BROKER_STEPS = (
    ("detect", "fault_us", "decided_us"),
    ("publish", "decided_us", "applied_us"),
    ("load wait", "applied_us", "load_started_us"),
    ("load", "load_started_us", "active_us"),
)
"""Phases of the broker chain, with the columns of `broker_phases` for their beginning and end."""
CLIENT_STEPS = (
    ("notice", "fault_us", "unknown_us"),
    ("rediscover", "unknown_us", "named_us"),
    ("accept", "named_us", "accepted_us"),
)
"""Phases of the client chain, with the columns of `client_phases` for their beginning and end. If a
member needs join and sync, they happen within these phases.
"""
_NEARLY_ALL = 0.8
"""If the longest phase took at least this fraction of the whole time, the sentence does not name
the second longest.
"""
_SILENT = frozenset(
    {
        "crash",
        "node_loss",
        "power_loss",
        "pause",
        "cut",
        "clog",
        "slow",
        "machine_loss",
        "machine_pause",
        "machine_cut",
    }
)
"""Kinds of faults about which the controller gets no message. It only misses heartbeats."""


@dataclass(frozen=True, slots=True)
class Path:
    """The phases of one subject that completed its chain, in order.

    A step is the name, the beginning and the end of a phase, in microseconds on the run's clock.
    `row` is the row about the subject.
    """

    row: Row
    steps: tuple[tuple[str, int, int], ...]

    @property
    def whole_us(self) -> int:
        """Time from the fault to the end of the last phase."""
        return self.steps[-1][2] - self.steps[0][1]

    @property
    def longest(self) -> list[tuple[str, int]]:
        """The longest phase with its length, then the second longest.

        The second is left out if the first took nearly all of the time.
        """
        by_length = sorted(((name, end - begin) for name, begin, end in self.steps), key=_longest)
        # A path has the three or four steps of a whole chain, so there are at least two.
        (_, first_us), (_, second_us), *_ = by_length
        alone = first_us >= _NEARLY_ALL * self.whole_us or not second_us
        return by_length[: 1 if alone else 2]


def _longest(step: tuple[str, int]) -> int:
    """Return a sort key by which the longest step comes first."""
    return -step[1]


def paths(
    rows: Sequence[Row], steps: Sequence[tuple[str, str, str]], *, subject: str
) -> list[Path]:
    """Return the paths of the subjects that completed the chain, the fastest first."""
    last_column = steps[-1][2]
    complete = []
    # A row without the last moment is not complete, and is left out below. `or 0` is only for
    # sorting.
    for row in sorted(rows, key=lambda row: (row[last_column] or 0, str(row[subject]))):
        spans = tuple((name, row[begin], row[end]) for name, begin, end in steps)
        if all(begin is not None and end is not None for _, begin, end in spans):
            complete.append(Path(row, spans))
    return complete


def middle_path(by_speed: Sequence[Path]) -> Path:
    """Return the median path (nearest rank). There is at least one path; the fastest is first."""
    return by_speed[(len(by_speed) - 1) // 2]


def with_groups(broker_rows: Sequence[Row]) -> Sequence[Row]:
    """Return the rows of offsets partitions that store a group; all rows if no partition does."""
    return [row for row in broker_rows if row["groups"]] or broker_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerChain:
    """The broker chain of a fault.

    - `rows`: the number of partitions.
    - `path`: the path of the median partition; None if no partition completed the chain.
    - `late`: the number of partitions without a coordinator at the end of the run.
    - `silence_settings`: the settings that decide when the controller notices a silent broker.
    """

    fault: FaultSummary
    rows: int
    path: Path | None
    late: int
    silence_settings: tuple[str, ...]


def broker_sentence(fault: FaultSummary, broker_rows: Sequence[Row], settings: Settings) -> Markup:
    """Return the sentence on the time until a new coordinator was active."""
    rows = with_groups(broker_rows)
    complete = paths(rows, BROKER_STEPS, subject="partition")
    names = ("broker.session.timeout.ms", "broker.heartbeat.interval.ms")
    values = [(name, settings.of_cluster(name)) for name in names if fault.kind in _SILENT]
    chain = BrokerChain(
        fault=fault,
        rows=len(rows),
        path=middle_path(complete) if complete else None,
        late=len(rows) - len(complete),
        silence_settings=tuple(f"{name} = {value}" for name, value in values if value is not None),
    )
    return render_line("chains", "broker_chain", chain)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientChain:
    """The client chain of a fault: the median member's path, and numbers of members.

    - `members`: number of all members; `joined`: number of members that had to join again.
    - `stayed`: number of members that never marked their coordinator unknown. The other members are
      divided into `served`, which the new coordinator served again, and `late`, which it did not
      serve before the run's end.
    """

    members: int
    stayed: int
    joined: int
    path: Path | None
    served: int
    late: int


def client_sentence(client_rows: Sequence[Row]) -> Markup:
    """Return the sentence on the time until a member was served again."""
    lost_coordinator = [row for row in client_rows if row["unknown_us"] is not None]
    complete = paths(lost_coordinator, CLIENT_STEPS, subject="consumer")
    chain = ClientChain(
        members=len(client_rows),
        stayed=len(client_rows) - len(lost_coordinator),
        joined=sum(row["join_us"] is not None for row in client_rows),
        path=middle_path(complete) if complete else None,
        served=len(complete),
        late=len(lost_coordinator) - len(complete),
    )
    return render_line("chains", "client_chain", chain)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gaps:
    """Times without service after a fault. `never` names subjects without service until the end."""

    commit: Distribution | None
    processing: Distribution | None
    service: Distribution | None
    never: tuple[str, ...]


def gap_sentence(fault: FaultSummary, rows: Sequence[Row]) -> Markup | None:
    """Return the sentence on times without service after a fault; None if nothing was measured.

    `rows` are the fault's rows of `availability`.
    """
    commit, processing, service = (
        fault.distribution(name) for name in ("commit gap", "processing gap", "no coordinator")
    )
    # A group that kept its coordinator has a time of 0 without a coordinator.
    had_none = service is not None and service.maximum and fault.partitions_moved
    gaps = Gaps(
        commit=commit if commit is not None and commit.samples else None,
        processing=processing if processing is not None and processing.samples else None,
        service=service if had_none else None,
        never=tuple(row["subject"] for row in rows if row["gap_us"] is None),
    )
    something = any((gaps.commit, gaps.processing, gaps.service, gaps.never))
    return render_line("chains", "gaps", gaps) if something else None


_BROKER = (
    ("detect", "fault injected", "the controller fences the broker, or moves the leadership"),
    ("publish", "the controller decided", "the new leader applied it from the metadata log"),
    ("load wait", "the new leader applied it", "its load task starts: a broker runs one at a time"),
    ("load", "the load task starts", "the coordinator is active: groups and offsets are read"),
)
"""Measures of the broker chain: the name, and texts on the beginning and the end."""
_CLIENT = (
    ("notice", "fault injected", "the member marks its coordinator unknown"),
    ("rediscover", "coordinator unknown", "FindCoordinator names the newest coordinator"),
    (
        "accept",
        "the newest coordinator named",
        "the member's first success there (join and sync lie within)",
    ),
    ("join", "first JoinGroup sent", "first JoinGroup that succeeded; only members that had to"),
    ("sync", "first SyncGroup sent", "first SyncGroup that succeeded; only members that had to"),
    ("longest wait", "a request sent to the old coordinator", "its answer or failure: the longest"),
    (
        "stale answers",
        "coordinator unknown",
        "named: FindCoordinator answers that named another broker",
    ),
    (
        "heartbeats at old",
        "the new coordinator is active",
        "heartbeats that the old one still answered with success",
    ),
)
"""Measures of the client chain: the name, and texts on the beginning, and on the end or what
counts.
"""
_GAPS = (
    ("commit gap", "a member's acknowledged commit", "its next one: the longest around the fault"),
    (
        "processing gap",
        "a batch of a partition processed by any member of the group",
        "work on its next one begins: the longest around the fault",
    ),
    (
        "no coordinator",
        "the group's last active coordinator",
        "its next active one; 0: there was always one",
    ),
)
"""Measures of times without service: the name, and texts on the beginning and the end."""


def definitions() -> TextTable:
    """Return the folded table with the definition of each measure."""
    chains = (("broker", _BROKER), ("client", _CLIENT), ("without service", _GAPS))
    return TextTable(
        headings=("chain", "phase", "from", "to"),
        rows=tuple((chain, *measure) for chain, measures in chains for measure in measures),
        folded="What each phase measures",
    )
