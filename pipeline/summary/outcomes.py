"""Outcomes of a run for its groups: rebalances, times with two coordinators, and with two owners.

`figures.RunSummary` holds these structs beside the phases. Times are microseconds on the run's
clock, lengths are microseconds. This module imports no Spark.

- In a rebalance, the members of a group rejoin and get new partitions. Each rebalance begins a new
  generation of the group; generations are numbered.
- The broker that leads a partition of `__consumer_offsets` (an offsets partition) coordinates the
  groups of this partition. The leader epoch is the number of this leadership.
- A tenure is the time in which a broker is the coordinator of an offsets partition in one leader
  epoch. If two tenures overlap, the older one has the lower epoch.
- A machine is away by accident if it is lost or silent without a planned fault.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from protocol.causes import RebalanceCause


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebalances:
    """Rebalances of one group that one coordinator began for one reason after one fault.

    - `reason`: a RebalanceCause, as in `tables.rebalances`.
    - `consumers`: the members that caused the rebalances; empty if no single member did.
    - `removed`, `added`: consumers that left the group, and consumers that joined it.
    - `removed_because`: the reasons for the removals, as RemovalCauses.
    - `generations`: the first generation that ended, and the last one that began; None if no
      generation ended or began.
    - `not_stored`: number of rebalances whose assignment the coordinator could not store;
      `store_errors`: the errors.
    - `after_us`: time from the fault to the start of the first rebalance.
    - `longest_us`: longest time from the start of a rebalance to its stored assignment; None if no
      assignment was stored.
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
    disturbed: bool = False  # a machine was away by accident during the rebalances

    @property
    def words(self) -> str:
        """Number and reason: `1 rebalance: session expiry of consumer-readers-0`."""
        number = "1 rebalance" if self.count == 1 else f"{self.count:,} rebalances"
        if not self.consumers or self.reason in _CAUSED_BY_NO_MEMBER:
            return f"{number}: {self.reason}"
        return f"{number}: {self.reason} of {listed(self.consumers)}"


_CAUSED_BY_NO_MEMBER = frozenset(
    {RebalanceCause.ASSIGNMENT_NOT_STORED, RebalanceCause.GROUP_TOO_LARGE}
)
"""Reasons that are not acts of a member. The coordinator records a member for these reasons, too,
but `words` does not name it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlappingTenure:
    """The tenure of one of two coordinators, and its answers in the time in which both served.

    - `heartbeats`, `commits`: successful answers to heartbeats and to commits that reached the
      client in this time.
    - `commits_in_all`: commits of the whole tenure that the log acknowledged.
    """

    broker: str
    leader_epoch: int
    heartbeats: int
    commits: int
    commits_in_all: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Coordinators:
    """Two coordinators of the same groups at the same time.

    - `from_us`, `to_us`: the time with two coordinators.
    - `older_end`: why the older tenure ended.
    - `older_paused_us`, `older_cut_us`: how long the older broker was paused, or cut off from
      others, in the time with two coordinators.
    - `older_last_commit_us`: moment at which the log acknowledged the last commit of the older
      tenure; None if it had none.
    - `newer_first_commit_us`: the same for the first commit of the newer tenure.
    """

    groups: tuple[str, ...]
    partition: str
    older: OverlappingTenure
    newer: OverlappingTenure
    from_us: int
    to_us: int
    older_end: str
    older_paused_us: int
    older_cut_us: int
    older_last_commit_us: int | None
    newer_first_commit_us: int | None
    disturbed: bool = False  # a machine was away by accident in this time


@dataclass(frozen=True, slots=True, kw_only=True)
class Owners:
    """Two sets of members that owned the same partitions of a group at the same time.

    - `partitions`: number of these partitions.
    - `first_consumers`: the members that owned the partitions first.
    - `second_consumers`: the members that came to own the same partitions while the first members
      still owned them.
    - `first_coordinator`: the broker that assigned the partitions to the first members, and its
      leader epoch; `second_coordinator`: the same of the second members. None if unknown.
    - `from_us`, `to_us`: the time with two owners. `to_us` is None if it lasted until the run's
      end.
    - `longest_us`: the longest time in which one partition had two owners.
    - `records_both`: number of records that members of both sets processed in the time with two
      owners.
    - `healed_us`: when the last fault was healed before `to_us`. If none was healed until then:
      when the first fault was healed after `to_us`. None if no fault was healed.
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
    disturbed: bool = False  # a machine was away by accident in this time


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupProcessing:
    """How many records a group processed.

    - `records`: all processed records. A record that was processed twice counts twice.
    - `repeated`: how many of `records` the group had processed before.
    """

    group: str
    records: int
    repeated: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitErrors:
    """How many commits failed with one error (Kafka's name), and of how many members."""

    error: str
    commits: int
    members: int


MAX_LISTED = 4
"""Maximum number of names, or ranges of names, that `listed` puts into one text."""


def listed(names: Iterable[str]) -> str:
    """Return names as text, with consecutive numbers as a range: `consumer-0 to 5, consumer-9`.

    If there are more than MAX_LISTED names and ranges, the others are only counted: `... and 3
    more`.
    """
    parts: list[str] = []
    for stem, numbers in _by_stem(names).items():
        parts += [_range_text(stem, first, last) for first, last in _ranges(numbers)]
    shown = ", ".join(parts[:MAX_LISTED])
    left_out = len(parts) - MAX_LISTED
    return f"{shown} and {left_out} more" if left_out > 0 else shown


def in_number_order(names: Iterable[str]) -> tuple[str, ...]:
    """Return names sorted by their numbers: consumer-2 before consumer-10."""
    return tuple(sorted(names, key=_split))


_NO_NUMBER = -1
"""Stands for the number of a name that does not end with a number."""


def _split(name: str) -> tuple[str, int]:
    """Split a name into its beginning and the number at its end: `consumer-` and 10.

    A name without a number is returned whole, with _NO_NUMBER. A number with leading zeros (007)
    does not count, because the name could not be rebuilt from it.
    """
    stem = name.rstrip("0123456789")
    digits = name[len(stem) :]
    if not digits or str(int(digits)) != digits:
        return name, _NO_NUMBER
    return stem, int(digits)


def _by_stem(names: Iterable[str]) -> dict[str, list[int]]:
    """Return the numbers of names by the beginning of the name: 0, 1 and 2 for `consumer-`."""
    stems: dict[str, list[int]] = {}
    for name in in_number_order(names):
        stem, number = _split(name)
        stems.setdefault(stem, []).append(number)
    return stems


def _ranges(numbers: list[int]) -> list[tuple[int, int]]:
    """Return the first and last number of each range of consecutive numbers.

    `numbers` are sorted.
    """
    ranges: list[tuple[int, int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    return ranges


def _range_text(stem: str, first: int, last: int) -> str:
    """Return a range of numbered names as text: `consumer-0 to 5`."""
    if first == _NO_NUMBER:
        return stem
    if first == last:
        return f"{stem}{first}"
    return f"{stem}{first} {'and' if last == first + 1 else 'to'} {last}"
