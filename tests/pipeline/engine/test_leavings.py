"""Spark's files are removed if the process that owned them was killed, and kept otherwise."""

from pathlib import Path

from pipeline.engine.leavings import OWNER_FILE, mark_as_owned, remove_abandoned
from tests.support.harness.abandoned_folders import check_only_abandoned_folders_are_removed


def test_folder_of_a_dead_process_is_removed_and_no_other(tmp_path: Path) -> None:
    """A live Spark of another user must keep its files."""
    check_only_abandoned_folders_are_removed(
        tmp_path,
        "coordlab-spark-",
        owner_file=OWNER_FILE,
        mark_as_owned=mark_as_owned,
        remove_abandoned=remove_abandoned,
    )
