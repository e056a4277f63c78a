"""What a run's faults did to its groups: rebalances, two coordinators at once, two owners at once.

`coordlab analyze` and the report show these facts beside the phases of each failover. They are
plain structs, so that a page or a table can be made without Spark. `outcome_summary` fills them.

Moments are microseconds on the run's clock. The field `disturbed` of a struct is True if a machine
was away by accident, and not by a planned fault, in the time that the struct is about. The figures
of such a struct say little about Kafka.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from protocol.causes import RebalanceCause


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebalances:
    """Rebalances after the same fault, of the same group, by the same coordinator, for one reason.

    Example: broker-0, consumer-readers-0 and consumer-readers-1 crashed together. The new
    coordinator broker-1 then removed first the one consumer and later the other, because their
    sessions expired. These are two rebalances of the group `readers` by broker-1 because of a
    `session expiry`.

    If there are only a few such rebalances, each has a struct of its own with a `count` of 1, and a
    reader can follow them one by one. Many such rebalances share one struct
    (`outcome_summary.ONE_BY_ONE_MAX`).
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
    """the members that were the reason for the rebalances, such as members whose sessions expired;
    empty if no member was the reason"""
    removed: tuple[str, ...]
    """members that the group lost in the rebalances"""
    removed_because: tuple[str, ...]
    """why members were removed, as RemovalCauses"""
    added: tuple[str, ...]
    """members that the group gained"""
    generations: tuple[int | None, int | None]
    """The group's generation before the first rebalance, and its generation after the last
    rebalance. The first is None if the generation is not known. The second is None if no rebalance
    came to a new generation."""
    not_stored: int
    """number of rebalances whose assignment the coordinator could not write to its log"""
    store_errors: tuple[str, ...]
    """the errors with which assignments could not be written"""
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
    def headline(self) -> str:
        """Text such as `2 rebalances: session expiry of consumer-readers-0 and 1`."""
        number = "1 rebalance" if self.count == 1 else f"{self.count:,} rebalances"
        if not self.consumers or self.reason in _NOT_CAUSED_BY_A_MEMBER:
            return f"{number}: {self.reason}"
        return f"{number}: {self.reason} of {listed(self.consumers)}"


_NOT_CAUSED_BY_A_MEMBER = frozenset(
    {RebalanceCause.ASSIGNMENT_NOT_STORED, RebalanceCause.GROUP_TOO_LARGE}
)
"""Reasons of rebalances that no member caused. The trace still names a member, because its request
was the occasion. But a text that named this member would sound as if it had caused the rebalance.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlappingTenure:
    """One of two coordinators that served the same groups at the same time (split brain).

    A broker coordinates the groups of a partition of `__consumer_offsets` while it leads this
    partition. A tenure is the time of one such leadership, with one leader epoch. Two tenures can
    overlap, because the older coordinator does not know yet that another broker leads. The numbers
    tell what this coordinator did.
    """

    broker: str
    leader_epoch: int
    heartbeats: int
    """number of heartbeats that this coordinator answered with success while both coordinators
    served; an answer counts only if it reached the member"""
    commits: int
    """number of commits that this coordinator answered with success while both coordinators served;
    an answer counts only if it reached the member"""
    commits_in_all: int
    """number of commits that this coordinator's log acknowledged in the whole tenure, also while no
    other coordinator served"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Coordinators:
    """Two coordinators that served the same groups at the same time, from `from_us` to `to_us`.

    The older coordinator is the one with the lower leader epoch.
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
    """how long the network separated the older broker from other nodes between `from_us` and
    `to_us`"""
    older_last_commit_us: int | None
    """when the log acknowledged the older tenure's last commit; None without a commit"""
    newer_first_commit_us: int | None
    """when the log acknowledged the newer tenure's first commit; None without a commit"""
    disturbed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Owners:
    """Partitions of a group that had two owners at the same time.

    Example: broker-0 had assigned 12 partitions to consumer-a-0 and consumer-a-1. Then broker-1
    became the coordinator, did not hear of these two members, and assigned the 12 partitions to
    consumer-a-2. Until the first two members learn of it, each partition has two owners.
    """

    group: str
    partitions: int
    """number of partitions with two owners"""
    first_coordinator: tuple[str | None, int | None]
    """The broker that assigned the partitions to their first owners, and the leader epoch of the
    assignment: ("broker-0", 2). The broker or the epoch is None if the trace does not show it."""
    first_consumers: tuple[str, ...]
    """the first owners"""
    second_coordinator: tuple[str | None, int | None]
    """the broker that assigned the partitions to their second owners, and the leader epoch of the
    assignment"""
    second_consumers: tuple[str, ...]
    """members that were assigned the partitions while the first owners still had them"""
    from_us: int
    """when the first of the partitions had two owners"""
    to_us: int | None
    """when the last of the partitions had one owner again; None if the run ended before"""
    longest_us: int
    """the longest time for which a single partition had two owners"""
    records_both: int
    """number of records that a first and a second owner both processed while both owned their
    partition"""
    healed_us: int | None
    """When a fault was healed: the last healing before `to_us`, or else the first healing after
    `to_us`. None if no fault was healed. With this moment, a text can tell how long after a healing
    there still were two owners."""
    disturbed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupProcessing:
    """How many records a group processed, and how many of them more than once."""

    group: str
    records: int
    """number of records that members processed; a record that was processed twice counts twice"""
    repeated: int
    """how many of `records` the group had already processed before"""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitErrors:
    """How many commits failed with one error, and how many members sent them."""

    error: str
    """Kafka's name of the error, such as `REBALANCE_IN_PROGRESS`"""
    commits: int
    members: int


