"""Folders of several processes beside one another; only folders of dead processes are removed."""

import os
import socket
from collections.abc import Callable
from pathlib import Path

from tests.support.harness.programs import pid_of_ended_process


def make_folder(parent: Path, name: str, owner: tuple[str, str] | None = None) -> Path:
    """Make a folder with a file in it; `owner` are name and content of its owner's file."""
    folder = parent / name
    (folder / "logs").mkdir(parents=True)
    (folder / "logs" / "one.log").touch()
    if owner is not None:
        owner_file, content = owner
        (folder / owner_file).write_text(content)
    return folder


def check_only_abandoned_folders_are_removed(
    parent: Path,
    prefix: str,
    *,
    owner_file: str,
    mark_as_owned: Callable[[Path], None],
    remove_abandoned: Callable[[Path, str], None],
) -> None:
    """Check that folders of other users, of live processes and of other machines are kept."""
    here = socket.gethostname()
    dead = f"{here} {pid_of_ended_process()}"
    # An owner is a host and a pid.
    make_folder(parent, f"{prefix}dead", (owner_file, dead))
    make_folder(parent, "other-prefix", (owner_file, dead))
    make_folder(parent, f"{prefix}alive", (owner_file, f"{here} {os.getppid()}"))
    make_folder(parent, f"{prefix}other-machine", (owner_file, f"not-{dead}"))
    make_folder(parent, f"{prefix}without-owner")
    make_folder(parent, f"{prefix}torn-owner", (owner_file, here))  # the pid is missing
    mark_as_owned(make_folder(parent, f"{prefix}mine"))

    remove_abandoned(parent, f"{prefix}*")

    kept = ("alive", "mine", "other-machine", "torn-owner", "without-owner")
    expected = sorted(["other-prefix", *(prefix + name for name in kept)])
    assert sorted(folder.name for folder in parent.iterdir()) == expected
