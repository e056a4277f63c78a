"""The recorded events of a run that was killed can still be read.

During a run each node writes its events into a file of its own, one frame for each event. At the
end the driver, which is the process that conducts the run, merges these files into one Parquet
file. If the driver is killed, `salvage_trace` merges the files later. The last frame of a file may
be torn, because its write was interrupted.
"""

from pathlib import Path

from cluster.trace.files import FrameTraceWriter, frames_path
from cluster.trace.parquet import read_parquet
from cluster.trace.salvage import Salvage, salvage_trace
from protocol.ids import NodeName
from tests.support.builders.trace_rows import trace_row as row


def write(trace_dir: Path, node: str, *times_us: int) -> Path:
    """Write the file of a node, with events at these times, and return its path."""
    path = frames_path(trace_dir, NodeName(node), incarnation=0)
    writer = FrameTraceWriter(path)
    for seq, time_us in enumerate(times_us):
        writer.write(row(time_us, node, seq=seq))
    writer.close()
    return path


def test_rows_of_all_nodes_are_merged_and_a_torn_last_frame_is_left_out(tmp_path: Path) -> None:
    """Of two files with two events each, the last event of the second file is torn."""
    write(tmp_path / "trace", "broker-0", 1, 5)
    torn = write(tmp_path / "trace", "broker-1", 2, 3)
    torn.write_bytes(torn.read_bytes()[:-3])  # a part of the event at time 3 is missing
    parquet = tmp_path / "events" / "part-00000.parquet"

    found = salvage_trace(tmp_path / "trace", parquet)

    assert found == Salvage(rows=3, files=2, damaged=())
    assert [trace_row.time_us for trace_row in read_parquet(parquet)] == [1, 2, 5]
    assert torn.exists()  # the files of the nodes are kept


def test_damaged_file_is_read_up_to_its_damage_and_named(tmp_path: Path) -> None:
    """One bad file must not make the other files useless. Its own good events are kept, too."""
    write(tmp_path / "trace", "broker-0", 1, 4)
    bad = write(tmp_path / "trace", "broker-1", 2)
    bad.write_bytes(bad.read_bytes() + b"\xff" * 32)  # 32 bytes that are no frame
    parquet = tmp_path / "events" / "part-00000.parquet"

    found = salvage_trace(tmp_path / "trace", parquet)

    assert found is not None
    assert found.rows == 3
    (damage,) = found.damaged
    assert str(bad) in damage


def test_run_without_frame_files_has_nothing_to_salvage(tmp_path: Path) -> None:
    """The nodes of a run in virtual time write no files. Its events are lost with the driver."""
    assert salvage_trace(tmp_path / "trace", tmp_path / "events" / "x.parquet") is None
    assert not (tmp_path / "events").exists()
