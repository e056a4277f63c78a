"""Removal of the session folders that Ray leaves.

Each time that Ray is started on a machine, Ray creates a folder for this session, with its logs,
and never removes the folder. If this program has started Ray, the program removes the folder when
it ends Ray. If the program was killed before, its next start removes the folder.
"""

import os
import shutil
import socket
from pathlib import Path

OWNER_FILE = ".coordlab-owner"
"""File in each session folder of this program, with the host and the pid of the owner: the process
that started Ray."""


def mark_as_owned(folder: Path) -> None:
    """Write this process into the owner's file of a session folder."""
    (folder / OWNER_FILE).write_text(f"{socket.gethostname()} {os.getpid()}\n", encoding="utf-8")


def remove_abandoned(parent: Path, pattern: str) -> None:
    """Remove the folders in `parent` whose owner was a process of this machine and has ended.

    A folder without an owner's file stays. Another program may have made it, or a process that is
    starting its Ray right now and has not written the file yet.
    """
    for folder in sorted(parent.glob(pattern)):
        # The pattern also matches Ray's link `session_latest`, which `remove_session` handles.
        if not folder.is_symlink() and _is_abandoned(folder / OWNER_FILE):
            shutil.rmtree(folder, ignore_errors=True)


def _is_abandoned(owner_file: Path) -> bool:
    """Return True if the owner was a process of this machine and has ended."""
    try:
        host, process_id = owner_file.read_text(encoding="utf-8").split()
        if host != socket.gethostname():
            return False  # processes of another machine cannot be checked
        os.kill(int(process_id), 0)  # signal 0 only checks that the process exists
    except ProcessLookupError:
        return True
    except (OSError, ValueError, OverflowError):
        # OSError: there is no file, or the process exists and belongs to another user. ValueError,
        # OverflowError: the file has no host and pid. In doubt the folder stays.
        return False
    return False


def remove_session(folder: Path) -> None:
    """Remove the folder of an ended session, and the link `session_latest` to it."""
    shutil.rmtree(folder, ignore_errors=True)
    latest = folder.parent / "session_latest"
    # The link is removed only if it points nowhere, because it can lead to a newer session's
    # folder.
    if latest.is_symlink() and not latest.exists():
        latest.unlink(missing_ok=True)
