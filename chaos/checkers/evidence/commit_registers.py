"""The history of committed offsets: one register for each group and partition.

A register has the commits of its group for its partition. The checker `durable_commits` asks a
register which values a fetch may return. The trace does not show the moment at which a commit took
effect. But the trace shows two times: the earliest time at which the commit can have been sent
(after the answer to the member's previous commit), and the time of the answer. If the commit took
effect at all, it did so between these two times.

Most commits have two rows in the trace. The broker writes COMMIT_STORED when its append is
complete, and the member writes a row about the answer or the failure. A register keeps one Commit
for both.
"""

from collections import deque
from dataclasses import dataclass, field, replace

from protocol.trace import TraceKind, TraceRow

MAX_KEPT_COMMITS = 4_096
"""Number of commits that a register keeps. The limit bounds the memory of long runs.

If there are more, the oldest are dropped.
"""
GIVEN_UP_BY_THE_CLIENT = frozenset({"TIMED_OUT", "DISCONNECTED"})
"""Errors that a client gives to a request when it no longer waits for the answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """One commit of one partition.

    The commit took effect between `earliest_us` and `latest_us`, or never. A commit that its client
    gave up may also take effect later.
    """

    offset: int
    node: str  # the node that wrote `row`
    earliest_us: int
    latest_us: int
    acknowledged: bool  # True if a later fetch must return this commit or a newer commit
    # The client's row of the answer or failure. If there is no such row, the broker's row.
    row: TraceRow


@dataclass(slots=True)
class Register:
    """The committed offset of one group and partition."""

    commits: deque[Commit] = field(default_factory=lambda: deque(maxlen=MAX_KEPT_COMMITS))
    # The history is complete only after this time. Earlier commits may have been dropped.
    forgotten_until_us: int = -1
    # node -> time of the answer to its last commit
    answered_us: dict[str, int] = field(default_factory=dict)
    # Rows COMMIT_STORED of commits for which there is also a row of the client
    stored: deque[TraceRow] = field(default_factory=lambda: deque(maxlen=MAX_KEPT_COMMITS))
    # offset -> commits that their clients gave up. Each of them may still take effect at any time.
    pending: dict[int, list[Commit]] = field(default_factory=dict)
    # The next two dicts save `has_answer` and `take_answer` the search of `commits` for an offset
    # that has no such commit.
    # offset -> number of acknowledged commits in `commits`
    _acknowledged: dict[int, int] = field(default_factory=dict)
    # offset -> number of commits in `commits` that are known only from the broker's row
    _from_broker: dict[int, int] = field(default_factory=dict)
    reported: TraceRow | None = None  # row of the last lost commit that a finding was about

    def remember(self, commit: Commit) -> None:
        """Add a commit. At the limit the oldest commit is dropped.

        `pending` has no limit, so a dropped commit that may still take effect stays there.
        """
        if len(self.commits) == MAX_KEPT_COMMITS:
            oldest = self.commits.popleft()
            self.forgotten_until_us = oldest.latest_us
            self._count(oldest, -1)
        self.commits.append(commit)
        self._count(commit, 1)
        if not commit.acknowledged and commit.row.error in GIVEN_UP_BY_THE_CLIENT:
            self.pending.setdefault(commit.offset, []).append(commit)

    def forgive(self) -> int:
        """Mark all commits so far as unacknowledged; return how many were acknowledged.

        The checker calls this when the group's partition has lost data in a way that Kafka allows.
        From then on a fetch need not return these commits, but it still may return them.
        """
        before = sum(commit.acknowledged for commit in self.commits)
        commits = [replace(commit, acknowledged=False) for commit in self.commits]
        self.commits.clear()
        self.commits.extend(commits)
        self._acknowledged.clear()
        return before

    def forgive_unstored(self) -> None:
        """Mark as unacknowledged each commit for which there is no row COMMIT_STORED.

        The checker calls this for groups that commit in transactions. A commit without the row
        waits for the marker that ends its transaction, and may be lost with the transaction.
        """
        stored = {(row.offset, row.member, row.generation) for row in self.stored}
        for index, known in enumerate(self.commits):
            row = known.row
            if known.acknowledged and (known.offset, row.member, row.generation) not in stored:
                self._count(known, -1)
                self.commits[index] = replace(known, acknowledged=False)

    def take_answer(self, row: TraceRow, offset: int) -> None:
        """Drop the commit that is known from the broker's row, if `row` is the member's answer.

        Both rows are about the same commit, and the caller adds a Commit for the member's row. The
        Commit of the broker's row has times of the broker's clock. If it stayed, it could seem to
        be newer than the member's next commit.
        """
        if offset not in self._from_broker:
            return
        for index in range(len(self.commits) - 1, -1, -1):
            known = self.commits[index]
            if (
                known.row.kind == TraceKind.COMMIT_STORED
                and known.offset == offset
                and known.row.member == row.member
                and known.row.generation == row.generation
            ):
                self.stored.append(known.row)
                self._count(known, -1)
                del self.commits[index]
                return

    def has_answer(self, row: TraceRow, offset: int) -> bool:
        """Return True if the commit of `row` (COMMIT_STORED) is already known from its answer.

        This happens with commits in transactions. Such a commit is answered first, and stored only
        when the marker of its transaction is written. If the coordinator has loaded the commit from
        its log, the coordinator does not know the member, and `row.member` is None.
        """
        # A commit without a transaction is stored before it is answered. Its COMMIT_STORED has the
        # id of its append as `correlation_id`.
        if row.correlation_id is not None or offset not in self._acknowledged:
            return False
        for known in reversed(self.commits):
            if (
                known.acknowledged
                and known.offset == offset
                and (row.member is None or known.row.member == row.member)
                and (row.generation is None or known.row.generation == row.generation)
            ):
                self.stored.append(row)
                return True
        return False

    def _count(self, commit: Commit, change: int) -> None:
        """Add `change` (1 or -1) to the count of commits like `commit`, if there is one."""
        if commit.acknowledged:
            counts = self._acknowledged
        elif commit.row.kind == TraceKind.COMMIT_STORED:
            counts = self._from_broker
        else:
            return
        count = counts.get(commit.offset, 0) + change
        if count:
            counts[commit.offset] = count
        else:
            del counts[commit.offset]


def replaces(newer: Commit, older: Commit, margin: int) -> bool:
    """Return True if it is certain that `newer` takes effect only after `older`, or never.

    `margin` is the largest difference between the clocks of two nodes, in microseconds. Two commits
    of one node need no margin, because their rows have the same clock.
    """
    if newer is older:
        return False
    if newer.node == older.node:
        # `>` excludes that two commits with equal times replace one another.
        return newer.latest_us > older.latest_us and newer.earliest_us >= older.latest_us
    return older.latest_us + margin < newer.earliest_us
