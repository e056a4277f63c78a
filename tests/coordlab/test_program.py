"""coordlab prints commands for its user to paste, such as `coordlab replay found.yaml`.

These commands must begin with the words with which the user called the program: `coordlab`, or
`.venv/bin/python -m coordlab`.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from coordlab.program import PROGRAM, called_as, to_paste

ROOT = Path(__file__).resolve().parents[2]


def called(
    monkeypatch: pytest.MonkeyPatch, typed: list[str], *, script: str, on_path: str | None = None
) -> str:
    """Return how the program calls itself in the commands that it prints.

    - `typed`: the words with which the user called the program.
    - `script`: the file that Python ran.
    - `on_path`: the file that the shell finds on the PATH under the name of the script, if any.
    """
    monkeypatch.setattr("sys.orig_argv", typed)
    monkeypatch.setattr("sys.argv", [script])
    monkeypatch.setattr("shutil.which", lambda _: on_path)
    return called_as()


def test_module_is_called_by_the_interpreter_that_was_typed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The word `python` alone may start another interpreter, which does not have the packages."""
    typed = [".venv/bin/python", "-m", "coordlab", "run", "x"]
    assert called(monkeypatch, typed, script="/x/coordlab/__main__.py") == (
        ".venv/bin/python -m coordlab"
    )
    assert to_paste(f"{PROGRAM} run x") == ".venv/bin/python -m coordlab run x"


@pytest.mark.parametrize(
    ("on_path", "expected"),
    [
        pytest.param("/v/bin/coordlab", "coordlab", id="this script"),
        pytest.param("/w/bin/coordlab", "/v/bin/coordlab", id="script of another installation"),
        pytest.param(None, "/v/bin/coordlab", id="no script"),
    ],
)
def test_script_is_called_by_its_name_if_the_path_has_it(
    monkeypatch: pytest.MonkeyPatch, on_path: str | None, expected: str
) -> None:
    """The script that was called is /v/bin/coordlab. The name alone may find another script."""
    typed = ["/v/bin/python", "/v/bin/coordlab", "run"]
    assert called(monkeypatch, typed, script="/v/bin/coordlab", on_path=on_path) == expected


def test_other_callers_get_the_name_in_the_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    """If coordlab was not called by a command, as in a test, its name in the documents is used.

    Commands of other programs are printed unchanged.
    """
    assert called(monkeypatch, ["pytest"], script="/v/bin/pytest") == PROGRAM
    assert to_paste("ls") == "ls"


def test_help_shows_the_call_that_was_typed() -> None:
    """The examples of a help text begin with the typed words, so that a user can paste them."""
    words = [sys.executable, "-m", "coordlab"]
    helped = subprocess.run(
        [*words, "list", "--help"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert f"{' '.join(words)} list --json" in helped.stdout
