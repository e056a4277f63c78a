"""Sentences of the report that tell where the time of a failover went.

An example of such a sentence: "Of the 9.3 s until broker-2 (epoch 1) was the active coordinator of
__consumer_offsets-3 (readers), 9.1 s went by until the controller noticed that broker-0 was gone
(detect; broker.session.timeout.ms = 9000)."

The time from a fault until everything works again is divided into phases, such as `detect`. There
are two series of phases, which are called chains:

- The broker chain of a partition of `__consumer_offsets`: the controller notices the fault
  (detect), the new leader learns that it leads (publish), and it loads the groups (load wait,
  load).
- The client chain of a member: the member gives up its old coordinator (notice), finds the new
  coordinator (rediscover), and has its first success there (accept).

A fault usually moves several partitions, and affects several members. A sentence tells only of the
median partition or member, whose phases add up to its whole time. Averages of the phases over all
partitions or members would be the times of no real partition or member.

The functions read rows of the tables `broker_phases`, `client_phases` and `availability`, and
render macros of the template `chains.j2`.
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
"""The phases of the broker chain, in order: for each phase its name, and the two columns of
`broker_phases` that have its beginning and its end.
"""
CLIENT_STEPS = (
    ("notice", "fault_us", "unknown_us"),
    ("rediscover", "unknown_us", "named_us"),
    ("accept", "named_us", "accepted_us"),
)
"""The phases of the client chain, in the same form, with columns of `client_phases`. If a member
has to join its group again, this is a part of the phase `accept`.
"""
_NEARLY_ALL = 0.8
"""If the longest phase took at least this fraction of the whole time, a sentence names only this
phase. Otherwise a sentence names the two longest phases.
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
message tells the controller that the broker is gone.
"""


@dataclass(frozen=True, slots=True)
class Path:
    """The phases of one partition or member that went through the whole chain."""

    row: Row
    """The row of the partition or member, from `broker_phases` or `client_phases`."""
    phases: tuple[tuple[str, int, int], ...]
    """The name of each phase with its beginning and end, in order. For example,
    `("detect", 20_000_000, 29_100_000)`. Times are microseconds on the run's clock."""

    @property
    def whole_us(self) -> int:
        """Time from the fault to the end of the last phase."""
        _, fault_us, _ = self.phases[0]
        _, _, end_us = self.phases[-1]
        return end_us - fault_us

    @property
    def longest(self) -> list[tuple[str, int]]:
        """The one or two phases that the sentence names, with their lengths, the longest first.

        The second phase is left out if the longest phase took nearly all of the time, or if the
        second phase took no time.
        """
        lengths = [(name, end_us - begin_us) for name, begin_us, end_us in self.phases]
        lengths.sort(key=lambda phase: phase[1], reverse=True)
        longest, second, *_ = lengths  # a chain has three or four phases
        _, longest_us = longest
        _, second_us = second
        if longest_us >= _NEARLY_ALL * self.whole_us or second_us == 0:
            return [longest]
        return [longest, second]


def complete_paths(
    rows: Sequence[Row], phases: Sequence[tuple[str, str, str]], *, subject: str
) -> list[Path]:
    """Return the paths of the partitions or members that completed the chain, the fastest first.

    `phases` is BROKER_STEPS or CLIENT_STEPS. `subject` is the column with the name of the partition
    or member. Paths that took the same time are sorted by this name.
    """
    paths = []
    for row in rows:
        times = tuple((name, row[begin], row[end]) for name, begin, end in phases)
        if all(begin is not None and end is not None for _, begin, end in times):
            paths.append(Path(row, times))
    _, _, last_column = phases[-1]
    return sorted(paths, key=lambda path: (path.row[last_column], str(path.row[subject])))


