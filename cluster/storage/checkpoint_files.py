"""Checkpoint files: small files that are replaced as a whole, behind a CRC-32C of their content."""

from pathlib import Path

import google_crc32c

from cluster.storage.files import Files, write_all

_CRC_BYTES = 4
_SALT = b"checkpoint"
"""Goes into the CRC, so that a file of zeros is no checkpoint, not even an empty one."""


def write_checkpoint_file(path: Path, content: bytes, files: Files) -> None:
    """Replace the file atomically: a kill leaves the old content or the new. Raises: OSError.

    DEVIATION: Kafka also syncs it, on a thread of its own; here that would hold up the node. After
    a power loss of the real machine it may be an older one, or one that cannot be read.
    """
    unfinished = path.with_name(f"{path.name}.unfinished")
    file = files.open(unfinished)
    try:
        files.ftruncate(file, 0)  # a process that was killed may have left its own
        write_all(files, file, _crc(content) + content, at=0)
    finally:
        files.close(file)
    files.replace(unfinished, path)


def read_checkpoint_file(path: Path) -> bytes | None:
    """Return the content, None if there is no file, or none with the right CRC."""
    stored = path.read_bytes() if path.exists() else b""
    content = stored[_CRC_BYTES:]
    return content if stored[:_CRC_BYTES] == _crc(content) else None


def _crc(content: bytes) -> bytes:
    return int(google_crc32c.value(_SALT + content)).to_bytes(_CRC_BYTES, "big")
