"""Digests of traces: two runs with equal digests wrote the same rows in the same order.

In virtual time (on a simulated clock), two runs of the same seed must write exactly the same trace.
To check this, a TraceDigest computes a hash over all rows of a run. If two digests differ, the
question is when the runs began to differ. To answer it, a TraceDigest also keeps a *trail*. Every
few seconds of run time, the TraceDigest notes the first digits of the hash of all rows so far,
which are called a *mark*. The first unequal marks of two trails show where to look.
"""

from collections.abc import Callable
from hashlib import blake2b

import msgspec
from msgspec.structs import astuple, replace

from protocol.trace import MESSAGE_KINDS, TraceRow

_ROWS_PER_CHUNK = 512
"""Number of rows that are hashed together. One by one they would take twice as long."""
FIRST_STEP_US = 1_000_000
"""The run time between two marks at the beginning; doubled whenever there are too many marks."""
MAX_MARKS = 32
"""Largest number of marks in a trail. If there are more, every second mark is dropped."""
MARK_DIGITS = 4
"""Number of hexadecimal digits of a mark.

In one of 65,536 cases, two marks are equal by chance although the rows differ."""


class TraceDigest:
    """Computes the digest of a run's trace. The run calls it with each row, in the order of time.

    The column `run` is not part of the digest, because two equal runs may have different ids.
    """

    def __init__(self) -> None:
        self._step_us = FIRST_STEP_US
        self._next_us = FIRST_STEP_US
        self._marks: list[str] = []
        """The marks of the trail so far, one for each step."""
        # 16 bytes are enough: two different traces practically never have the same digest.
        self._hash = blake2b(digest_size=16)
        self._chunk: list[TraceRow] = []
        """Rows that are not hashed yet."""
        self._rows_hashed = 0

    @property
    def rows(self) -> int:
        """Number of rows so far."""
        return self._rows_hashed + len(self._chunk)

    def __call__(self, row: TraceRow) -> None:
        """Take the next row of the trace."""
        if row.time_us >= self._next_us:
            self._add_marks(row.time_us)
        chunk = self._chunk
        chunk.append(row)
        if len(chunk) == _ROWS_PER_CHUNK:
            self._hash_chunk()

    def hexdigest(self) -> str:
        """Return the digest of the rows so far; more rows may follow."""
        # The hash is copied, because the rows in `_chunk` are added to it again when the chunk is
        # complete.
        whole = self._hash.copy()
        whole.update(_encode(self._chunk))
        return whole.hexdigest()

    def trail(self) -> str:
        """Return the trail as a text: the step and the marks.

        For example, "2s 1f3a 77b0" has a mark at 2 s and one at 4 s.
        """
        return " ".join((f"{self._step_us // FIRST_STEP_US}s", *self._marks))

    def _hash_chunk(self) -> None:
        """Add the waiting rows to the hash, however many they are."""
        self._hash.update(_encode(self._chunk))
        self._rows_hashed += len(self._chunk)
        self._chunk.clear()

    def _add_marks(self, time_us: int) -> None:
        """Add the marks of all steps that end at or before a row's `time_us`.

        If several steps have ended, their marks are equal, because no row came in between.
        """
        # A chunk must end at a mark, so that equal rows are always divided into equal chunks.
        self._hash_chunk()
        mark = self.hexdigest()[:MARK_DIGITS]
        while self._next_us <= time_us:
            self._marks.append(mark)
            self._next_us += self._step_us
            if len(self._marks) > MAX_MARKS:
                # Mark i, counted from 0, is at (i + 1) steps. The marks with an odd i are at
                # multiples of the doubled step, so they stay.
                self._marks = self._marks[1::2]
                self._step_us *= 2
                self._next_us = (len(self._marks) + 1) * self._step_us


class EventsOnly:
    """Passes on the rows of a run as they would be if the run had traced no messages.

    EventsOnly leaves out the rows of messages, and numbers the other rows anew (`seq`). So the
    digest of a run with messages can be compared with the digest of a run without messages.
    """

    def __init__(self, observer: Callable[[TraceRow], None]) -> None:
        self._observer = observer
        self._rows: dict[tuple[str, int], int] = {}
        """Number of rows passed on so far, by node and incarnation."""

    def __call__(self, row: TraceRow) -> None:
        """Take the next row of the trace."""
        if row.kind in MESSAGE_KINDS:
            return
        life = (row.node, row.incarnation)
        seq = self._rows.get(life, 0)
        self._rows[life] = seq + 1
        self._observer(replace(row, seq=seq))


def parted_between(one: str, other: str) -> tuple[int, int | None] | None:
    """Return the two times, in microseconds, between which two runs began to differ.

    `one` and `other` are the trails of the runs. Returns None if the trails are equal. The later
    time is None if all common marks are equal, and one trail goes on after the last of them.
    """
    (step, marks), (other_step, other_marks) = _parse(one), _parse(other)
    # A step is FIRST_STEP_US times a power of two, so the longer step is a multiple of the shorter
    # step. Only marks at multiples of the longer step are compared, because both trails have these.
    # Mark i, counted from 0, is at (i + 1) steps. If the longer step is n steps of a trail, the
    # first common mark has the index n - 1, and further common marks follow at distances of n.
    common_step = max(step, other_step)
    pairs = list(
        zip(
            marks[common_step // step - 1 :: common_step // step],
            other_marks[common_step // other_step - 1 :: common_step // other_step],
            strict=False,  # one of the two runs may have been longer
        )
    )
    for index, (mark, other_mark) in enumerate(pairs):
        if mark != other_mark:
            return index * common_step, (index + 1) * common_step
    return None if one == other else (len(pairs) * common_step, None)


def _parse(trail: str) -> tuple[int, list[str]]:
    """Return a trail's step in microseconds, and its marks."""
    step, *marks = trail.split()
    return int(step.removesuffix("s")) * FIRST_STEP_US, marks


_encoder = msgspec.msgpack.Encoder()


def _encode(rows: list[TraceRow]) -> bytes:
    return _encoder.encode([astuple(row)[1:] for row in rows])  # without `run`, the first column
