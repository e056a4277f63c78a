"""The summary that an analysis writes beside its tables, and how it shows that they are outdated.

An analysis takes time, so a later command uses the existing tables if they are current. Tables are
current if the present version of the code made them from the files of events that the run has now.
The summary names the version and the files from which the tables were made.
"""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.summary.figures import FaultSummary, RunSummary
from pipeline.summary.outcomes import (
    CommitErrors,
    Coordinators,
    GroupProcessing,
    OverlappingTenure,
    Owners,
)
from pipeline.summary.summary_file import (
    TABLES_VERSION,
    drop_summary,
    is_current,
    read_summary,
    summary_path,
    write_summary,
)
from tests.support.builders.report_rows import S, fault_summary, rebalances_of, summary_of


def _summaries_without_empty_fields() -> tuple[FaultSummary, dict[str, object]]:
    """Return the summary of a fault, and fields of a run's summary.

    No field is empty. So a field that is not written to the file, or not read back, is noticed.
    """
    fault = fault_summary(
        values={"detect": [7 * S, None], "commit gap": [8 * S, 9 * S]},
        rebalances=(rebalances_of(),),
        noticed_by=(("NOT_COORDINATOR", 3), ("a request timed out", 1)),
        left_after=((1, 2),),
    )
    tenure = OverlappingTenure(
        broker="broker-0", leader_epoch=1, heartbeats=2, commits=3, commits_in_all=4
    )
    coordinators = Coordinators(
        groups=("readers",),
        partition="__consumer_offsets-0",
        older=tenure,
        newer=tenure,
        from_us=1,
        to_us=2,
        older_end="unloaded",
        older_paused_us=1,
        older_cut_us=0,
        older_last_commit_us=None,
        newer_first_commit_us=3,
    )
    owners = Owners(
        group="readers",
        partitions=2,
        first_coordinator=("broker-0", 1),
        first_consumers=("consumer-0",),
        second_coordinator=(None, None),
        second_consumers=("consumer-1",),
        from_us=5 * S,
        to_us=None,
        longest_us=S,
        records_both=7,
        healed_us=None,
    )
    return fault, {
        "bad_rows": (("no kind", 2),),
        "unreadable": ("torn.parquet: no whole Parquet file",),
        "coordinators": (coordinators,),
        "owners": (owners,),
        "processing": (GroupProcessing(group="readers", records=10, repeated=1),),
        "commit_errors": (CommitErrors(error="REQUEST_TIMED_OUT", commits=2, members=1),),
    }


def _write_rows(directory: Path, rows: int) -> None:
    """Write the one file of events, with `rows` rows."""
    table = pa.table({"time_us": list(range(rows))})
    pq.write_table(table, directory / "events" / "part-0.parquet")


def _write(directory: Path, *, rows: int = 3) -> RunSummary:
    """Write an analysed run: one file of events, the folder of one table, the summary."""
    (directory / "events").mkdir(parents=True)
    _write_rows(directory, rows)
    (directory / "tables" / "runs").mkdir(parents=True)
    fault, fields = _summaries_without_empty_fields()
    summary = summary_of(directory.name, fault, directory=directory, **fields)
    write_summary(summary)
    return summary


def test_summary_file_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    """JSON has neither numbers as keys nor tuples, but the summary that is read has both."""
    summary = _write(tmp_path / "1")

    assert read_summary(tmp_path / "1") == summary
    # The writer left no temporary file.
    files = [path.name for path in (tmp_path / "1" / "tables").iterdir() if path.is_file()]
    assert files == ["summary.json"]


def test_summary_of_a_moved_run_names_its_new_place(tmp_path: Path) -> None:
    """Links of a report use the directory in the summary, so it must be the present directory."""
    _write(tmp_path / "1")
    (tmp_path / "1").rename(tmp_path / "2")

    moved = read_summary(tmp_path / "2")

    assert moved is not None
    assert moved.directory == tmp_path / "2"
    assert is_current(tmp_path / "2")


def test_summary_of_another_version_reads_as_none(tmp_path: Path) -> None:
    """Tables of another version may have other columns, or columns with another meaning."""
    _write(tmp_path)
    document = json.loads(summary_path(tmp_path).read_text())
    document["made_from"]["tables_version"] = TABLES_VERSION - 1
    summary_path(tmp_path).write_text(json.dumps(document))

    assert read_summary(tmp_path) is None
    assert not is_current(tmp_path)


def test_torn_or_missing_summary_reads_as_none(tmp_path: Path) -> None:
    """A summary is torn if the disk was full; it is missing if the run was never analysed."""
    assert read_summary(tmp_path) is None
    _write(tmp_path)
    complete = summary_path(tmp_path).read_text()

    summary_path(tmp_path).write_text(complete[: len(complete) // 2])
    assert read_summary(tmp_path) is None

    summary_path(tmp_path).write_text(complete)
    drop_summary(tmp_path)
    assert read_summary(tmp_path) is None
    assert not is_current(tmp_path)


def test_tables_are_current_until_events_or_tables_change(tmp_path: Path) -> None:
    """Tables are outdated if a file of events changed or was added, or if a table is missing.

    Events are added, for example, when they are recovered after a kill. A file that was written
    again with the same content is no change, because a copy of the run has such files.
    """
    _write(tmp_path, rows=3)
    assert is_current(tmp_path)

    _write_rows(tmp_path, 4)
    assert not is_current(tmp_path)
    _write_rows(tmp_path, 3)
    assert is_current(tmp_path)

    # A file that cannot be read counts as a change, too. This file has only the first bytes of a
    # Parquet file.
    (tmp_path / "events" / "torn.parquet").write_bytes(b"PAR1")
    assert not is_current(tmp_path)
    (tmp_path / "events" / "torn.parquet").unlink()

    (tmp_path / "tables" / "runs").rmdir()
    assert not is_current(tmp_path)


def test_tables_made_beside_an_unreadable_file_are_current(tmp_path: Path) -> None:
    """The analysis has reported the unreadable file; another analysis would find nothing more."""
    (tmp_path / "events").mkdir()
    (tmp_path / "events" / "torn.parquet").write_bytes(b"PAR1")
    (tmp_path / "tables").mkdir()

    write_summary(summary_of("torn", directory=tmp_path))

    assert is_current(tmp_path)
