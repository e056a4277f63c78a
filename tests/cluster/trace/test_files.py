"""Trace files: at most a torn last frame is lost, and Parquet keeps every value.

Everything that happens in a run becomes a row of its trace. While a node runs, it writes its rows
into a file of frames. A node that is restarted writes another file: its first life has the
incarnation 0, and the next life has the incarnation 1. A frame has the length of a row in 4 bytes,
and then the row in MessagePack (a compact binary JSON). If a node is killed, the last frame of its
file may be torn: only a part of the frame was written. At the end of the run all these files are
merged into one Parquet file.
"""

import random
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from cluster.trace.files import (
    FrameReader,
    FrameTraceWriter,
    TraceFileCorrupt,
    frames_path,
    merge_rows,
    read_frames,
)
from cluster.trace.parquet import (
    ParquetTraceWriter,
    TraceOutdated,
    read_parquet,
    write_parquet,
)
from protocol.trace import TRACE_COLUMNS, TraceEvent, TraceKind, TraceRow, stamp


def row(time_us: int, *, node: str = "broker-0", seq: int = 0, incarnation: int = 0) -> TraceRow:
    """Return a row with values in many columns. `seq` is its number in its file."""
    return stamp(
        TraceEvent(
            kind=TraceKind.COMMIT_STORED,
            group="g",
            partition="orders-3",
            generation=7,
            offset=1 << 40,  # needs more than 32 bits
            detail={"records": 3, "name": "ü"},
        ),
        run="r",
        time_us=time_us,
        node_time_us=time_us + 1,
        seq=seq,
        node=node,
        incarnation=incarnation,
    )


def write_frames(path: Path, rows: list[TraceRow]) -> Path:
    """Write a file of frames, one for each row, and return its path."""
    writer = FrameTraceWriter(path)
    for trace_row in rows:
        writer.write(trace_row)
    writer.close()
    return path


def test_frame_file_written_and_read_returns_equal_rows(tmp_path: Path) -> None:
    """The file of frames must have every row. After a kill, nothing else remains of the rows."""
    rows = [row(number, seq=number) for number in range(100)]
    read = read_frames(write_frames(frames_path(tmp_path, "broker-0", 2), rows))
    assert read.rows == tuple(rows)
    assert read.torn_bytes == 0


def test_frame_writer_flushed_but_not_closed_leaves_rows_in_the_file(tmp_path: Path) -> None:
    """A killed process does not close its file. The rows that were flushed must be in it."""
    writer = FrameTraceWriter(tmp_path / "x.frames")
    writer.write(row(1))
    writer.flush()
    writer.write(row(2, seq=1))
    rows_in_file = read_frames(tmp_path / "x.frames").rows
    assert rows_in_file == (row(1),)
    writer.close()


def test_frame_file_cut_anywhere_loses_only_the_torn_frame_and_counts_it(tmp_path: Path) -> None:
    """`kill -9` may interrupt a write at any byte."""
    rows = [row(number, seq=number) for number in range(3)]
    content = write_frames(tmp_path / "whole", rows).read_bytes()
    frame_size = len(content) // 3  # the three frames have the same length
    for cut in range(len(content) + 1):
        path = tmp_path / "cut"
        path.write_bytes(content[:cut])
        read = read_frames(path)
        whole_frames, torn_bytes = divmod(cut, frame_size)
        assert read.rows == tuple(rows[:whole_frames])
        assert read.torn_bytes == torn_bytes


def test_frame_file_with_garbage_inside_is_refused_by_name(tmp_path: Path) -> None:
    """A damaged file must not be read as a shorter file, or checkers would miss rows unnoticed.

    The error has the name of the file. In the file `bad` a row is damaged. In the file `huge` the
    length of a frame is damaged: the four bytes FF stand for nearly 4 GiB.
    """
    content = bytearray(write_frames(tmp_path / "whole", [row(0), row(1, seq=1)]).read_bytes())
    content[4:10] = b"\xc1" * 6  # MessagePack never has the byte C1
    (tmp_path / "bad").write_bytes(bytes(content))
    with pytest.raises(TraceFileCorrupt, match="bad"):
        read_frames(tmp_path / "bad")
    (tmp_path / "huge").write_bytes(b"\xff" * 64)
    with pytest.raises(TraceFileCorrupt, match="huge"):
        read_frames(tmp_path / "huge")


