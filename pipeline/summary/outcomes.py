"""What a run did to its groups, as plain Python: rebalances, double coordinators and owners.

Knows neither Spark nor the terminal, as `figures`, which holds these beside the phases. Times are
microseconds on the run's clock, lengths microseconds.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from protocol.causes import RebalanceCause


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebalances:
    """Rebalances of one group that one coordinator began for one reason after one fault.

    `reason` is a word of `tables.rebalances`; `consumers` caused them, None standing for no single
    member; `removed` and `added` are consumers that left the group or came into it,
    `removed_because` says how. `generations` are the first that ended and the last that began
    (None: none did). `not_stored` counts those whose assignment the log did not take, with
    `store_errors`. `after_us` is from the fault to the first of them, `longest_us` the longest from
    start to stored assignment (None: none got there).
    """

    group: str
    broker: str
    leader_epoch: int | None
    reason: str
    count: int
    consumers: tuple[str, ...]
    removed: tuple[str, ...]
    removed_because: tuple[str, ...]
    added: tuple[str, ...]
    generations: tuple[int | None, int | None]
    not_stored: int
    store_errors: tuple[str, ...]
    first_us: int
    last_us: int
    after_us: int
    longest_us: int | None

    @property
    def words(self) -> str:
        """Say how many there were and why: `1 rebalance: session expiry of consumer-readers-0`."""
        number = "1 rebalance" if self.count == 1 else f"{self.count:,} rebalances"
        if not self.consumers or self.reason in _NOBODYS:
            return f"{number}: {self.reason}"
        return f"{number}: {self.reason} of {listed(self.consumers)}"


_NOBODYS = frozenset({RebalanceCause.ASSIGNMENT_NOT_STORED, RebalanceCause.GROUP_TOO_LARGE})
"""Reasons for which the member that the coordinator names is not to blame."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Office:
    """One of two coordinators at once: what it answered while both were in office.

    `commits` counts those that clients were told it acknowledged meanwhile, `commits_in_all` those
    that the log acknowledged in its whole tenure, `heartbeats` those that it answered with success.
    """

    broker: str
    leader_epoch: int
    heartbeats: int
    commits: int
    commits_in_all: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Coordinators:
    """Two coordinators of the same groups at the same time.

    `older_end` says how the older one ended, `older_paused_us` and `older_cut_us` for how much of
    the time it was stopped or cut off. `older_last_commit_us`: when the log acknowledged the last
    commit of its epoch, `newer_first_commit_us` the first of the newer one (None: none).
    """

    groups: tuple[str, ...]
    partition: str
    older: Office
    newer: Office
    from_us: int
    to_us: int
    older_end: str
    older_paused_us: int
    older_cut_us: int
    older_last_commit_us: int | None
    newer_first_commit_us: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Owners:
    """Two sets of members that owned the same partitions of a group at the same time.

    The first owned them already. A set is told apart by the coordinator that assigned it: broker
    and epoch, None where unknown. `to_us` None: both still owned when the run ended. `longest_us`
    is the longest time for which one partition had two owners; `records_both` counts what both
    processed meanwhile; `healed_us` is the last healing before it ended, or the next after it.
    """

    group: str
    partitions: int
    first_coordinator: tuple[str | None, int | None]
    first_consumers: tuple[str, ...]
    second_coordinator: tuple[str | None, int | None]
    second_consumers: tuple[str, ...]
    from_us: int
    to_us: int | None
    longest_us: int
    records_both: int
    healed_us: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupProcessing:
    """What a group processed: `repeated` of its `records` were not processed for the first time."""

    group: str
    records: int
    repeated: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitErrors:
    """How many commits met an error, by Kafka's name, and how many members did."""

    error: str
    commits: int
    members: int


MAX_LISTED = 4


def listed(names: Iterable[str]) -> str:
    """Return names for people: `consumer-0 to 5, consumer-9`, the first few of many."""
    parts: list[str] = []
    for stem, numbers in _by_stem(names).items():
        parts += [_run(stem, first, last) for first, last in _runs(numbers)]
    shown = ", ".join(parts[:MAX_LISTED])
    more = len(parts) - MAX_LISTED
    return f"{shown} and {more} more" if more > 0 else shown


def in_number_order(names: Iterable[str]) -> tuple[str, ...]:
    """Return names sorted as people count: consumer-2 before consumer-10."""
    return tuple(sorted(names, key=_split))


_NO_NUMBER = -1


def _split(name: str) -> tuple[str, int]:
    """Return what stands before the number that ends a name, and the number."""
    stem = name.rstrip("0123456789")
    digits = name[len(stem) :]
    if not digits or str(int(digits)) != digits:  # no number, or one that is written 007
        return name, _NO_NUMBER
    return stem, int(digits)


def _by_stem(names: Iterable[str]) -> dict[str, list[int]]:
    stems: dict[str, list[int]] = {}
    for name in in_number_order(names):
        stem, number = _split(name)
        stems.setdefault(stem, []).append(number)
    return stems


def _runs(numbers: list[int]) -> list[tuple[int, int]]:
    """Return the runs of consecutive numbers among sorted ones, each with its first and last."""
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return runs


def _run(stem: str, first: int, last: int) -> str:
    if first == _NO_NUMBER:
        return stem
    if first == last:
        return f"{stem}{first}"
    return f"{stem}{first} {'and' if last == first + 1 else 'to'} {last}"
