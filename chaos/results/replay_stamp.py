"""ReplayStamp: the section `replay:` of an experiment file, with the result of one run of the file.

A search writes such a file for each violation that it has found. The command `replay` runs the file
again, and compares this run with the stamp. In virtual time both runs must be equal, because the
seed, the experiment and the code determine the whole run.

The stamp has three hashes (digests): of the run's trace, of the experiment, and of the code that
determines a run. The function `code_version` in this module computes the digest of the code.
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
"""Packages whose code determines a run in virtual time.

They have the code of the simulated nodes, and the code that runs an experiment on them.
"""
_DIGEST_BYTES = 8  # 16 hexadecimal digits

# The pattern ends with `(?!\n)$`. In Python `$` alone would also match before a line break at the
# end of the text. A text without digits is allowed, because the default of `schedule` is "".
Digest = Annotated[str, Meta(pattern=r"^[0-9a-f]*(?!\n)$", description="hexadecimal digits")]


class ReplayStamp(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The run in virtual time from which this file was written; `replay` repeats it."""

    seed: Annotated[int, Meta(ge=0)]
    """Seed of every random choice of the run."""
    code: Digest
    """Digest of the code that ran; other code may behave differently."""
    commit: str | None = None
    """Commit of the code that ran, if it was a checkout."""
    python: Annotated[
        str, Meta(pattern=r"^[0-9]+\.[0-9]+(?!\n)$", description="a minor version, such as `3.11`")
    ]
    """Minor version of the Python that ran the code."""
    result: str
    """Result of the run: pass, violated, unknown or broken."""
    digest: Digest
    """Digest of the run's trace without the rows of messages: a run may record these or not."""
    finding: str | None = None
    """The finding that the file shows, as the name of its check and a sentence; None: the run had
    none."""
    schedule: Digest = ""
    """Digest of the experiment (without its name, texts and stamp) when the file was written. If
    the file was edited since, its content has another digest."""
    trail: Annotated[
        str,
        Meta(
            pattern=r"^([1-9][0-9]*s( [0-9a-f]+)*)?(?!\n)$",
            description="a step and a few hexadecimal digits for each, such as `2s 1f3a 77b0`",
        ),
    ] = ""
    """A step of time, such as `2s`, and then one mark for each step of the run. A mark has a few
    digits of the digest of all rows up to its time. The first mark that differs shows when a
    repeated run begins to differ."""


@cache
def code_version() -> str:
    """Return a digest of the source files of NODE_PACKAGES, with 16 hexadecimal digits.

    Equal files give the same digest, in a checkout and in an installed copy.
    """
    digest = blake2b(digest_size=_DIGEST_BYTES)
    for package in NODE_PACKAGES:
        folder = _folder_of(package)
        names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.py"))
        for name in names:
            # A checkout on Windows may have other line breaks. The digest must not depend on them.
            text = (folder / name).read_bytes().replace(b"\r\n", b"\n")
            # With names and lengths, two sets of files cannot give the same sequence of bytes.
            digest.update(f"{package}/{name} {len(text)}\n".encode())
            digest.update(text)
    return digest.hexdigest()


def python_version() -> str:
    """Return the minor version of the running Python, such as `3.11`."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def differences(stamp: ReplayStamp) -> tuple[str, ...]:
    """Return a sentence for each difference between this process and the process of `stamp`.

    The code may differ, and so may the version of Python. In the sentences, "it" means the file
    that has the stamp.
    """
    sentences = []
    if stamp.code != code_version():
        commit = "" if stamp.commit is None else f" (commit {stamp.commit[:12]})"
        sentences.append(
            f"the code is another: it was written by code {stamp.code}{commit}, "
            f"this is {code_version()}"
        )
    if stamp.python != python_version():
        sentences.append(
            f"Python is another: it was written by {stamp.python}, this is {python_version()}"
        )
    return tuple(sentences)


def _folder_of(package: str) -> Path:
    """Return the folder of a package without importing the package."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"package `{package}` was not found")
    return Path(spec.origin).parent
