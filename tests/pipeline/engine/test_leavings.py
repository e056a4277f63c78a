"""Files of Spark that a killed process of ours left are removed, all others are kept."""

import os
import socket
import subprocess
import sys
from pathlib import Path

from pipeline.engine.leavings import OWNER_FILE, mark_as_owned, remove_abandoned


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
    make_folder(tmp_path, "coordlab-spark-dead", f"{here} {dead_process()}")
    make_folder(tmp_path, "other-dead", f"{here} {dead_process()}")
    make_folder(tmp_path, "coordlab-spark-alive", f"{here} {os.getppid()}")
    make_folder(tmp_path, "coordlab-spark-elsewhere", f"not-{here} {dead_process()}")
    make_folder(tmp_path, "coordlab-spark-nobodys", None)
    make_folder(tmp_path, "coordlab-spark-torn", here)
    mark_as_owned(make_folder(tmp_path, "coordlab-spark-mine", None))

    remove_abandoned(tmp_path, "coordlab-spark-*")

    assert sorted(each.name for each in tmp_path.iterdir()) == sorted(
        [
            "other-dead",
            "coordlab-spark-alive",
            "coordlab-spark-elsewhere",
            "coordlab-spark-mine",
            "coordlab-spark-nobodys",
            "coordlab-spark-torn",
        ]
    )
