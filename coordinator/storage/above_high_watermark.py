"""Answers and late commits that wait for the high watermark of a partition.

Kafka's Java coordinator holds some answers back until every record that the request could see is
below the high watermark, and so is on every in-sync replica. This module keeps these held answers.
The module is in use only if a switch turns this behaviour on. The broker reports how the log and
its high watermark advance (`GroupCoordinator.log_moved`).

A late commit is an OffsetCommit that has waited too long for the high watermark. Its client has got
an error. But the records of the commit are in the log, so its offsets become the committed ones
when the high watermark passes the records after all.

This module must not know how requests are answered; `held_writes` does that.

Source: Kafka (Java) `CoordinatorRuntime`, `SnapshottableCoordinator` (lastWrittenOffset,
lastCommittedOffset), `DeferredEventQueue`.
"""

from dataclasses import dataclass
from typing import NamedTuple

from coordinator.group import Group
from protocol.errors import ErrorCode
from protocol.ids import AppendId, RequestId, TopicPartition
from protocol.messages.offset import OffsetFetchResponseGroup
from protocol.records.offsets import OffsetCommitValue


class LogPosition(NamedTuple):
    """End offset and high watermark of a partition's log, as its leader knows them."""

    end_offset: int
    high_watermark: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldHeartbeat:
    """A Heartbeat whose answer is held.

    `error_code` of the answer is NONE or REBALANCE_IN_PROGRESS.
    """

    request_id: RequestId
    error_code: ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkedFetch:
    """An OffsetFetch whose answer is not complete yet.

    `groups` has a part of the answer for each group. It has None for a part that is still held.
    """

    request_id: RequestId
    groups: list[OffsetFetchResponseGroup | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldFetch:
    """A part of an OffsetFetch's answer that is held. The part is about one group.

    When the high watermark allows it, the part `group` goes to the place `index` of `fetch.groups`.
    """

    fetch: ParkedFetch
    index: int
    group: OffsetFetchResponseGroup


HeldWrite = HeldHeartbeat | HeldFetch
"""A held answer. The request was processed, and appended no record. But the answer waits until the
records that were in the log before the request are committed.

Kafka's Java coordinator calls such a request a write, because its handler may change memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenCommit:
    """An OffsetCommit that is in the log.

    The commit has one record for each of `values`. The first record has the offset `base_offset`.
    """

    group: Group
    member_id: str
    generation_id: int
    append_id: AppendId
    base_offset: int
    values: dict[TopicPartition, OffsetCommitValue]


class AboveHighWatermark:
    """Answers and late commits of one partition that wait for the high watermark.

    Invariant: `held` is sorted by the offset for which each answer waits. This holds because a dict
    keeps the order of insertion, and the end of the log never falls while this broker leads.
    """

    __slots__ = ("_held_count", "_late", "held", "position")

    def __init__(self) -> None:
        self.position: LogPosition | None = LogPosition(0, 0)
        """The position that the broker reported last. None after the broker has lost the leadership
        of the partition. The log counts as empty until the first report, which the broker makes
        after the load."""
        self.held: dict[str, tuple[int, HeldWrite]] = {}
        """Timer key -> (offset that the high watermark must reach, answer). The timer ends the wait
        if the high watermark does not reach the offset in time."""
        self._held_count = 0
        """Number of answers held so far, which makes the timer keys unique."""
        self._late: list[WrittenCommit] = []

    @property
    def is_empty(self) -> bool:
        """True if no record is above the high watermark, so that every record is committed.

        False if this broker has lost the leadership, because it does not know the high watermark.
        """
        position = self.position
        return position is not None and position.end_offset <= position.high_watermark

    def hold(self, partition: int, write: HeldWrite) -> str:
        """Keep an answer until every record now in the log is committed. Return its timer's key.

        If this broker has lost the leadership, no high watermark will be reported, and only the
        timer ends the wait. The offset 0 then has no meaning, because `committed_keys` does not
        read it.
        """
        self._held_count += 1
        key = f"write-{partition}-{self._held_count}"
        self.held[key] = (0 if self.position is None else self.position.end_offset, write)
        return key

    def committed_keys(self) -> list[str]:
        """Return the keys of the answers for which the high watermark has gone far enough."""
        keys: list[str] = []
        if self.position is not None:
            for key, (end_offset, _) in self.held.items():
                if end_offset > self.position.high_watermark:
                    break  # `held` is sorted, so all further answers must wait, too
                keys.append(key)
        return keys

    def keep_late(self, commit: WrittenCommit) -> None:
        """Remember a late commit: its client got an error, but the log may still commit it."""
        self._late.append(commit)

    def take_late(self, high_watermark: int) -> list[WrittenCommit]:
        """Remove and return the late commits below `high_watermark`, oldest first."""
        if not self._late:
            return []
        # A commit has one record for each value. The high watermark must pass the last record.
        passed = [c for c in self._late if c.base_offset + len(c.values) <= high_watermark]
        self._late = [c for c in self._late if c not in passed]
        # `_late` has the commits in the order of their timeouts. The log may have another order.
        return sorted(passed, key=lambda commit: commit.base_offset)
