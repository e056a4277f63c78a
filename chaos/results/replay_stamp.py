"""What an experiment file remembers of a run, so that the same run can be asked for again.

Owns the section `replay:` of a file, and the digest of the code that decides what a run does. It
knows nothing of runs: who played one writes the stamp (`dump`), who replays it compares.
"""

import importlib.util
import sys
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

NODE_PACKAGES = ("protocol", "partition_log", "coordinator", "cluster", "results_schema", "chaos")
"""The packages whose code decides what a run in virtual time does."""
_DIGEST_BYTES = 8

Digest = Annotated[str, Meta(pattern=r"^[0-9a-f]*(?!\n)$", description="hexadecimal digits")]


class ReplayStamp(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A run in virtual time that this file was written from: `replay` plays it again."""

    seed: Annotated[int, Meta(ge=0)]
    """The seed of every random choice of the run."""
    code: Digest
    """A digest of the code that ran; other code may run otherwise."""
    commit: str | None = None
    """The commit of that code, where it was a checkout."""
    python: Annotated[
        str, Meta(pattern=r"^[0-9]+\.[0-9]+(?!\n)$", description="a minor version, such as `3.11`")
    ]
    """The minor version of Python that ran it."""
    result: str
    """What the run said: pass, violated, unknown or broken."""
    digest: Digest
    """The digest of its trace without messages."""
    finding: str | None = None
    """What was found, in a sentence."""
    schedule: Digest = ""
    """A digest of what this file then said of the run: it tells whether it was edited since."""
    trail: Annotated[
        str,
        Meta(
            pattern=r"^([1-9][0-9]*s( [0-9a-f]+)*)?(?!\n)$",
            description="a step and a few hexadecimal digits for each, such as `2s 1f3a 77b0`",
        ),
    ] = ""
    """Digits of the digest of what came before each step: it tells when another run parts."""


@cache
def code_version() -> str:
    """Return a digest of the source text of `NODE_PACKAGES`, of a checkout or an installed copy.

    Shape: 16 hexadecimal digits, the same for the same files wherever they lie.
    """
    digest = blake2b(digest_size=_DIGEST_BYTES)
    for package in NODE_PACKAGES:
        folder = _folder_of(package)
        names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.py"))
        for name in names:
            text = (folder / name).read_bytes().replace(b"\r\n", b"\n")
            digest.update(f"{package}/{name} {len(text)}\n".encode())
            digest.update(text)
    return digest.hexdigest()


def python_version() -> str:
    """Return the minor version of the Python that runs, such as `3.11`."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def differences(stamp: ReplayStamp) -> tuple[str, ...]:
    """Return a sentence for each thing that differs here from when `stamp` was written."""
    found = []
    if stamp.code != code_version():
        commit = "" if stamp.commit is None else f" (commit {stamp.commit[:12]})"
        found.append(
            f"the code is another: it was written by code {stamp.code}{commit}, "
            f"this is {code_version()}"
        )
    if stamp.python != python_version():
        found.append(
            f"Python is another: it was written by {stamp.python}, this is {python_version()}"
        )
    return tuple(found)


def _folder_of(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"package `{package}` was not found")
    return Path(spec.origin).parent
