"""Checkpoint files: small files with a CRC in front, which are replaced as a whole."""

from pathlib import Path

import google_crc32c

from cluster.storage.files import Files, write_all

_CRC_BYTES = 4
_SALT = b"checkpoint"
"""Bytes that go into the CRC. With them, the CRC of no content, or of zeros, is not 0. So a file of
zeros is never taken for a valid checkpoint."""


def write_checkpoint_file(path: Path, content: bytes, files: Files) -> None:
    """Replace the file. If the process is killed, the file has the old or the new content.

    Raises: OSError.
    DEVIATION: Kafka also syncs the file, in a separate thread; here a sync would block the node.
    After a power loss of the real machine the file may be old, or unreadable.
    """
    unfinished = path.with_name(f"{path.name}.unfinished")
    file = files.open(unfinished)
    try:
        files.ftruncate(file, 0)  # a killed process may have left an unfinished file
        write_all(files, file, _crc(content) + content, at=0)
    finally:
        files.close(file)
    files.replace(unfinished, path)


def read_checkpoint_file(path: Path) -> bytes | None:
    """Return the content, or None if there is no file with a valid CRC."""
    stored = path.read_bytes() if path.exists() else b""
    content = stored[_CRC_BYTES:]
    return content if stored[:_CRC_BYTES] == _crc(content) else None


def _crc(content: bytes) -> bytes:
    return int(google_crc32c.value(_SALT + content)).to_bytes(_CRC_BYTES, "big")