def test_frame_reader_reads_rows_across_block_bounds(tmp_path: Path) -> None:
    """Files are read in blocks of 1 MiB, so a row may begin in one block and end in the next."""
    rows = [row(number, seq=number) for number in range(20_000)]
    path = write_frames(tmp_path / "long", rows)
    assert path.stat().st_size > 1 << 20
    assert [read_row.seq for read_row in FrameReader(path)] == list(range(20_000))


def test_merge_orders_by_time_node_incarnation_and_sequence(tmp_path: Path) -> None:
    """Rows of different files often have the same time. The merge puts them in a fixed order."""
    rng = random.Random(3)
    all_rows = []
    sources = []
    for node in ("broker-1", "broker-0", "driver"):
        for incarnation in range(2):
            # Within a file the times do not fall.
            times_us = sorted(rng.randrange(20) for _ in range(40))
            rows = [
                row(time_us, node=node, seq=seq, incarnation=incarnation)
                for seq, time_us in enumerate(times_us)
            ]
            all_rows += rows
            path = frames_path(tmp_path, node, incarnation)
            sources.append(FrameReader(write_frames(path, rows)))

    def order(trace_row: TraceRow) -> tuple[int, str, int, int]:
        return trace_row.time_us, trace_row.node, trace_row.incarnation, trace_row.seq

    assert list(merge_rows(sources)) == sorted(all_rows, key=order)


def test_parquet_round_trip_keeps_every_value_and_the_declared_types(tmp_path: Path) -> None:
    """Parquet has a type for each column, and Spark relies on these types. A null must stay a null.

    So the last of the eleven rows has nulls in most columns.
    """
    rows = [row(number, seq=number) for number in range(10)]
    row_with_nulls = stamp(
        TraceEvent(kind=TraceKind.NODE_STARTED),
        run="r",
        time_us=99,
        node_time_us=99,
        seq=10,
        node="driver",
        incarnation=0,
    )
    rows.append(row_with_nulls)

    path = tmp_path / "events" / "trace.parquet"
    with ParquetTraceWriter(path, rows_per_chunk=4) as writer:
        for trace_row in rows:
            writer(trace_row)
        assert not path.exists()  # a reader must never see half a file

    assert list(read_parquet(path)) == rows
    assert writer.rows_written == 11
    columns = [(column.name, str(column.type)) for column in pq.read_schema(path)]
    assert columns == list(TRACE_COLUMNS)
    with pq.ParquetFile(path) as file:
        assert file.metadata.num_row_groups == 3  # 4 rows, 4 rows and 3 rows


def test_parquet_of_an_empty_trace_has_the_columns(tmp_path: Path) -> None:
    """A run that was interrupted at once may have no row. Its file must be readable, too."""
    assert write_parquet([], tmp_path / "empty.parquet") == 0
    assert list(read_parquet(tmp_path / "empty.parquet")) == []
    assert len(pq.read_schema(tmp_path / "empty.parquet")) == len(TRACE_COLUMNS)


def test_parquet_of_an_earlier_version_is_refused(tmp_path: Path) -> None:
    """A file without the column `cause_text` is from an earlier version of the project.

    There the column `cause` had free text, which the present code cannot parse.
    """
    path = tmp_path / "old.parquet"
    write_parquet([row(1)], path)
    pq.write_table(pq.read_table(path).drop_columns(["cause_text"]), path)
    with pytest.raises(TraceOutdated, match="lacks cause_text: an earlier version wrote it"):
        list(read_parquet(path))


def test_parquet_writer_left_by_an_exception_leaves_no_file(tmp_path: Path) -> None:
    """If the file were left, readers would take a part of the trace for the whole trace."""

    def write_and_fail() -> None:
        with ParquetTraceWriter(tmp_path / "t.parquet") as writer:
            writer(row(1))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_and_fail()
    assert list(tmp_path.iterdir()) == []
