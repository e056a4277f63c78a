"""Disks of a few kilobytes, for tests that run with permission to mount (as root)."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """Mount a tmpfs at `folder`; skip the test if the system does not permit it.

    The disk is unmounted at the end, even if files in it are open. `size` is written as in the
    options of `mount`, for example `64k`.
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
