"""What coordlab says to a wrong command line or a broken experiment file.

All messages are compared with files in pages/, which a person has reviewed. `pytest --rewrite`
writes these files. The tests call the command in their own process, which is fast;
tests/acceptance/test_command_line.py starts real processes.
"""

from pathlib import Path

import pytest

from coordlab.cli import run_cli
from results_schema.results import EXIT_BAD_ARGUMENTS
from tests.support.harness.golden import Golden


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder, on a wide terminal."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path


REFUSED = (
    ("run", "no/such.yaml"),
    ("run", "coordinator_crash", "--var", "nonsense"),
    ("run", "coordinator_crash", "--var", "topics.orders.partitons=5"),
    ("run", "coordinator_crash", "--var", "cluster.brokers=many"),
    ("run", "coordinator_crash", "--var", "faults[3].at=5s"),
    ("run", "coordinator_crash", "--runtime", "virtul"),
    ("run", "coordinator_crash", "--seed", "-3"),
    ("run", "coordinator_crash", "--time-limit", "5"),
    ("run",),
    ("rnu",),
    ("analyze",),
    ("analyze", "."),
    ("explore", "refrence"),
    ("explore", "reference", "--count", "0"),
    # These two options are percentages.
    ("explore", "reference", "--recheck", "101"),
    ("explore", "reference", "--mutated", "101"),
    ("explore", "reference", "--time-limit", "5"),
    ("explore", "--resume", "nowhere"),
    ("explore", "reference", "more"),
    ("up", "no/such.yaml"),
    ("up", "--topic", "orders:many"),
    ("up", "--group", "readers"),
    ("up", "--producer", "orders:fast"),
    # A topic of 6 partitions with 3 replicas each, on 2 brokers.
    ("up", "--brokers", "2", "--topic", "orders:6:3"),
    ("up", "--runtime", "virtual"),
    ("up", "--name", "no name"),
    # The first of the brokers' ports is the last port that there is.
    ("up", "--port", "65535"),
    ("inject",),
    ("inject", "crash", "broker(0)"),
    ("inject", "crash", "broker(0)", "--coordinator-of", "readers"),
    ("inject", "crash", "broker(0)", "--arg", "disk"),
    ("heal", "crash-0", "--all"),
    ("status", "--name", "blue"),
    ("down",),
)
BROKEN_FILES = {
    "syntax": "version: 1\nname: [x\ntopics: }\n",
    "tab": "version: 1\nname: x\n\tfoo: 1\n",
    "key twice": "version: 1\nname: a\nname: b\n",
    "empty": "",
    "a list": "- just\n- a list\n",
    "binary": "\x00\x01",
}


def test_bad_arguments_exit_254_and_leave_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    """A wrong command line has exit code 254.

    Most programs that use the library Click exit with 2. Here 2 means that the verdict of a run is
    UNKNOWN.
    """
    outputs = []
    for arguments in REFUSED:
        assert run_cli(arguments) == EXIT_BAD_ARGUMENTS, arguments
        error = capsys.readouterr().err.replace(str(folder), "FOLDER")
        outputs.append(f"$ coordlab {' '.join(arguments)}\n{error.rstrip()}\n")
    assert list(folder.iterdir()) == []
    golden.check("pages/bad_arguments.txt", "\n".join(outputs))


def test_file_that_is_no_experiment_is_reported_without_a_traceback(
    folder: Path, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    """The message names the line of the file that cannot be read."""
    outputs = []
    for name, content in BROKEN_FILES.items():
        (folder / "broken.yaml").write_text(content)
        assert run_cli(("run", "broken.yaml")) == EXIT_BAD_ARGUMENTS, name
        outputs.append(f"== {name} ==\n{capsys.readouterr().err.rstrip()}\n")
    assert not (folder / "runs").exists()
    golden.check("pages/broken_files.txt", "\n".join(outputs))
