"""What is left of the trace of a run whose driver was killed: node processes wrote it themselves.

Such a run has no Parquet file yet: the driver would have made it at the end. The frames that its
nodes had written are complete up to the moment when they died.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cluster.trace.files import FrameReader, TraceFileCorrupt, merge_rows
from cluster.trace.parquet import ParquetTraceWriter
from protocol.trace import TraceRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Salvage:
    """What was found. `damaged` names files that could not be read to their end, and why."""

    rows: int
    files: int
    damaged: tuple[str, ...]


class _Salvaged(FrameReader):
    """A file that is read as far as it can be."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.damage: str | None = None

    def __iter__(self) -> Iterator[TraceRow]:
        """Yield the rows before whatever is wrong with the file."""
        try:
            yield from super().__iter__()
        except TraceFileCorrupt as error:
            self.damage = str(error)


def salvage_trace(trace_dir: Path, parquet: Path) -> Salvage | None:
    """Write what the frame files of `trace_dir` hold to `parquet`, merged; None if there are none.

    The frame files stay. Raises: OSError.
    """
    paths = sorted(trace_dir.glob("*.frames"))
    if not paths:
        return None
    readers = [_Salvaged(path) for path in paths]
    with ParquetTraceWriter(parquet) as writer:
        for row in merge_rows(readers):
            writer(row)
    return Salvage(
        rows=writer.rows_written,
        files=len(readers),
        damaged=tuple(reader.damage for reader in readers if reader.damage is not None),
    )
