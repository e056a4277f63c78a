"""RunTrace: writes the trace of a run, which has one row for each event.

If the disk becomes full during the run, the run ends at its next regular check. The trace is
discarded if a row cannot be written even into the space that the run has reserved (`recording`).
"""

from typing import TYPE_CHECKING

from chaos.results.run_directory import EVENTS_FILE, RunDirectory
from protocol.trace import TraceRow

if TYPE_CHECKING:
    from cluster.trace.parquet import ParquetTraceWriter


class RunTrace:
    """Writes the rows of a run.

    The runtime calls an instance with each row, as it does with every RowObserver. If the disk is
    full, this call does not raise OSError. A row is written in the middle of a node's work, so the
    exception would count as a failure of the node. Instead the RunDisk remembers the error, and the
    run ends at its next regular check.
    """

    def __init__(self, directory: RunDirectory, *, rows_come_last: bool = False) -> None:
        """Open the file. Raises: NotARun if the file cannot be opened.

        `rows_come_last` is True in real time, where all rows come after the nodes have stopped.
        Then pyarrow is imported only when the first row comes. The import takes as long as the
        start of a whole cluster in this process, so the cluster starts sooner.
        """
        self._disk = directory.disk
        self._path = directory.events / EVENTS_FILE
        self._sink = directory.open_trace()
        self._writer: ParquetTraceWriter | None = None
        self._is_lost = False
        if not rows_come_last:
            self._open_writer()

    def __call__(self, row: TraceRow) -> None:
        """Add a row, unless an earlier row was lost."""
        if self._is_lost:
            return
        try:
            self._open_writer()(row)
        except OSError:
            self._discard()

    def close(self) -> int | None:
        """Finish the file; return the number of its rows, or None if it was discarded."""
        if self._is_lost:
            return None
        try:
            writer = self._open_writer()
            writer.close()
        except OSError:
            self._discard()
            return None
        return writer.rows_written

    def _open_writer(self) -> "ParquetTraceWriter":
        """Return the writer of the file. The first call makes it. Raises: OSError."""
        if self._writer is None:
            from cluster.trace.parquet import ParquetTraceWriter  # noqa: PLC0415

            self._writer = ParquetTraceWriter(self._path, sink=self._sink)
        return self._writer

    def _discard(self) -> None:
        self._is_lost = self._disk.lost = True
        if self._writer is None:
            self._sink.close()
        else:
            self._writer.discard()  # closes the sink, too
