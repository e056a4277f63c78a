"""Disks of a few kilobytes, where a test may mount them."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """Mount a tmpfs of `size` (as in mount's options) at `folder`; skip the test if not permitted.

    It is unmounted at the end, even with open files.
    """
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    try:
        answer = subprocess.run(command, capture_output=True, check=False)
    except OSError:
        pytest.skip("there is no mount here")
    if answer.returncode != 0:
        pytest.skip("mounting needs root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
