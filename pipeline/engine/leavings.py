"""Temporary folders of Spark sessions whose process was killed before it could remove them."""

import os
import shutil
import socket
from pathlib import Path

OWNER_FILE = ".coordlab-owner"
"""Stands in a folder that this lab made: host and process of its owner."""


def mark_as_owned(folder: Path) -> None:
    """Write who owns a temporary folder."""
    (folder / OWNER_FILE).write_text(f"{socket.gethostname()} {os.getpid()}\n", encoding="utf-8")


def remove_abandoned(parent: Path, pattern: str) -> None:
    """Remove the folders in `parent` whose owner was a process of this machine that is gone.

    A folder without an owner's file is somebody else's, or is being made: it stays.
    """
    for folder in sorted(parent.glob(pattern)):
        if not folder.is_symlink() and _is_abandoned(folder / OWNER_FILE):
            shutil.rmtree(folder, ignore_errors=True)


def _is_abandoned(owner_file: Path) -> bool:
    try:
        host, process_id = owner_file.read_text(encoding="utf-8").split()
        if host != socket.gethostname():
            return False
        os.kill(int(process_id), 0)
    except ProcessLookupError:
        return True
    except (OSError, ValueError, OverflowError):
        return False
    return False
