"""A check of functions that remove the folders of dead processes. Several tests share this check.

Each process has a folder of its own. A file in the folder names the owner of the folder: the host
and the process id. The functions under test must remove only folders whose owner is dead.
"""

import os
import socket
from collections.abc import Callable
from pathlib import Path

from tests.support.harness.programs import pid_of_ended_process


def make_folder(parent: Path, name: str, owner: tuple[str, str] | None = None) -> Path:
    """Make a folder with a log in it, and return the path of the folder.

    If `owner` is given, the folder also has a file that names its owner. `owner` is the name and
    the content of this file, such as `("owner", "my-host 4711")`.
    """
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
    """Check that `remove_abandoned` removes the folder of a dead process, and no other.

    The function must keep folders with another prefix, folders of a live process, folders of
    another machine, and folders without a known owner.

    mark_as_owned: writes a file into a folder. The file says that this process is the owner.
    remove_abandoned: the code under test. It gets the parent and a pattern of names.
    """
    here = socket.gethostname()
    dead = f"{here} {pid_of_ended_process()}"
    # This is the only folder that must be removed.
    make_folder(parent, f"{prefix}dead", (owner_file, dead))
    make_folder(parent, "other-prefix", (owner_file, dead))
    make_folder(parent, f"{prefix}alive", (owner_file, f"{here} {os.getppid()}"))
    make_folder(parent, f"{prefix}other-machine", (owner_file, f"not-{dead}"))
    make_folder(parent, f"{prefix}without-owner")
    owner_without_pid = here
    make_folder(parent, f"{prefix}torn-owner", (owner_file, owner_without_pid))
    mark_as_owned(make_folder(parent, f"{prefix}mine"))

    remove_abandoned(parent, f"{prefix}*")

    # All folders but "dead" are kept.
    kept_names = ("alive", "mine", "other-machine", "torn-owner", "without-owner")
    expected = sorted(["other-prefix", *(prefix + name for name in kept_names)])
    assert sorted(folder.name for folder in parent.iterdir()) == expected