MAX_LISTED = 4
"""Maximum number of names, or ranges of names, that `listed` writes out."""


def listed(names: Iterable[str]) -> str:
    """Return names as text, with consecutive numbers as a range: `consumer-0 to 5, consumer-9`.

    A long list ends with the number of the names and ranges that it leaves out:
    `consumer-0, consumer-2, consumer-4, consumer-6 and 3 more`.
    """
    names_and_ranges = [
        _range_text(stem, first, last)
        for stem, numbers in _numbers_by_stem(names).items()
        for first, last in _ranges(numbers)
    ]
    text = ", ".join(names_and_ranges[:MAX_LISTED])
    left_out = len(names_and_ranges) - MAX_LISTED
    return f"{text} and {left_out} more" if left_out > 0 else text


def in_number_order(names: Iterable[str]) -> tuple[str, ...]:
    """Return names sorted by their numbers: consumer-2 before consumer-10."""
    return tuple(sorted(names, key=_stem_and_number))


_NO_NUMBER = -1
"""Stands for the number of a name that does not end with a number."""


def _stem_and_number(name: str) -> tuple[str, int]:
    """Split a name at the number at its end: `consumer-10` into `consumer-` and 10.

    A name without a number at its end is returned whole, with _NO_NUMBER. A name whose number has
    leading zeros is also returned whole: `agent-007`, split into `agent-` and 7, would be printed
    as `agent-7`.
    """
    stem = name.rstrip("0123456789")
    digits = name[len(stem) :]
    has_leading_zeros = bool(digits) and str(int(digits)) != digits
    if not digits or has_leading_zeros:
        return name, _NO_NUMBER
    return stem, int(digits)


def _numbers_by_stem(names: Iterable[str]) -> dict[str, list[int]]:
    """Return the sorted numbers of names that are alike except for their numbers.

    Example: `broker-1`, `consumer-2` and `consumer-0` give `{"broker-": [1], "consumer-": [0, 2]}`.
    """
    numbers: dict[str, list[int]] = {}
    for name in in_number_order(names):
        stem, number = _stem_and_number(name)
        numbers.setdefault(stem, []).append(number)
    return numbers


def _ranges(numbers: list[int]) -> list[tuple[int, int]]:
    """Return the first and last number of each range in sorted numbers.

    Example: 0, 1, 2, 5 gives (0, 2) and (5, 5).
    """
    ranges: list[tuple[int, int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            # The number follows the last range, which is extended.
            first, _ = ranges[-1]
            ranges[-1] = (first, number)
        else:
            ranges.append((number, number))
    return ranges


def _range_text(stem: str, first: int, last: int) -> str:
    """Return the names from `first` to `last`: `consumer-0 to 5`, `consumer-0 and 1`, `admin`."""
    if first == _NO_NUMBER:
        return stem
    if first == last:
        return f"{stem}{first}"
    connector = "and" if last == first + 1 else "to"
    return f"{stem}{first} {connector} {last}"
