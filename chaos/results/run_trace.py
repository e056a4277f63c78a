"""The trace of a run on its way to the run's directory, on a disk that may fill meanwhile."""

from chaos.results.run_directory import EVENTS_FILE, RunDirectory
from cluster.trace.parquet import ParquetTraceWriter
from protocol.trace import TraceRow


class RunTrace:
    """Writes the rows of a run; an instance is a RowObserver that never raises OSError.

    A row is observed in the middle of a node's work, where an error would be the node's. So the
    disk of the directory remembers the error, and the run ends at its next look.
    """

    def __init__(self, directory: RunDirectory) -> None:
        """Open the file. Raises: NotARun."""
        self._disk = directory.disk
        self._writer = ParquetTraceWriter(
            directory.events / EVENTS_FILE, sink=directory.open_trace()
        )
        self._is_lost = False

    def __call__(self, row: TraceRow) -> None:
        """Add a row, unless an earlier one was lost."""
        if self._is_lost:
            return
        try:
            self._writer(row)
        except OSError:
            self._lose()

    def close(self) -> int | None:
        """Finish the file; return the number of its rows, None if there is no file."""
        if not self._is_lost:
            try:
                self._writer.close()
            except OSError:
                self._lose()
        return None if self._is_lost else self._writer.rows_written

    def _lose(self) -> None:
        self._is_lost = self._disk.lost = True
        self._writer.discard()
