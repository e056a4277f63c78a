"""Spark's working files are removed only if the process that owned them was killed."""

from pathlib import Path

from pipeline.engine.leavings import OWNER_FILE, mark_as_owned, remove_abandoned
from tests.support.harness.abandoned_folders import check_only_abandoned_folders_are_removed


def test_only_the_folder_of_a_dead_process_is_removed(tmp_path: Path) -> None:
    """The files of another Spark must stay as long as it runs."""
    # The check makes folders with this prefix, some of live and some of dead processes.
    check_only_abandoned_folders_are_removed(
        tmp_path,
        "coordlab-spark-",
        owner_file=OWNER_FILE,
        mark_as_owned=mark_as_owned,
        remove_abandoned=remove_abandoned,
    )