def median_path(fastest_first: Sequence[Path]) -> Path:
    """Return the median path. If there are two middle paths, it is the faster one.

    There must be at least one path.
    """
    return fastest_first[(len(fastest_first) - 1) // 2]


def rows_to_describe(broker_rows: Sequence[Row]) -> Sequence[Row]:
    """Return the rows of the partitions that store a group, because users care for their groups.

    If no partition stores a group, all rows are returned, so that there is something to describe.
    """
    return [row for row in broker_rows if row["groups"]] or broker_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerChain:
    """The facts about the broker chain of a fault that the template says."""

    fault: FaultSummary
    partitions: int
    """The number of partitions of `__consumer_offsets` that the sentence is about."""
    median_path: Path | None
    """The path of the median partition; None if no partition completed the chain."""
    without_coordinator: int
    """The number of partitions, of those in `partitions`, that had no coordinator when the run
    ended."""
    silence_settings: tuple[str, ...]
    """The settings that decide when the controller notices a silent broker, such as
    "broker.session.timeout.ms = 9000". Empty if the controller notices the fault otherwise."""


def broker_sentence(fault: FaultSummary, broker_rows: Sequence[Row], settings: Settings) -> Markup:
    """Return the sentence about the time until a new coordinator was active."""
    rows = rows_to_describe(broker_rows)
    paths = complete_paths(rows, BROKER_STEPS, subject="partition")
    chain = BrokerChain(
        fault=fault,
        partitions=len(rows),
        median_path=median_path(paths) if paths else None,
        without_coordinator=len(rows) - len(paths),
        silence_settings=_silence_settings(settings) if fault.kind in _NOTICED_BY_SILENCE else (),
    )
    return render_line("chains", "broker_chain", chain)


def _silence_settings(settings: Settings) -> tuple[str, ...]:
    """Return the settings that decide when the controller notices a silent broker."""
    names = ("broker.session.timeout.ms", "broker.heartbeat.interval.ms")
    values = [(name, settings.of_cluster(name)) for name in names]
    return tuple(f"{name} = {value}" for name, value in values if value is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientChain:
    """The facts about the client chain of a fault that the template says.

    For example, the fault affected 12 members (`members` = 12). 2 members stayed with their
    coordinator (`stayed` = 2), and 10 members looked for the new coordinator. The new coordinator
    served 9 members (`served` = 9). The run ended before the last member was served (`not_served` =
    1).
    """

    members: int
    stayed: int
    served: int
    not_served: int
    joined: int
    """The number of members that had to join their group again."""
    median_path: Path | None
    """The path of the median member that was served; None if no member was served."""


def client_sentence(client_rows: Sequence[Row]) -> Markup:
    """Return the sentence about the time until a member was served again."""
    lost_coordinator = [row for row in client_rows if row["unknown_us"] is not None]
    paths = complete_paths(lost_coordinator, CLIENT_STEPS, subject="consumer")
    chain = ClientChain(
        members=len(client_rows),
        stayed=len(client_rows) - len(lost_coordinator),
        served=len(paths),
        not_served=len(lost_coordinator) - len(paths),
        joined=sum(row["join_us"] is not None for row in client_rows),
        median_path=median_path(paths) if paths else None,
    )
    return render_line("chains", "client_chain", chain)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gaps:
    """The facts about the times without service after a fault that the template says.

    A distribution is None if the sentence does not mention it.
    """

    commit: Distribution | None
    """The times in which members had no commit acknowledged."""
    processing: Distribution | None
    """The times in which no member processed a record of a partition."""
    no_coordinator: Distribution | None
    """The times in which groups had no active coordinator."""
    never_again: tuple[str, ...]
    """The names of the members, partitions and groups that had no service again before the run
    ended."""


def gap_sentence(fault: FaultSummary, rows: Sequence[Row]) -> Markup | None:
    """Return the sentence about times without service after a fault; None if there is none.

    `rows` are the fault's rows of the table `availability`.
    """
    commit = fault.distribution("commit gap")
    if commit is not None and not commit.samples:
        commit = None
    processing = fault.distribution("processing gap")
    if processing is not None and not processing.samples:
        processing = None
    no_coordinator = fault.distribution("no coordinator")
    # The time of a group that kept its coordinator is 0. So if the maximum is 0, all groups kept
    # their coordinators, and the sentence does not mention them.
    if no_coordinator is not None and (not no_coordinator.maximum or not fault.partitions_moved):
        no_coordinator = None
    never_again = tuple(row["subject"] for row in rows if row["gap_us"] is None)
    if not any((commit, processing, no_coordinator, never_again)):
        return None
    gaps = Gaps(
        commit=commit,
        processing=processing,
        no_coordinator=no_coordinator,
        never_again=never_again,
    )
    return render_line("chains", "gaps", gaps)


_BROKER = (
    ("detect", "fault injected", "the controller fences the broker, or moves the leadership"),
    ("publish", "the controller decided", "the new leader applied it from the metadata log"),
    ("load wait", "the new leader applied it", "its load task starts: a broker runs one at a time"),
    ("load", "the load task starts", "the coordinator is active: groups and offsets are read"),
)
"""What the table `definitions` says about the broker chain: the name of each phase, its beginning
and its end.
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
"""What the table `definitions` says about the client chain.

The last two entries are counts, and not phases. The second text of such an entry is the moment from
which on something is counted, and the third text is what is counted.
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
"""What the table `definitions` says about the times without service."""


def definitions() -> TextTable:
    """Return the table that defines each measure. The page shows it folded, under its title."""
    chains = (("broker", _BROKER), ("client", _CLIENT), ("without service", _GAPS))
    return TextTable(
        headings=("chain", "phase", "from", "to"),
        rows=tuple(
            (chain, name, begin, end) for chain, phases in chains for name, begin, end in phases
        ),
        folded="What each phase measures",
    )
