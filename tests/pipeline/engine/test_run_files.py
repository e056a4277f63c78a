"""Event files of a run directory, and the files that cannot be used."""

from pathlib import Path

import pyarrow.parquet as pq

from pipeline.engine.run_files import find_run_files
from tests.support.builders.trace_builder import parse_trace, write_run


def test_trace_of_an_earlier_version_is_unreadable_with_its_reason(tmp_path: Path) -> None:
    """In an earlier version, the column `cause` had sentences, which no table can evaluate.

    Today `cause` has a fixed word, and the sentence is in a second column, `cause_text`. A file
    without `cause_text` was written by the earlier version.
    """
    run = write_run(tmp_path / "run", parse_trace("1 driver run_stage stage=steady\n"), files=2)
    old = run / "events" / "0.parquet"
    pq.write_table(pq.read_table(old).drop_columns(["cause_text"]), old)

    (found,) = find_run_files([run])

    assert [path.name for path in found.events] == ["1.parquet"]
    assert found.unreadable == (
        "0.parquet: written by an earlier version, whose causes are sentences",
    )
