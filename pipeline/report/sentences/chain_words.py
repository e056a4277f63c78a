"""Sentences of the report that tell where the time of a failover went.

After a fault, the time until all works again is divided into phases, which follow one another. Two
series of phases are measured, and each is called a chain:

- The broker chain of a partition of `__consumer_offsets`: the controller notices the fault
  (detect), the new leader learns that it leads (publish), and it loads the groups (load wait,
  load).
- The client chain of a member: it gives up its old coordinator (notice), finds the new one
  (rediscover), and has its first success there (accept).

Example of a sentence: "Of the 9.3 s until broker-2 (epoch 1) was the active coordinator of
__consumer_offsets-3 (readers), 9.1 s went by until the controller noticed that broker-0 was gone
(detect; broker.session.timeout.ms = 9000)."

A fault moves several partitions, and affects several members. A sentence tells of one of them, the
median: half of them were faster. It adds no phases of different partitions or members, because only
the phases of one subject sum up to its whole time.

The functions read rows of the tables `broker_phases`, `client_phases` and `availability`. The words
are in the template `chains.j2`.
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
"""The phases of the broker chain, in order, each with its name and the two columns of
`broker_phases` that have its beginning and its end.
"""
CLIENT_STEPS = (
    ("notice", "fault_us", "unknown_us"),
    ("rediscover", "unknown_us", "named_us"),
    ("accept", "named_us", "accepted_us"),
)
"""The phases of the client chain, in the same form, with columns of `client_phases`. A member that
has to join its group again does so within `accept`.
"""
_NEARLY_ALL = 0.8
"""A sentence names the two longest phases, or one if this one took at least this fraction of the
whole time.
"""
_NOTICED_BY_SILENCE = frozenset(
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
"""Kinds of faults that the controller notices only because a broker's heartbeats stay away. No
message tells it that the broker is gone.
"""


@dataclass(frozen=True, slots=True)
class Path:
    """The phases of one partition or member that went through the whole chain.

    - `row`: its row of `broker_phases` or `client_phases`.
    - `phases`: name, beginning and end of each phase, in order; times are microseconds on the run's
      clock. Example: `("detect", 20_000_000, 29_100_000)`.
    """

    row: Row
    phases: tuple[tuple[str, int, int], ...]

    @property
    def whole_us(self) -> int:
        """Time from the fault to the end of the last phase."""
        _, fault_us, _ = self.phases[0]
        _, _, end_us = self.phases[-1]
        return end_us - fault_us

    @property
    def longest(self) -> list[tuple[str, int]]:
        """The one or two phases that the sentence names, each with its length; the longest first.

        The second longest is left out if the longest took nearly all of the time, or if it took no
        time itself.
        """
        lengths = [(name, end_us - begin_us) for name, begin_us, end_us in self.phases]
        lengths.sort(key=lambda phase: phase[1], reverse=True)
        longest, second, *_ = lengths  # a chain has three or four phases
        if longest[1] >= _NEARLY_ALL * self.whole_us or second[1] == 0:
            return [longest]
        return [longest, second]


def complete_paths(
    rows: Sequence[Row], phases: Sequence[tuple[str, str, str]], *, subject: str
) -> list[Path]:
    """Return the paths of the partitions or members that completed the chain, the fastest first.

    - `phases`: BROKER_STEPS or CLIENT_STEPS.
    - `subject`: the column with the name of the partition or member. It decides the order of two
      that were equally fast.
    """
    paths = []
    for row in rows:
        times = tuple((name, row[begin], row[end]) for name, begin, end in phases)
        if all(begin is not None and end is not None for _, begin, end in times):
            paths.append(Path(row, times))
    _, _, last_column = phases[-1]
    return sorted(paths, key=lambda path: (path.row[last_column], str(path.row[subject])))


def median_path(fastest_first: Sequence[Path]) -> Path:
    """Return the median of at least one path (nearest rank: of four paths it is the second)."""
    return fastest_first[(len(fastest_first) - 1) // 2]


def rows_to_describe(broker_rows: Sequence[Row]) -> Sequence[Row]:
    """Return the rows of the partitions that store a group, because users care for these.

    If no partition stores a group, the result is all rows, so that there is something to describe.
    """
    return [row for row in broker_rows if row["groups"]] or broker_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerChain:
    """What the template says about the broker chain of a fault.

    - `rows`: number of the partitions of `__consumer_offsets` that the sentence is about.
    - `path`: the path of the median partition; None if no partition completed the chain.
    - `late`: number of the partitions that had no coordinator at the end of the run.
    - `silence_settings`: the settings that decide when the controller notices a silent broker, such
      as "broker.session.timeout.ms = 9000"; empty if the fault is noticed otherwise.
    """

    fault: FaultSummary
    rows: int
    path: Path | None
    late: int
    silence_settings: tuple[str, ...]


def broker_sentence(fault: FaultSummary, broker_rows: Sequence[Row], settings: Settings) -> Markup:
    """Return the sentence about the time until a new coordinator was active."""
    rows = rows_to_describe(broker_rows)
    paths = complete_paths(rows, BROKER_STEPS, subject="partition")
    chain = BrokerChain(
        fault=fault,
        rows=len(rows),
        path=median_path(paths) if paths else None,
        late=len(rows) - len(paths),
        silence_settings=(_silence_settings(settings) if fault.kind in _NOTICED_BY_SILENCE else ()),
    )
    return render_line("chains", "broker_chain", chain)


def _silence_settings(settings: Settings) -> tuple[str, ...]:
    """Return the settings that decide when the controller notices a silent broker."""
    names = ("broker.session.timeout.ms", "broker.heartbeat.interval.ms")
    values = [(name, settings.of_cluster(name)) for name in names]
    return tuple(f"{name} = {value}" for name, value in values if value is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientChain:
    """What the template says about the client chain of a fault. All fields but `path` are counts.

    - `members`: all members that the fault affected. They are divided into three:
      - `stayed`: they never marked their coordinator unknown;
      - `served`: they did, and the new coordinator served them before the run's end;
      - `late`: they did, and it did not.
    - `joined`: members, of any of the three, that had to join their group again.
    - `path`: the path of the median member that was served; None if none was.
    """

    members: int
    stayed: int
    joined: int
    path: Path | None
    served: int
    late: int


def client_sentence(client_rows: Sequence[Row]) -> Markup:
    """Return the sentence about the time until a member was served again."""
    lost_coordinator = [row for row in client_rows if row["unknown_us"] is not None]
    paths = complete_paths(lost_coordinator, CLIENT_STEPS, subject="consumer")
    chain = ClientChain(
        members=len(client_rows),
        stayed=len(client_rows) - len(lost_coordinator),
        joined=sum(row["join_us"] is not None for row in client_rows),
        path=median_path(paths) if paths else None,
        served=len(paths),
        late=len(lost_coordinator) - len(paths),
    )
    return render_line("chains", "client_chain", chain)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gaps:
    """What the template says about the times without service after a fault.

    A distribution is None if it has nothing to say. `never` has the names of the members,
    partitions and groups that had no service again before the run ended.
    """

    commit: Distribution | None
    processing: Distribution | None
    service: Distribution | None
    never: tuple[str, ...]


def gap_sentence(fault: FaultSummary, rows: Sequence[Row]) -> Markup | None:
    """Return the sentence about times without service after a fault; None if there were none.

    `rows` are the fault's rows of the table `availability`.
    """
    commit, processing, service = (
        fault.distribution(name) for name in ("commit gap", "processing gap", "no coordinator")
    )
    # The sentence names the time without a coordinator only if the fault moved a coordinator.
    # Each group has such a time. It is 0 for a group that kept its coordinator, so the maximum
    # shows whether any group was without one.
    was_without_coordinator = service is not None and service.maximum and fault.partitions_moved
    gaps = Gaps(
        commit=commit if commit is not None and commit.samples else None,
        processing=processing if processing is not None and processing.samples else None,
        service=service if was_without_coordinator else None,
        never=tuple(row["subject"] for row in rows if row["gap_us"] is None),
    )
    if not any((gaps.commit, gaps.processing, gaps.service, gaps.never)):
        return None
    return render_line("chains", "gaps", gaps)


_BROKER = (
    ("detect", "fault injected", "the controller fences the broker, or moves the leadership"),
    ("publish", "the controller decided", "the new leader applied it from the metadata log"),
    ("load wait", "the new leader applied it", "its load task starts: a broker runs one at a time"),
    ("load", "the load task starts", "the coordinator is active: groups and offsets are read"),
)
"""The rows of the broker chain in the table `definitions`: what each phase is called, where it
begins and where it ends.
"""
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
"""The rows of the client chain. The last two are no phases but counts: the last text says what is
counted from the given moment on.
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
"""The rows of the times without service."""


def definitions() -> TextTable:
    """Return the table that defines each measure. The page shows it folded, under its title."""
    chains = (("broker", _BROKER), ("client", _CLIENT), ("without service", _GAPS))
    return TextTable(
        headings=("chain", "phase", "from", "to"),
        rows=tuple((chain, *measure) for chain, measures in chains for measure in measures),
        folded="What each phase measures",
    )
