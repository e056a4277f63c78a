"""Committed offsets as the trace tells their history: one register for each group and partition.

Knows when each commit took effect, if it did at all; what that means for a fetch is judged in
`durable_commits`.
"""

from collections import deque
from dataclasses import dataclass, field, replace

from protocol.trace import TraceKind, TraceRow

MAX_KEPT_COMMITS = 4_096
GIVEN_UP_BY_THE_CLIENT = frozenset({"TIMED_OUT", "DISCONNECTED"})
"""Errors with which no broker answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """One commit of one partition. `earliest_us` to `latest_us` is when it took effect, if so."""

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
    forgotten_until_us: int = -1  # commits acknowledged up to here may have been forgotten
    answered_us: dict[str, int] = field(
        default_factory=dict
    )  # node -> its previous commit's answer
    stored: deque[TraceRow] = field(  # the broker's rows of commits that were answered
        default_factory=lambda: deque(maxlen=MAX_KEPT_COMMITS)
    )
    # offset -> commits that their client gave up on: each may take effect at any time
    pending: dict[int, list[Commit]] = field(default_factory=dict)
    # How many of `commits` each offset has, by whose word they are: most rows have no counterpart,
    # and a walk through every kept commit would find that out last.
    _acknowledged: dict[int, int] = field(default_factory=dict)
    _brokers_word: dict[int, int] = field(default_factory=dict)
    reported: TraceRow | None = None  # the lost commit already told

    def remember(self, commit: Commit) -> None:
        """Add a commit; of many the oldest is forgotten, unless it may still take effect."""
        if len(self.commits) == MAX_KEPT_COMMITS:
            oldest = self.commits.popleft()
            self.forgotten_until_us = oldest.latest_us
            self._count(oldest, -1)
        self.commits.append(commit)
        self._count(commit, 1)
        if not commit.acknowledged and commit.row.error in GIVEN_UP_BY_THE_CLIENT:
            self.pending.setdefault(commit.offset, []).append(commit)

    def forgive(self) -> int:
        """Promise nothing of any commit so far, and return how many were acknowledged."""
        before = sum(commit.acknowledged for commit in self.commits)
        commits = [replace(commit, acknowledged=False) for commit in self.commits]
        self.commits.clear()
        self.commits.extend(commits)
        self._acknowledged.clear()
        return before

    def take_answer(self, row: TraceRow, offset: int) -> None:
        """Drop the broker's word for a commit that its member has an answer for.

        It is the same commit; kept as a second one, by another node, it would look as if it might
        have come after the member's next commit wherever clocks differ.
        """
        if offset not in self._brokers_word:
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
        """Whether the broker's word is for a commit whose member has its answer already.

        So it is with transactions, whose markers come after the answer. A coordinator that loaded
        the commit does not know whose it is.
        """
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
        """Add `change` to how many of `commits` are like `commit`."""
        if commit.acknowledged:
            counts = self._acknowledged
        elif commit.row.kind == TraceKind.COMMIT_STORED:
            counts = self._brokers_word
        else:
            return
        left = counts.get(commit.offset, 0) + change
        if left:
            counts[commit.offset] = left
        else:
            del counts[commit.offset]


def replaces(newer: Commit, older: Commit, margin: int) -> bool:
    """Whether `newer` certainly took effect after `older` did, if it did at all."""
    if newer is older:
        return False
    if newer.node == older.node:
        return newer.latest_us > older.latest_us and newer.earliest_us >= older.latest_us
    return older.latest_us + margin < newer.earliest_us
