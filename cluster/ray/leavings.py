"""Removal of the session folders of Rays that this program started.

A session is one run of Ray on a machine. Ray itself never removes a session's folder with its logs.
This program removes the folder when it ends its Ray. If this program was killed before that, its
next start removes the folder.
"""

import os
import shutil
import socket
from pathlib import Path

OWNER_FILE = ".coordlab-owner"
"""File with host and pid of the owner, in each folder that this program made."""


def mark_as_owned(folder: Path) -> None:
    """Write this process into the owner's file of a temporary folder."""
    (folder / OWNER_FILE).write_text(f"{socket.gethostname()} {os.getpid()}\n", encoding="utf-8")


def remove_abandoned(parent: Path, pattern: str) -> None:
    """Remove the folders in `parent` whose owner was a process of this machine and has ended.

    A folder without an owner's file stays: another program made it, or it is being made now.
    """
    for folder in sorted(parent.glob(pattern)):
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
        return False
    return False


def remove_session(folder: Path) -> None:
    """Remove the folder of an ended session, and the link `session_latest` to it."""
    shutil.rmtree(folder, ignore_errors=True)
    latest = folder.parent / "session_latest"
    if latest.is_symlink() and not latest.exists():
        latest.unlink(missing_ok=True)
