"""Records above the high watermark of a partition, and the answers that wait for them.

The high watermark is the offset below which every in-sync replica has the records: they are
committed. This module is used only with switches of the Java coordinator. With them an answer waits
until every record that its request could see is committed. If an OffsetCommit waits too long, its
client gets an error. The commit is then called late: its record is in the log, and it still becomes
the committed offset once the high watermark passes it. The broker reports the end of the log and
its high watermark (`GroupCoordinator.log_moved`). This module must not know how requests are
answered.
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
    """A processed Heartbeat; `error_code` is its answer: NONE or REBALANCE_IN_PROGRESS."""

    request_id: RequestId
    error_code: ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkedFetch:
    """An OffsetFetch of one or several groups. `groups` has None for a group that still waits."""

    request_id: RequestId
    groups: list[OffsetFetchResponseGroup | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldFetch:
    """The part of an OffsetFetch's answer for one group; `index` is its place in `fetch.groups`."""

    fetch: ParkedFetch
    index: int
    group: OffsetFetchResponseGroup


HeldWrite = HeldHeartbeat | HeldFetch
"""A processed request that appended no record; its answer waits for the records before it.

Kafka's Java coordinator calls such a request a write, since its handler may change memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenCommit:
    """An OffsetCommit in the log: one record for each of `values`, the first at `base_offset`."""

    group: Group
    member_id: str
    generation_id: int
    append_id: AppendId
    base_offset: int
    values: dict[TopicPartition, OffsetCommitValue]


class AboveHighWatermark:
    """Answers and late commits of one partition that wait for the high watermark.

    Invariant: `held` is sorted by the offset that each answer waits for. The order of a dict is
    that of insertion, and the log's end offset never falls while this broker leads.
    """

    __slots__ = ("_held_count", "_late", "held", "position")

    def __init__(self) -> None:
        self.position: LogPosition | None = LogPosition(0, 0)
        """None once this broker has lost the leadership of the partition. Until the broker's first
        report, which follows the load directly, the log counts as empty."""
        self.held: dict[str, tuple[int, HeldWrite]] = {}
        """Timer key -> the log end offset that must be committed first, and the answer."""
        self._held_count = 0
        """Number of answers ever held, for unique timer keys."""
        self._late: list[WrittenCommit] = []

    @property
    def is_empty(self) -> bool:
        """True if no record is above the high watermark: every record in the log is committed.

        False for a former leader, which does not know the high watermark.
        """
        position = self.position
        return position is not None and position.end_offset <= position.high_watermark

    def hold(self, partition: int, write: HeldWrite) -> str:
        """Keep an answer until every record now in the log is committed; return its timer's key.

        After a loss of leadership no record will be committed, and only the timer ends the wait.
        The offset in `held` is then 0 and is never looked at.
        """
        self._held_count += 1
        key = f"write-{partition}-{self._held_count}"
        self.held[key] = (0 if self.position is None else self.position.end_offset, write)
        return key

    def committed_keys(self) -> list[str]:
        """Return the keys of the answers whose records are committed."""
        keys: list[str] = []
        if self.position is not None:
            for key, (end_offset, _) in self.held.items():
                if end_offset > self.position.high_watermark:
                    break  # sorted: every later answer waits for an offset at least as high
                keys.append(key)
        return keys

    def keep_late(self, commit: WrittenCommit) -> None:
        """Remember a late commit: it was answered with an error, and the log may yet commit it."""
        self._late.append(commit)

    def take_late(self, high_watermark: int) -> list[WrittenCommit]:
        """Remove and return the late commits below `high_watermark`, oldest first."""
        if not self._late:
            return []
        # A commit has one record for each value; the high watermark must pass the last of them.
        passed = [c for c in self._late if c.base_offset + len(c.values) <= high_watermark]
        self._late = [c for c in self._late if c not in passed]
        # Commits become late in the order of their timeouts, which need not be that of the log.
        return sorted(passed, key=lambda commit: commit.base_offset)
