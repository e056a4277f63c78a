"""TraceTail reads the rows of a run that is in progress: in one order, and each row once.

A row is a recorded event. A file is a sequence of frames, one for each row.

`tail.poll(now_us)` reads what the files of the nodes have so far. Its watermark is the time
`now_us - WATERMARK_LAG_US`. The poll returns the rows up to its watermark that no earlier poll has
returned. If a row gets into a file only after a poll, and its time is not after the watermark of
this poll, the row is late. The tail drops late rows, and counts them.
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
    """Return a writer of a node's file; its rows are in the file after `flush`."""
    return FrameTraceWriter(frames_path(trace_dir, node, 0))


def times(rows: tuple[TraceRow, ...]) -> list[int]:
    """Return the times of rows, in microseconds."""
    return [trace_row.time_us for trace_row in rows]


def test_tail_returns_each_row_once_when_it_is_old_enough(tmp_path: Path) -> None:
    """A row is returned when it is older than the lag of the watermark.

    Before that, an older row may still be in the buffer of another node.
    """
    tail, file = TraceTail(tmp_path), writer(tmp_path)
    assert tail.poll(0) == ()

    file.write(row(1, seq=0))
    file.write(row(2 * SECOND_US, seq=1))
    file.flush()

    assert times(tail.poll(1 + WATERMARK_LAG_US)) == [1]
    assert tail.poll(2 * SECOND_US + WATERMARK_LAG_US - 1) == ()
    assert times(tail.poll(2 * SECOND_US + WATERMARK_LAG_US)) == [2 * SECOND_US]

    assert tail.poll(100 * SECOND_US) == ()
    assert tail.late_rows == 0
    # Without the lag a row is returned by the first poll.
    assert len(TraceTail(tmp_path, lag_us=0).poll(2 * SECOND_US)) == 2


def test_tail_waits_for_the_rest_of_a_frame(tmp_path: Path) -> None:
    """A node may be in the middle of a write when the tail reads, so a frame may be incomplete."""
    whole = tmp_path / "whole"
    file = writer(whole)
    file.write(row(1))
    file.close()
    content = frames_path(whole, "broker-0", 0).read_bytes()
    tail, growing = TraceTail(tmp_path), frames_path(tmp_path, "broker-1", 0)
    for end in range(len(content)):
        growing.write_bytes(content[:end])
        assert tail.poll(0) == ()
    growing.write_bytes(content)
    assert times(tail.poll(10 * SECOND_US)) == [1]


def test_tail_follows_files_that_appear_later(tmp_path: Path) -> None:
    """Every incarnation (life) of a node has its own file. The first poll may come before all."""
    trace_dir = tmp_path / "trace"
    tail = TraceTail(trace_dir)
    assert tail.poll(5 * SECOND_US) == ()
    file = writer(trace_dir)
    file.write(row(6 * SECOND_US))
    file.flush()
    assert times(tail.poll(10 * SECOND_US)) == [6 * SECOND_US]


def test_tail_drops_and_counts_rows_behind_its_watermark(tmp_path: Path) -> None:
    """A process may be stopped after it has stamped a row with its time, and before the flush.

    Then the row is late. Checkers need rows in the order of time, so late rows are dropped. The lag
    is 1 s, so the watermark of the poll at 20 s is 19 s. Two of the three rows that appear
    afterwards are late.
    """
    tail = TraceTail(tmp_path)
    punctual, stopped = writer(tmp_path, "broker-0"), writer(tmp_path, "broker-1")
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
    """Checks during the run and checks of the finished files must see the same rows."""
    rng = random.Random(seed)
    nodes = [f"broker-{i}" for i in range(4)]
    files = {node: writer(tmp_path, node) for node in nodes}
    written = dict.fromkeys(nodes, 0)
    tail = TraceTail(tmp_path)
    seen: list[TraceRow] = []
    now_us = 0

    # The nodes write at random times. Their buffers are flushed often, and the tail is polled less
    # often.
    for _ in range(400):
        now_us += rng.randrange(50_000)
        node = rng.choice(nodes)
        files[node].write(row(now_us, node=node, seq=written[node]))
        written[node] += 1
        if rng.random() < 0.7:
            for file in files.values():
                file.flush()
        if rng.random() < 0.2:
            seen.extend(tail.poll(now_us))

    for file in files.values():
        file.close()
    seen.extend(tail.poll(now_us + WATERMARK_LAG_US))

    complete = [read_frames(frames_path(tmp_path, node, 0)).rows for node in nodes]
    assert seen == list(merge_rows(complete))
    assert tail.late_rows == 0


def test_tail_of_a_file_that_is_no_trace_is_an_error(tmp_path: Path) -> None:
    """If the file were skipped, the run would seem to have no events."""
    (tmp_path / "broker-0-0.frames").write_bytes(b"\xff" * 64)
    with pytest.raises(TraceFileCorrupt, match="broker-0-0"):
        TraceTail(tmp_path).poll(SECOND_US)
