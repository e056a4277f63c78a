"""Files of Ray that a killed process of ours left are removed, all others are kept."""

import os
import socket
import subprocess
import sys
from pathlib import Path

from cluster.ray.leavings import OWNER_FILE, mark_as_owned, remove_abandoned, remove_session


def dead_process() -> int:
    """Return the id of a process that has ended."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


def make_folder(parent: Path, name: str, owner: str | None) -> Path:
    """Make a folder with a file in it, and perhaps an owner."""
    folder = parent / name
    (folder / "logs").mkdir(parents=True)
    (folder / "logs" / "one.log").touch()
    if owner is not None:
        (folder / OWNER_FILE).write_text(owner)
    return folder


def test_folder_of_a_dead_process_is_removed_and_no_other(tmp_path: Path) -> None:
    """Folders of other users, of live processes and of other machines are kept."""
    here = socket.gethostname()
    make_folder(tmp_path, "session_dead", f"{here} {dead_process()}")
    make_folder(tmp_path, "other-dead", f"{here} {dead_process()}")
    make_folder(tmp_path, "session_alive", f"{here} {os.getppid()}")
    make_folder(tmp_path, "session_elsewhere", f"not-{here} {dead_process()}")
    make_folder(tmp_path, "session_nobodys", None)
    make_folder(tmp_path, "session_torn", here)
    mark_as_owned(make_folder(tmp_path, "session_mine", None))

    remove_abandoned(tmp_path, "session_*")

    assert sorted(each.name for each in tmp_path.iterdir()) == sorted(
        [
            "other-dead",
            "session_alive",
            "session_elsewhere",
            "session_mine",
            "session_nobodys",
            "session_torn",
        ]
    )


def test_removed_session_removes_the_link_to_it(tmp_path: Path) -> None:
    """A dangling link would be one more leftover; a link to another session is kept."""
    first, second = (make_folder(tmp_path, f"session_{n}", None) for n in (1, 2))
    (tmp_path / "session_latest").symlink_to(first)
    remove_session(second)
    assert (tmp_path / "session_latest").is_symlink()
    remove_session(first)
    assert list(tmp_path.iterdir()) == []
