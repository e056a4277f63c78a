"""The stamp of a replay file says which code and which Python can reproduce the run.

A replay file is an experiment with the seed of a run, so that a person can repeat the run. Other
code or another Python might play another run, and the command `replay` must warn of this. So the
stamp has the version of Python, and a code version, which is a hash over the source files of a
node.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from chaos.results import replay_stamp
from chaos.results.replay_stamp import ReplayStamp, code_version, differences, python_version

ROOT = str(Path(__file__).resolve().parents[3])
STAMP = ReplayStamp(
    seed=7, code=code_version(), python=python_version(), result="pass", digest="12"
)


def test_stamp_of_this_code_and_python_has_no_difference() -> None:
    """A replay file that was written by this code is replayed without a warning."""
    assert differences(STAMP) == ()


def test_other_code_and_other_python_are_both_named() -> None:
    """The user gets a sentence about the code, and one about Python.

    The commit of the other code, if it is known, helps to find this code.
    """
    other_stamp = ReplayStamp(
        seed=7, code="0f", commit="a" * 40, python="3.99", result="pass", digest="12"
    )

    assert differences(other_stamp) == (
        "the code is another: it was written by code 0f (commit aaaaaaaaaaaa), "
        f"this is {code_version()}",
        f"Python is another: it was written by 3.99, this is {python_version()}",
    )


def test_code_version_is_equal_in_another_process_and_folder() -> None:
    """The version must depend on the code only, not on the process or the working directory.

    Nor does it depend on Python's options: `-O`, for example, makes Python ignore asserts.
    """
    program = "from chaos.results.replay_stamp import code_version; print(code_version())"
    completed = subprocess.run(
        [sys.executable, "-O", "-c", f"import sys; sys.path.insert(0, {ROOT!r}); {program}"],
        cwd="/",
        capture_output=True,
        text=True,
        check=True,
    ).stdout

    assert completed.strip() == code_version()


def test_code_version_changes_with_the_text_and_the_name_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a file of code is edited, added or renamed, the version changes.

    Files that have no code, such as notes.txt, do not matter.
    """
    folder = tmp_path / "somewhere"
    folder.mkdir()
    # The hash is now made of the files in this folder, in place of our packages.
    monkeypatch.setattr(replay_stamp, "_folder_of", lambda package: folder)
    earlier_versions = []

    def version_with(name: str, text: str) -> str:
        """Write a file into the folder of the code, and return the new version of the code."""
        (folder / name).write_text(text)
        code_version.cache_clear()
        earlier_versions.append(code_version())
        return earlier_versions[-1]

    try:
        first = version_with("a.py", "one\n")
        assert version_with("a.py", "two\n") != first
        assert version_with("a.py", "one\n") == first
        assert version_with("notes.txt", "x") == first
        assert version_with("b.py", "") != first
        (folder / "b.py").rename(folder / "c.py")
        code_version.cache_clear()
        assert code_version() not in earlier_versions
    finally:
        code_version.cache_clear()  # the next test needs the version of the real code
