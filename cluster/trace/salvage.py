"""Recovery of the trace of a run whose driver was killed, from the files of its node processes.

The driver, which conducts a run, writes the Parquet file with the trace at the end. If the driver
was killed, there is no Parquet file. But the nodes have written their own files (`*.frames`), up to
the moment when they died.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cluster.trace.files import FrameReader, TraceFileCorrupt, merge_rows
from cluster.trace.parquet import ParquetTraceWriter
from protocol.trace import TraceRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Salvage:
    """The recovered rows and files. `damaged` has a message for each file with unreadable parts."""

    rows: int
    files: int
    damaged: tuple[str, ...]


class _TolerantReader(FrameReader):
    """Reads a file up to the first error, and keeps the error."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.damage: str | None = None
        """The message of the first error; None if the whole file could be read."""

    def __iter__(self) -> Iterator[TraceRow]:
        """Yield the rows in front of the first error."""
        try:
            yield from super().__iter__()
        except TraceFileCorrupt as error:
            self.damage = str(error)


def salvage_trace(trace_dir: Path, parquet: Path) -> Salvage | None:
    """Merge the frame files of `trace_dir` into `parquet`; return None without frame files.

    The frame files are kept. Raises: OSError.
    """
    paths = sorted(trace_dir.glob("*.frames"))
    if not paths:
        return None
    readers = [_TolerantReader(path) for path in paths]
    with ParquetTraceWriter(parquet) as writer:
        for row in merge_rows(readers):
            writer(row)
    return Salvage(
        rows=writer.rows_written,
        files=len(readers),
        damaged=tuple(reader.damage for reader in readers if reader.damage is not None),
    )
