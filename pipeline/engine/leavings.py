"""Removes temporary folders that a killed process left behind.

Each Spark session marks its folder with a file that names the session's process. A later session
reads the file, and removes the folder if that process has ended.
"""

import os
import shutil
import socket
from pathlib import Path

OWNER_FILE = ".coordlab-owner"
"""Name of the file in each temporary folder of the lab, with the host and process of its owner."""


def mark_as_owned(folder: Path) -> None:
    """Record this process as the owner of a temporary folder."""
    (folder / OWNER_FILE).write_text(f"{socket.gethostname()} {os.getpid()}\n", encoding="utf-8")


def remove_abandoned(parent: Path, pattern: str) -> None:
    """Remove the folders in `parent` whose owner was a process of this machine that has ended.

    `pattern` selects the folders by name. A folder without OWNER_FILE stays, because another
    program may have made it, or its owner may be about to write the file.
    """
    for folder in sorted(parent.glob(pattern)):
        # Any user can put a link into a temporary directory. Its target must not be removed.
        if not folder.is_symlink() and _is_abandoned(folder / OWNER_FILE):
            # Another session may remove the same folder at the same time, hence `ignore_errors`.
            shutil.rmtree(folder, ignore_errors=True)


def _is_abandoned(owner_file: Path) -> bool:
    """Return whether the owner was a process of this machine, and has ended.

    False in case of doubt, for example if the file is missing or is not whole.
    """
    try:
        host, process_id = owner_file.read_text(encoding="utf-8").split()
        # On a shared disk the owner can be a process of another machine, which cannot be asked.
        if host != socket.gethostname():
            return False
        os.kill(int(process_id), 0)  # signal 0 is not delivered: it only looks for the process
    except ProcessLookupError:
        return True
    except (OSError, ValueError, OverflowError):
        # OSError: there is no file, or this user may not signal the process. ValueError: the file
        # does not hold a host and a number. OverflowError: the number is too large for a process
        # id.
        return False
    return False  # the process lives
