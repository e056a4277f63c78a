"""What a run's faults did to its groups: rebalances, two coordinators at once, two owners at once.

`analyze` and `report` show these facts beside the phases of each failover. They are plain
structs, so that a page or a table can be made without Spark. `outcome_summary` fills them.

Times are microseconds on the run's clock. `disturbed` is True in a struct if a machine of the lab
was lost or silent in this time without being told to. The figures then say little about Kafka.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from protocol.causes import RebalanceCause


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebalances:
    """Similar rebalances after a fault: of the same group, coordinator and reason.

    Example: after the crash of broker-0, broker-1 in epoch 3 began two rebalances of the group
    `readers` because of a session expiry.
    """

    group: str
    broker: str
    """the coordinator that began the rebalances"""
    leader_epoch: int | None
    """the epoch in which the coordinator led the group's partition of `__consumer_offsets`"""
    reason: str
    """a RebalanceCause, such as `session expiry`"""
    count: int
    consumers: tuple[str, ...]
    """the members that gave the reason, such as those whose sessions expired; may be empty"""
    removed: tuple[str, ...]
    """members that the group lost in the rebalances"""
    removed_because: tuple[str, ...]
    """the reasons for these losses, as RemovalCauses"""
    added: tuple[str, ...]
    """members that the group gained"""
    generations: tuple[int | None, int | None]
    """The group's generation before the first rebalance, and after the last one. None: it had no
    generation before, or it did not come to one."""
    not_stored: int
    """number of rebalances whose assignment the coordinator could not write to its log"""
    store_errors: tuple[str, ...]
    """the errors of these writes"""
    first_us: int
    """when the first rebalance began"""
    last_us: int
    """when the last rebalance began"""
    after_us: int
    """time from the fault to `first_us`"""
    longest_us: int | None
    """longest time from the beginning of a rebalance until its assignment was stored; None if no
    assignment was stored"""
    disturbed: bool = False

    @property
    def words(self) -> str:
        """Text such as `2 rebalances: session expiry of consumer-readers-0 and 1`."""
        number = "1 rebalance" if self.count == 1 else f"{self.count:,} rebalances"
        if not self.consumers or self.reason in _NO_FAULT_OF_A_MEMBER:
            return f"{number}: {self.reason}"
        return f"{number}: {self.reason} of {listed(self.consumers)}"


_NO_FAULT_OF_A_MEMBER = frozenset(
    {RebalanceCause.ASSIGNMENT_NOT_STORED, RebalanceCause.GROUP_TOO_LARGE}
)
"""Reasons for which a member's request was only the occasion. The trace names this member, but a
text that named it would sound as if the member had caused the rebalance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlappingTenure:
    """One of two coordinators that served the same groups at the same time (split brain).

    A tenure is the time in which a broker serves the groups of one partition of
    `__consumer_offsets` as the leader of one epoch.
    """

    broker: str
    leader_epoch: int
    heartbeats: int
    """Heartbeats that it answered with success while both served. Only answers that came to the
    member count."""
    commits: int
    """commits that it answered so"""
    commits_in_all: int
    """commits that its log acknowledged in the whole tenure, also before and after that time"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Coordinators:
    """Two coordinators that served the same groups at the same time, from `from_us` to `to_us`.

    The older one has the lower leader epoch: it has not learnt yet that another broker leads.
    """

    groups: tuple[str, ...]
    partition: str
    """the partition of `__consumer_offsets` that stores the groups"""
    older: OverlappingTenure
    newer: OverlappingTenure
    from_us: int
    to_us: int
    older_end: str
    """why the older tenure ended"""
    older_paused_us: int
    """how long the older broker was paused between `from_us` and `to_us`"""
    older_cut_us: int
    """how long a cut of the network kept the older broker from other nodes in this time"""
    older_last_commit_us: int | None
    """when the log acknowledged the older tenure's last commit; None if it had no commit"""
    newer_first_commit_us: int | None
    """when the log acknowledged the newer tenure's first commit; None if it had no commit"""
    disturbed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Owners:
    """Partitions of a group that had two owners at the same time.

    Example: consumer-a-0 and consumer-a-1 owned 12 partitions. A second coordinator then assigned
    these 12 partitions to consumer-a-2, which did not know of the first two.
    """

    group: str
    partitions: int
    """number of partitions with two owners"""
    first_coordinator: tuple[str | None, int | None]
    """The broker that assigned the partitions to their first owners, and the leader epoch in which
    it did so; None for what the trace does not show."""
    first_consumers: tuple[str, ...]
    """the first owners"""
    second_coordinator: tuple[str | None, int | None]
    """broker and epoch of the assignment to the second owners"""
    second_consumers: tuple[str, ...]
    """members that were assigned the partitions while the first owners still had them"""
    from_us: int
    """when the first of the partitions had two owners"""
    to_us: int | None
    """when the last of them had one owner again; None if that was not before the run's end"""
    longest_us: int
    """longest time in which one of the partitions had two owners"""
    records_both: int
    """number of records that first and second owners processed both, while both owned"""
    healed_us: int | None
    """When the fault was healed that the time with two owners is compared with: the last one healed
    before `to_us`, or else the first one healed after it. None if no fault was healed."""
    disturbed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupProcessing:
    """How many records a group processed, and how many of them more than once."""

    group: str
    records: int
    """all records; one that was processed twice counts twice"""
    repeated: int
    """how many of `records` the group had processed before"""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitErrors:
    """How many commits failed with the same error, and of how many members."""

    error: str
    """Kafka's name of the error, such as `REBALANCE_IN_PROGRESS`"""
    commits: int
    members: int


