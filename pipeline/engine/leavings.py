"""Removes temporary folders that a killed process left behind.

A Spark session has a temporary folder, which it removes when it ends. If the process of the session
is killed, the folder stays. Therefore each session writes its process id into a file in its folder,
and a later session removes the folders whose processes have ended.
"""

import os
import shutil
import socket
from pathlib import Path

OWNER_FILE = ".coordlab-owner"
"""Name of the file in a temporary folder that tells its owner: `myhost 4711` (host, process id)."""


def mark_as_owned(folder: Path) -> None:
    """Record this process as the owner of a temporary folder."""
    (folder / OWNER_FILE).write_text(f"{socket.gethostname()} {os.getpid()}\n", encoding="utf-8")


def remove_abandoned(parent: Path, pattern: str) -> None:
    """Remove the folders in `parent` whose owner was a process of this machine that has ended.

    Only folders whose names match `pattern` are looked at. A folder without OWNER_FILE stays,
    because it may be of another program, or its owner may be about to write the file.
    """
    for folder in sorted(parent.glob(pattern)):
        # Any user can put a link into a temporary directory. The target of a link must not be
        # removed.
        if not folder.is_symlink() and _is_abandoned(folder / OWNER_FILE):
            # Errors are ignored, because another session may remove the folder at the same time.
            shutil.rmtree(folder, ignore_errors=True)


def _is_abandoned(owner_file: Path) -> bool:
    """Return whether the owner was a process of this machine, and has ended.

    Returns False in case of doubt, for example if the file is missing or is not whole.
    """
    try:
        host, process_id = owner_file.read_text(encoding="utf-8").split()
        # On a shared disk, the owner can be a process of another machine. This machine cannot tell
        # whether that process has ended.
        if host != socket.gethostname():
            return False
        # Signal 0 does nothing to the process. But `kill` raises an error if there is no process.
        os.kill(int(process_id), 0)
    except ProcessLookupError:
        return True
    except (OSError, ValueError, OverflowError):
        # OSError: there is no file, or the process is another user's. ValueError: the file does not
        # hold a host and a number. OverflowError: the number is too large for a process id.
        return False
    return False  # the process lives
