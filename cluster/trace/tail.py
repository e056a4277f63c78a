"""TraceTail: the trace of a run that is still going on, row by row in one order.

It follows the `*.frames` files that the driver can see (its own machine's, or a directory that it
shares with others) while nodes append to them. Rows are merged by time up to a watermark that stays
behind the run's clock, because a node writes its rows to the file a loop turn after it stamped
them. A row that comes later than that is not yielded any more: who needs every row reads the
complete files when the run is over. It knows nothing of the runtime that writes them.
"""

from collections import deque
from pathlib import Path

from cluster.trace.files import FrameDecoder, merge_rows
from protocol.trace import TraceRow

WATERMARK_LAG_US = 1_000_000
"""How far the watermark stays behind the run's clock, in run time, unless told otherwise."""
_BEFORE_THE_RUN_US = -1


class _Followed:
    """One file: how far it was read, and its rows that the watermark has not reached."""

    def __init__(self, path: Path) -> None:
        self.rows: deque[TraceRow] = deque()
        self._path = path
        self._decoder = FrameDecoder(path)
        self._read_bytes = 0

    def read_on(self) -> None:
        """Take what was appended since. Raises: TraceFileCorrupt, OSError."""
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
    """Follows the trace files of one directory; files that appear later are followed too.

    Units: `lag_us` is run time; with a `time_scale` of k it is k times shorter in reality, so that
    a run that goes fast, or on a loaded machine, wants more of it.
    Memory: the rows of the last `lag_us` or so, of all files.
    """

    def __init__(self, trace_dir: Path, *, lag_us: int = WATERMARK_LAG_US) -> None:
        self.late_rows = 0
        """Rows that came when the watermark had passed them, and were dropped."""
        self.watermark_us = _BEFORE_THE_RUN_US
        """Every row up to here that was in the files in time has been returned."""
        self._trace_dir = trace_dir
        self._lag_us = lag_us
        self._files: dict[Path, _Followed] = {}

    def poll(self, now_us: int) -> tuple[TraceRow, ...]:
        """Return the rows that are new and at least `lag_us` old, in the merged order.

        Units: `now_us` is the run's clock. The order is that of `trace_files.merge_rows`, over all
        polls together: a later poll returns no row that belongs before those of an earlier one.
        Raises: TraceFileCorrupt, OSError.
        """
        for path in sorted(self._trace_dir.glob("*.frames")):
            if path not in self._files:
                self._files[path] = _Followed(path)
        for file in self._files.values():
            file.read_on()
            self.late_rows += len(file.take_up_to(self.watermark_us))
        self.watermark_us = max(self.watermark_us, now_us - self._lag_us)
        return tuple(
            merge_rows([file.take_up_to(self.watermark_us) for file in self._files.values()])
        )
