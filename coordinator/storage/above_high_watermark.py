"""Records above the high watermark of a partition, and the answers that wait for them.

Only kept where a switch of the Java coordinator needs it: there an answer waits until everything
is committed that its request could see, and a commit that timed out still counts once the high
watermark passes it. The broker says where the log ends (`GroupCoordinator.log_moved`).
Must not know how requests are answered. Source: Kafka [J] `CoordinatorRuntime`,
`SnapshottableCoordinator` (lastWrittenOffset, lastCommittedOffset), `DeferredEventQueue`.
"""

from dataclasses import dataclass
from typing import NamedTuple

from coordinator.group import Group
from protocol.errors import ErrorCode
from protocol.ids import AppendId, RequestId, TopicPartition
from protocol.messages.offset import OffsetFetchResponseGroup
from protocol.records.offsets import OffsetCommitValue


class LogPosition(NamedTuple):
    """How far the log of a partition goes here, as its leader knows it."""

    end_offset: int
    high_watermark: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldHeartbeat:
    """A Heartbeat that was processed; `error_code` is its answer, NONE or REBALANCE_IN_PROGRESS."""

    request_id: RequestId
    error_code: ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkedFetch:
    """An OffsetFetch of one or several groups, answered when none of them is None any more."""

    request_id: RequestId
    groups: list[OffsetFetchResponseGroup | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldFetch:
    """What an OffsetFetch read of the group at `index` of its answer."""

    fetch: ParkedFetch
    index: int
    group: OffsetFetchResponseGroup


HeldWrite = HeldHeartbeat | HeldFetch
"""A write without records: it is done, and its answer waits for the writes before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenCommit:
    """A commit that stands in the log: one record for each of `values`, from `base_offset` on."""

    group: Group
    member_id: str
    generation_id: int
    append_id: AppendId
    base_offset: int
    values: dict[TopicPartition, OffsetCommitValue]


class AboveHighWatermark:
    """The writes of one partition that wait for the high watermark.

    Invariant: `held` is in the order of the offsets that it waits for.
    """

    __slots__ = ("_held_count", "_late", "held", "position")

    def __init__(self) -> None:
        self.position: LogPosition | None = LogPosition(0, 0)
        """None once this broker has lost the leadership: nothing is known then."""
        self.held: dict[str, tuple[int, HeldWrite]] = {}
        """By the key of its timer: the log end that it waits for, and the answer."""
        self._held_count = 0
        self._late: list[WrittenCommit] = []

    @property
    def is_empty(self) -> bool:
        """Whether all that this leader has in its log is committed."""
        position = self.position
        return position is not None and position.end_offset <= position.high_watermark

    def hold(self, partition: int, write: HeldWrite) -> str:
        """Keep an answer until all that the log has now is committed; return its timer's key.

        Without the leadership the key is all that ends the wait.
        """
        self._held_count += 1
        key = f"write-{partition}-{self._held_count}"
        self.held[key] = (0 if self.position is None else self.position.end_offset, write)
        return key

    def committed_keys(self) -> list[str]:
        """Return the keys of the answers that need not wait any more."""
        keys: list[str] = []
        if self.position is not None:
            for key, (end_offset, _) in self.held.items():
                if end_offset > self.position.high_watermark:
                    break
                keys.append(key)
        return keys

    def keep_late(self, commit: WrittenCommit) -> None:
        """Remember a commit that was answered with an error, and may be committed yet."""
        self._late.append(commit)

    def take_late(self, high_watermark: int) -> list[WrittenCommit]:
        """Return the late commits below `high_watermark`, oldest first, and forget them."""
        if not self._late:
            return []
        passed = [c for c in self._late if c.base_offset + len(c.values) <= high_watermark]
        self._late = [c for c in self._late if c not in passed]
        return sorted(passed, key=lambda commit: commit.base_offset)
