"""Which errors are a disk's, and how the first write that failed is told."""

import errno
from pathlib import Path

OF_THE_DISK = frozenset(
    {
        *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS),
        *(errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EISDIR, errno.ENOTEMPTY),
    }
)
"""What a file system answers when it is full, broken, read-only, or has something in the way."""


def is_of_the_disk(error: BaseException) -> bool:
    """Return whether an error says that a file system refused something."""
    return isinstance(error, OSError) and error.errno in OF_THE_DISK


def unwritten(path: Path, error: OSError) -> str:
    """Say that `path` cannot be written; an error that names its file knows better."""
    return f"{error.filename or path} cannot be written: {error.strerror or error}"
