"""TraceTail reads the events of a run that is still going on.

Each node of a run writes its events, as rows of a trace, into a file of its own. Checks that run
during the experiment want all rows in the order of time. TraceTail merges the files for them:

    tail = TraceTail(trace_dir)
    tail.poll(now_us)  # the rows that are new since the last poll, in the order of time

A node keeps rows in a buffer before it writes them. So when a poll reads a row of 10.0 s from one
file, a row of 9.9 s may still be missing from another. Therefore a poll returns only the rows up to
its watermark, which is 1 s (WATERMARK_LAG_US) before `now_us`.

A row that appears even later, when a poll has passed its time, is late. The tail drops and counts
late rows.
"""

import random
from pathlib import Path

import pytest

from cluster.trace.files import (
    FrameTraceWriter,
    TraceFileCorrupt,
    frames_path,
    merge_rows,
    read_frames,
)
from cluster.trace.tail import WATERMARK_LAG_US, TraceTail
from protocol.trace import TraceRow
from tests.support.builders.trace_rows import trace_row as row

SECOND_US = 1_000_000


def writer(trace_dir: Path, node: str = "broker-0") -> FrameTraceWriter:
    """Return a writer of a node's file. It keeps rows in a buffer until `flush`."""
    return FrameTraceWriter(frames_path(trace_dir, node, incarnation=0))


def times(rows: tuple[TraceRow, ...]) -> list[int]:
    """Return the times of rows, in microseconds."""
    return [trace_row.time_us for trace_row in rows]


def test_tail_returns_each_row_once_when_it_is_old_enough(tmp_path: Path) -> None:
    """A poll returns a row when it is 1 s old, and never again."""
    tail = TraceTail(tmp_path)
    file = writer(tmp_path)
    assert tail.poll(0) == ()

    file.write(row(1, seq=0))
    file.write(row(2 * SECOND_US, seq=1))
    file.flush()

    assert times(tail.poll(1 + WATERMARK_LAG_US)) == [1]
    assert tail.poll(2 * SECOND_US + WATERMARK_LAG_US - 1) == ()
    assert times(tail.poll(2 * SECOND_US + WATERMARK_LAG_US)) == [2 * SECOND_US]

    assert tail.poll(100 * SECOND_US) == ()
    assert tail.late_rows == 0
    # Without the lag the first poll returns both rows.
    assert len(TraceTail(tmp_path, lag_us=0).poll(2 * SECOND_US)) == 2


def test_tail_waits_for_the_rest_of_a_frame(tmp_path: Path) -> None:
    """A node may be in the middle of a write when the tail reads its file.

    In the file, a row is a frame of bytes. The test lets the file of broker-1 grow by one byte
    after the other. Nothing may be returned until the frame is complete.
    """
    other_dir = tmp_path / "other"
    file = writer(other_dir)
    file.write(row(1))
    file.close()
    content = frames_path(other_dir, "broker-0", incarnation=0).read_bytes()

    tail = TraceTail(tmp_path)
    growing = frames_path(tmp_path, "broker-1", incarnation=0)
    for end in range(len(content)):
        growing.write_bytes(content[:end])
        assert tail.poll(0) == ()
    growing.write_bytes(content)
    assert times(tail.poll(10 * SECOND_US)) == [1]


def test_tail_follows_files_that_appear_later(tmp_path: Path) -> None:
    """A node that restarts begins another file. The first poll may even come before all files."""
    trace_dir = tmp_path / "trace"
    tail = TraceTail(trace_dir)
    assert tail.poll(5 * SECOND_US) == ()
    file = writer(trace_dir)
    file.write(row(6 * SECOND_US))
    file.flush()
    assert times(tail.poll(10 * SECOND_US)) == [6 * SECOND_US]


def test_tail_drops_and_counts_rows_behind_its_watermark(tmp_path: Path) -> None:
    """A row is late if its process is stopped between the event and the write to the file.

    The poll at 20 s returns the rows up to 19 s. Afterwards broker-1 writes three rows, of 4 s, of
    19 s and of one microsecond later. The first two are late. The tail drops them, because the
    checks of the experiment need the rows in the order of time.
    """
    tail = TraceTail(tmp_path)
    punctual = writer(tmp_path, "broker-0")
    stopped = writer(tmp_path, "broker-1")
    punctual.write(row(5 * SECOND_US))
    punctual.flush()
    assert times(tail.poll(20 * SECOND_US)) == [5 * SECOND_US]

    for seq, time_us in enumerate((4 * SECOND_US, 19 * SECOND_US, 19 * SECOND_US + 1)):
        stopped.write(row(time_us, node="broker-1", seq=seq))
    stopped.flush()

    assert times(tail.poll(30 * SECOND_US)) == [19 * SECOND_US + 1]
    assert tail.late_rows == 2


@pytest.mark.parametrize("seed", range(5))
def test_tail_yields_the_rows_of_the_finished_run_in_the_same_order(
    tmp_path: Path, seed: int
) -> None:
    """Checks during the run and checks of the finished files see the same rows.

    Here four nodes write at random times. All buffers are flushed often enough that no row is late,
    and the tail is polled less often.
    """
    rng = random.Random(seed)
    nodes = [f"broker-{i}" for i in range(4)]
    files = {node: writer(tmp_path, node) for node in nodes}
    written = dict.fromkeys(nodes, 0)
    tail = TraceTail(tmp_path)
    polled: list[TraceRow] = []
    now_us = 0

    for _ in range(400):
        now_us += rng.randrange(50_000)
        node = rng.choice(nodes)
        files[node].write(row(now_us, node=node, seq=written[node]))
        written[node] += 1
        if rng.random() < 0.7:
            for file in files.values():
                file.flush()
        if rng.random() < 0.2:
            polled.extend(tail.poll(now_us))

    for file in files.values():
        file.close()
    polled.extend(tail.poll(now_us + WATERMARK_LAG_US))

    complete = [read_frames(frames_path(tmp_path, node, incarnation=0)).rows for node in nodes]
    assert polled == list(merge_rows(complete))
    assert tail.late_rows == 0


def test_tail_of_a_file_that_is_no_trace_is_an_error(tmp_path: Path) -> None:
    """The tail must not skip such a file, because the run would then seem to have no events."""
    (tmp_path / "broker-0-0.frames").write_bytes(b"\xff" * 64)
    with pytest.raises(TraceFileCorrupt, match="broker-0-0"):
        TraceTail(tmp_path).poll(SECOND_US)
