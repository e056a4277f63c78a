"""The history of committed offsets, from the trace: one register per group and partition.

A register knows the times between which each commit took effect, if it did. `durable_commits`
judges fetches by it. Most commits have two rows in the trace: the broker writes COMMIT_STORED
when its append is complete, and the member writes a row about the answer or the failure. A register
keeps one Commit for both rows.
"""

from collections import deque
from dataclasses import dataclass, field, replace

from protocol.trace import TraceKind, TraceRow

MAX_KEPT_COMMITS = 4_096
"""Limit of a register's commits. It bounds the memory of long runs."""
GIVEN_UP_BY_THE_CLIENT = frozenset({"TIMED_OUT", "DISCONNECTED"})
"""Errors of requests that no broker answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """One commit of one partition. It took effect between `earliest_us` and `latest_us`, or never.

    - `row`: the client's row of the answer or the failure; the broker's row if there is none.
    - `node`: the node that wrote `row`.
    """

    offset: int
    node: str
    earliest_us: int
    latest_us: int
    acknowledged: bool
    row: TraceRow


@dataclass(slots=True)
class Register:
    """The committed offset of one group and partition."""

    commits: deque[Commit] = field(default_factory=lambda: deque(maxlen=MAX_KEPT_COMMITS))
    forgotten_until_us: int = -1  # commits up to this time may have been dropped from `commits`
    # node -> time of the answer to its last commit
    answered_us: dict[str, int] = field(default_factory=dict)
    # rows of brokers about commits that were answered
    stored: deque[TraceRow] = field(default_factory=lambda: deque(maxlen=MAX_KEPT_COMMITS))
    # offset -> commits that their client gave up: each may still take effect at any time
    pending: dict[int, list[Commit]] = field(default_factory=dict)
    # By offset: how many of `commits` are acknowledged, and how many are known only from the
    # broker's row. `take_answer` and `has_answer` look for another row of the same commit. Mostly
    # there is none, and the counts show this without a scan of `commits`.
    _acknowledged: dict[int, int] = field(default_factory=dict)
    _from_broker: dict[int, int] = field(default_factory=dict)
    reported: TraceRow | None = None  # the last lost commit in a finding

    def remember(self, commit: Commit) -> None:
        """Add a commit. At the limit the oldest commit is dropped from `commits`.

        `pending` keeps a dropped commit that may still take effect.
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

        This is for an offsets partition that lost data as Kafka allows: a later fetch may lack
        these commits.
        """
        before = sum(commit.acknowledged for commit in self.commits)
        commits = [replace(commit, acknowledged=False) for commit in self.commits]
        self.commits.clear()
        self.commits.extend(commits)
        self._acknowledged.clear()
        return before

    def forgive_unstored(self) -> None:
        """Mark as unacknowledged each commit that no coordinator is seen to have stored.

        In a group that commits in transactions, such commits wait for their markers (the records
        that end the transactions).
        """
        stored = {(row.offset, row.member, row.generation) for row in self.stored}
        for index, known in enumerate(self.commits):
            row = known.row
            if known.acknowledged and (known.offset, row.member, row.generation) not in stored:
                self._count(known, -1)
                self.commits[index] = replace(known, acknowledged=False)

    def take_answer(self, row: TraceRow, offset: int) -> None:
        """Drop the broker's row of a commit whose answer the member has received.

        Both rows are about the same commit. If the broker's row stayed, it would count as a second
        commit, with the broker as its node. By the broker's clock it could seem to be newer than
        the member's next commit.
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
        """Return True if the broker's row is about a commit that the member's answer covers.

        A commit in a transaction gets its answer first, because it is stored only when the marker
        is written. `row.member` is None if the coordinator has loaded the commit from its log,
        because it then does not know the member.
        """
        # The broker's row of a plain OffsetCommit has the id of its append in `correlation_id`. It
        # comes before the answer, so no answer covers it yet.
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
        """Change the number of commits like `commit` by `change`."""
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
    """Return True if `newer` certainly took effect after `older`, if it took effect at all.

    `margin` is the largest difference between the clocks of two nodes, in microseconds. Two commits
    of one node need no margin, because their rows have the same clock.
    """
    if newer is older:
        return False
    if newer.node == older.node:
        return newer.latest_us > older.latest_us and newer.earliest_us >= older.latest_us
    return older.latest_us + margin < newer.earliest_us
