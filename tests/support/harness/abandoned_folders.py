"""A shared test for code that removes folders which dead processes left behind.

Each process has a folder beside those of the others, with a file that names its owner: the host and
the process id. Only folders whose owner is dead are removed.
"""

import os
import socket
from collections.abc import Callable
from pathlib import Path

from tests.support.harness.programs import pid_of_ended_process


def make_folder(parent: Path, name: str, owner: tuple[str, str] | None = None) -> Path:
    """Make a folder with a log in it; `owner` is the name and the content of its owner's file."""
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
    """Check that `remove_abandoned` removes exactly the folder of a dead process.

    It keeps folders of other prefixes, of live processes, of other machines, and those whose owner
    is not known.

    mark_as_owned: writes the owner's file of this process into a folder.
    remove_abandoned: the code under test; its arguments are the parent and a pattern of names.
    """
    here = socket.gethostname()
    dead = f"{here} {pid_of_ended_process()}"
    # The only folder that must be removed.
    make_folder(parent, f"{prefix}dead", (owner_file, dead))
    make_folder(parent, "other-prefix", (owner_file, dead))
    make_folder(parent, f"{prefix}alive", (owner_file, f"{here} {os.getppid()}"))
    make_folder(parent, f"{prefix}other-machine", (owner_file, f"not-{dead}"))
    make_folder(parent, f"{prefix}without-owner")
    make_folder(parent, f"{prefix}torn-owner", (owner_file, here))  # the pid is missing
    mark_as_owned(make_folder(parent, f"{prefix}mine"))

    remove_abandoned(parent, f"{prefix}*")

    # All but "dead" are kept.
    kept_names = ("alive", "mine", "other-machine", "torn-owner", "without-owner")
    expected = sorted(["other-prefix", *(prefix + name for name in kept_names)])
    assert sorted(folder.name for folder in parent.iterdir()) == expected
