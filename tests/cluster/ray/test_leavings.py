"""The removal of folders that Ray leaves behind when the process that started it is killed.

Each start of Ray makes a folder for its session, such as `session_1`. `mark_as_owned` writes the
file OWNER_FILE into this folder. The file says which process has started this Ray. If that process
is dead, `remove_abandoned` removes the folder.
"""

from pathlib import Path

from cluster.ray.leavings import OWNER_FILE, mark_as_owned, remove_abandoned, remove_session
from tests.support.harness.abandoned_folders import (
    check_only_abandoned_folders_are_removed,
    make_folder,
)


def test_folder_of_a_dead_process_is_removed_and_no_other(tmp_path: Path) -> None:
    """The folder of a Ray that still runs, perhaps of another user, must stay."""
    check_only_abandoned_folders_are_removed(
        tmp_path,
        "session_",
        owner_file=OWNER_FILE,
        mark_as_owned=mark_as_owned,
        remove_abandoned=remove_abandoned,
    )


def test_removed_session_removes_the_link_to_it(tmp_path: Path) -> None:
    """Ray has a link to the folder of its latest session, and the link goes with that folder."""
    latest, other = make_folder(tmp_path, "session_2"), make_folder(tmp_path, "session_1")
    (tmp_path / "session_latest").symlink_to(latest)
    remove_session(other)  # an older session, so the link stays
    assert (tmp_path / "session_latest").is_symlink()
    remove_session(latest)
    assert list(tmp_path.iterdir()) == []