MAX_LISTED = 4
"""Maximum number of names, or ranges of names, that `listed` writes out."""


def listed(names: Iterable[str]) -> str:
    """Return names as text, with consecutive numbers as a range: `consumer-0 to 5, consumer-9`.

    If there are more than MAX_LISTED names and ranges, the text ends with the number of the others:
    `consumer-0, consumer-2, consumer-4, consumer-6 and 3 more`.
    """
    names_and_ranges: list[str] = []
    for stem, numbers in _numbers_by_stem(names).items():
        names_and_ranges += [_range_text(stem, first, last) for first, last in _ranges(numbers)]
    text = ", ".join(names_and_ranges[:MAX_LISTED])
    left_out = len(names_and_ranges) - MAX_LISTED
    return f"{text} and {left_out} more" if left_out > 0 else text


def in_number_order(names: Iterable[str]) -> tuple[str, ...]:
    """Return names sorted by their numbers: consumer-2 before consumer-10."""
    return tuple(sorted(names, key=_stem_and_number))


_NO_NUMBER = -1
"""The number of a name that does not end with one."""


def _stem_and_number(name: str) -> tuple[str, int]:
    """Split a name at the number at its end: `consumer-10` into `consumer-` and 10.

    A name without a number at its end is its own stem, with _NO_NUMBER. So is a name whose number
    has leading zeros, such as `agent-007`: the text `agent-7` would be another name.
    """
    stem = name.rstrip("0123456789")
    digits = name[len(stem) :]
    if not digits or str(int(digits)) != digits:
        return name, _NO_NUMBER
    return stem, int(digits)


def _numbers_by_stem(names: Iterable[str]) -> dict[str, list[int]]:
    """Return the numbers of names, sorted, by stem.

    Example: `broker-1`, `consumer-2` and `consumer-0` give `{"broker-": [1], "consumer-": [0, 2]}`.
    """
    numbers: dict[str, list[int]] = {}
    for name in in_number_order(names):
        stem, number = _stem_and_number(name)
        numbers.setdefault(stem, []).append(number)
    return numbers


def _ranges(numbers: list[int]) -> list[tuple[int, int]]:
    """Join consecutive ones of sorted numbers: 0, 1, 2, 5 gives (0, 2) and (5, 5)."""
    ranges: list[tuple[int, int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    return ranges


def _range_text(stem: str, first: int, last: int) -> str:
    """Return the names from `first` to `last`: `consumer-0 to 5`, `consumer-0 and 1`, `admin`."""
    if first == _NO_NUMBER:
        return stem
    if first == last:
        return f"{stem}{first}"
    return f"{stem}{first} {'and' if last == first + 1 else 'to'} {last}"
