"""Rows of a run whose driver (the process that conducts the run) was killed.

A row is a recorded event. Normally the driver merges the files of the nodes into a trace at the end
of the run. After a kill of the driver `salvage_trace` merges all rows that the nodes had written. A
node's file is a sequence of frames, one for each row. A torn frame is one whose write was
interrupted.
"""

from pathlib import Path

from cluster.trace.files import FrameTraceWriter, frames_path
from cluster.trace.parquet import read_parquet
from cluster.trace.salvage import Salvage, salvage_trace
from protocol.ids import NodeName
from tests.support.builders.trace_rows import trace_row as row


def write(trace_dir: Path, node: str, *times_us: int) -> Path:
    """Write the file of a node with rows at these times, and return its path."""
    path = frames_path(trace_dir, NodeName(node), 0)
    writer = FrameTraceWriter(path)
    for seq, time_us in enumerate(times_us):
        writer.write(row(time_us, node, seq=seq))
    writer.close()
    return path


def test_rows_of_all_nodes_are_merged_and_a_torn_last_frame_is_left_out(tmp_path: Path) -> None:
    """The kill may have interrupted a write, so the last frame of a file may be torn."""
    write(tmp_path / "trace", "broker-0", 1, 5)
    torn = write(tmp_path / "trace", "broker-1", 2, 3)
    torn.write_bytes(torn.read_bytes()[:-3])
    parquet = tmp_path / "events" / "part-00000.parquet"

    found = salvage_trace(tmp_path / "trace", parquet)

    assert found == Salvage(rows=3, files=2, damaged=())
    assert [trace_row.time_us for trace_row in read_parquet(parquet)] == [1, 2, 5]
    assert torn.exists()  # the files of frames stay


def test_damaged_file_is_read_up_to_its_damage_and_named(tmp_path: Path) -> None:
    """One bad file must not make the other files unreadable."""
    write(tmp_path / "trace", "broker-0", 1, 4)
    bad = write(tmp_path / "trace", "broker-1", 2)
    bad.write_bytes(bad.read_bytes() + b"\xff" * 32)
    parquet = tmp_path / "events" / "part-00000.parquet"

    found = salvage_trace(tmp_path / "trace", parquet)

    assert found is not None
    assert found.rows == 3
    (damage,) = found.damaged
    assert str(bad) in damage


def test_run_without_frame_files_has_nothing_to_salvage(tmp_path: Path) -> None:
    """A run in virtual time keeps its rows in the driver's process, so they are lost with it."""
    assert salvage_trace(tmp_path / "trace", tmp_path / "events" / "x.parquet") is None
    assert not (tmp_path / "events").exists()
