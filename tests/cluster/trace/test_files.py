"""Trace files: at most a torn last frame is lost, and Parquet keeps every value.

The trace of a run has its recorded events as rows. During the run each incarnation (life) of a node
writes a file of frames. A frame is its length in 4 bytes and one row in MessagePack (a compact
binary JSON). A torn frame is one whose write was interrupted. At the end of the run the files are
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
    """Return a row with values in many columns; `seq` is its number in its file."""
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


def written(path: Path, rows: list[TraceRow]) -> Path:
    """Write a file of frames, one for each row, and return its path."""
    writer = FrameTraceWriter(path)
    for trace_row in rows:
        writer.write(trace_row)
    writer.close()
    return path


def test_frame_file_written_and_read_returns_equal_rows(tmp_path: Path) -> None:
    """Rows are read as they were written. After a kill the file is all that remains of them."""
    rows = [row(i, seq=i) for i in range(100)]
    read = read_frames(written(frames_path(tmp_path, "broker-0", 2), rows))
    assert read.rows == tuple(rows)
    assert read.torn_bytes == 0


def test_frame_writer_flushed_but_not_closed_leaves_rows_in_the_file(tmp_path: Path) -> None:
    """A killed process does not close its file. The rows that were flushed must be in it."""
    writer = FrameTraceWriter(tmp_path / "x.frames")
    writer.write(row(1))
    writer.flush()
    writer.write(row(2, seq=1))
    assert [r.time_us for r in read_frames(tmp_path / "x.frames").rows] == [1]
    writer.close()


def test_frame_file_cut_anywhere_loses_only_the_torn_frame_and_counts_it(tmp_path: Path) -> None:
    """`kill -9` may interrupt a write at any byte."""
    rows = [row(i, seq=i) for i in range(3)]
    content = written(tmp_path / "whole", rows).read_bytes()
    frame = len(content) // 3  # the three frames have the same length
    for cut in range(len(content) + 1):
        path = tmp_path / "cut"
        path.write_bytes(content[:cut])
        read = read_frames(path)
        assert read.rows == tuple(rows[: cut // frame])
        assert read.torn_bytes == cut % frame


def test_frame_file_with_garbage_inside_is_refused_by_name(tmp_path: Path) -> None:
    """A damaged file is an error with the file's name. It is not read as a shorter file.

    Otherwise checkers would miss rows without notice.
    """
    content = bytearray(written(tmp_path / "whole", [row(0), row(1, seq=1)]).read_bytes())
    # The bytes come after the length of the first frame. MessagePack never has the byte 0xc1.
    content[4:10] = b"\xc1" * 6
    (tmp_path / "bad").write_bytes(bytes(content))
    with pytest.raises(TraceFileCorrupt, match="bad"):
        read_frames(tmp_path / "bad")
    (tmp_path / "huge").write_bytes(b"\xff" * 64)  # as a length, these bytes are nearly 4 GiB
    with pytest.raises(TraceFileCorrupt, match="huge"):
        read_frames(tmp_path / "huge")


def test_frame_reader_reads_rows_across_block_bounds(tmp_path: Path) -> None:
    """Files are read in blocks of 1 MiB. A row may be in two blocks."""
    rows = [row(i, seq=i) for i in range(20_000)]
    path = written(tmp_path / "long", rows)
    assert path.stat().st_size > 1 << 20
    assert [r.seq for r in FrameReader(path)] == list(range(20_000))


def test_merge_orders_by_time_node_incarnation_and_sequence(tmp_path: Path) -> None:
    """Checkers read one merged trace, so rows with the same time need a fixed order, too."""
    rng = random.Random(3)
    everything = []
    sources = []
    # Each file is in the order of time. Many rows of different files have the same time.
    for node in ("broker-1", "broker-0", "driver"):
        for incarnation in range(2):
            times = sorted(rng.randrange(20) for _ in range(40))
            rows = [row(t, node=node, seq=i, incarnation=incarnation) for i, t in enumerate(times)]
            everything += rows
            path = frames_path(tmp_path, node, incarnation)
            sources.append(FrameReader(written(path, rows)))

    expected = sorted(everything, key=lambda r: (r.time_us, r.node, r.incarnation, r.seq))
    assert list(merge_rows(sources)) == expected


def test_parquet_round_trip_keeps_every_value_and_the_declared_types(tmp_path: Path) -> None:
    """Spark reads the file with the declared types. A null must stay a null."""
    rows = [row(i, seq=i) for i in range(10)]
    rows.append(
        stamp(
            TraceEvent(kind=TraceKind.NODE_STARTED),
            run="r",
            time_us=99,
            node_time_us=99,
            seq=10,
            node="driver",
            incarnation=0,
        )
    )

    path = tmp_path / "events" / "trace.parquet"
    with ParquetTraceWriter(path, rows_per_chunk=4) as writer:
        for trace_row in rows:
            writer(trace_row)
        assert not path.exists()  # a reader must never see half a file

    assert list(read_parquet(path)) == rows
    assert writer.rows_written == 11
    schema = pq.read_schema(path)
    assert [(f.name, str(f.type)) for f in schema] == list(TRACE_COLUMNS)
    with pq.ParquetFile(path) as file:
        assert file.metadata.num_row_groups == 3  # 11 rows in chunks of 4


def test_parquet_of_an_empty_trace_has_the_columns(tmp_path: Path) -> None:
    """A run that was interrupted may have no row, and must be readable nevertheless."""
    assert write_parquet([], tmp_path / "empty.parquet") == 0
    assert list(read_parquet(tmp_path / "empty.parquet")) == []
    assert len(pq.read_schema(tmp_path / "empty.parquet")) == len(TRACE_COLUMNS)


def test_parquet_of_an_earlier_version_is_refused(tmp_path: Path) -> None:
    """A file without the column `cause_text` is from an earlier version of the project.

    In that version the column `cause` had free text, which the present code cannot parse.
    """
    path = tmp_path / "old.parquet"
    write_parquet([row(1)], path)
    pq.write_table(pq.read_table(path).drop_columns(["cause_text"]), path)
    with pytest.raises(TraceOutdated, match="lacks cause_text: an earlier version wrote it"):
        list(read_parquet(path))


def test_parquet_writer_left_by_an_exception_leaves_no_file(tmp_path: Path) -> None:
    """A trace that was written only in part must not get its final name.

    Otherwise readers would believe that it is the whole trace.
    """

    def write_and_fail() -> None:
        with ParquetTraceWriter(tmp_path / "t.parquet") as writer:
            writer(row(1))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_and_fail()
    assert list(tmp_path.iterdir()) == []
