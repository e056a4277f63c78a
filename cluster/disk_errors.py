"""Errors of a disk: their numbers, and the message about a failed write."""

import errno
from pathlib import Path

OF_THE_DISK = frozenset(
    {
        *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS),
        *(errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EISDIR, errno.ENOTEMPTY),
    }
)
"""Error numbers. First line: the file system is full, broken or read-only. Second line: a path has
the wrong permissions or is of the wrong kind. Other errors, such as ENOENT, are not the disk's."""


def is_of_the_disk(error: BaseException) -> bool:
    """Return True if a file system refused an operation."""
    return isinstance(error, OSError) and error.errno in OF_THE_DISK


def unwritten(path: Path, error: OSError) -> str:
    """Return the message that a file cannot be written.

    The file is the one that the error names, or `path` if the error names no file.
    """
    return f"{error.filename or path} cannot be written: {error.strerror or error}"
