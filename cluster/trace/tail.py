"""TraceTail: the trace of a run in progress, row by row in one order.

TraceTail follows the trace files of all nodes (`*.frames`), while the nodes append to them. The
rows of different files must be merged in the order of time. But a node writes each row a little
after the event that the row describes. So rows are returned only up to a *watermark*, a time that
stays behind the run's clock. A row that arrives after the watermark has passed its time is dropped.
The complete files can be read after the run.
"""

from collections import deque
from pathlib import Path

from cluster.trace.files import FrameDecoder, merge_rows
from protocol.trace import TraceRow

WATERMARK_LAG_US = 1_000_000
"""Time by which the watermark is behind the run's clock by default."""
_BEFORE_THE_RUN_US = -1
"""A time before every row, because a run begins at time 0."""


class _FollowedFile:
    """One file: the number of bytes read, and its rows above the watermark."""

    def __init__(self, path: Path) -> None:
        self.rows: deque[TraceRow] = deque()
        """Rows that were read and not taken yet, in the file's order."""
        self._path = path
        self._decoder = FrameDecoder(path)
        self._read_bytes = 0

    def read_on(self) -> None:
        """Read the bytes appended since the last call. Raises: TraceFileCorrupt, OSError."""
        if self._path.stat().st_size == self._read_bytes:
            return
        with self._path.open("rb") as file:
            file.seek(self._read_bytes)
            block = file.read()
        self._read_bytes += len(block)
        self.rows.extend(self._decoder.feed(block))

    def take_up_to(self, time_us: int) -> list[TraceRow]:
        """Remove and return the rows up to `time_us`, in the file's order."""
        taken: list[TraceRow] = []
        while self.rows and self.rows[0].time_us <= time_us:
            taken.append(self.rows.popleft())
        return taken


class TraceTail:
    """Follows the trace files of one directory, including files that appear later.

    The watermark is `lag_us` behind the run's clock. A longer lag is needed if the run's clock is
    faster than real time, or if the machine is busy. The rows above the watermark are kept in
    memory.
    """

    def __init__(self, trace_dir: Path, *, lag_us: int = WATERMARK_LAG_US) -> None:
        self.late_rows = 0
        """Number of rows that arrived after the watermark had passed them, and were dropped."""
        self.watermark_us = _BEFORE_THE_RUN_US
        """`poll` has returned all rows up to this time, except rows that arrived too late."""
        self._trace_dir = trace_dir
        self._lag_us = lag_us
        self._files: dict[Path, _FollowedFile] = {}

    def poll(self, now_us: int) -> tuple[TraceRow, ...]:
        """Return the new rows that are at least `lag_us` old, in the merged order.

        `now_us` is the time of the run's clock. All polls together return the rows in the order of
        `files.merge_rows`.
        Raises: TraceFileCorrupt, OSError.
        """
        for path in sorted(self._trace_dir.glob("*.frames")):
            if path not in self._files:
                self._files[path] = _FollowedFile(path)
        for file in self._files.values():
            file.read_on()
            # Rows up to the last watermark should have been returned by an earlier poll. They came
            # too late.
            self.late_rows += len(file.take_up_to(self.watermark_us))
        self.watermark_us = max(self.watermark_us, now_us - self._lag_us)
        return tuple(
            merge_rows([file.take_up_to(self.watermark_us) for file in self._files.values()])
        )
