"""What the command line refuses: told in words, with nothing left behind.

In this process; that a process ends so, too: tests/acceptance/test_command_line.py.
"""

from pathlib import Path

import pytest

from coordlab.cli import run_cli
from results_schema.results import EXIT_BAD_ARGUMENTS


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, where the commands run; their terminal is wide."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("run", "no/such.yaml"), "no/such.yaml: there is no such file"),
        (("run", "coordinator_crash", "--var", "nonsense"), "--var: nonsense: is not allowed"),
        (
            ("run", "coordinator_crash", "--var", "cluster.brokrs=5"),
            "--var: cluster.brokrs: unknown key `brokrs`; expected one of `brokers`, "
            "`controllers`, `config`, `guards`, `java_coordinator`, `links`, `starts`, `costs`, "
            "`storage`, `late_notices`, `metrics_interval`; did you mean `brokers`?",
        ),
        (
            ("run", "coordinator_crash", "--var", "cluster.brokers=many"),
            "--var: cluster.brokers: is not allowed; expected a whole number >= 1 and <= 100, got "
            "`many`",
        ),
        (
            ("run", "coordinator_crash", "--var", "faults[3].at=5s"),
            "expected `faults[0]`",
        ),
        (("run", "coordinator_crash", "--runtime", "virtul"), "did you mean `virtual`?"),
        (("run", "coordinator_crash", "--seed", "-3"), "--seed"),
        (("run", "coordinator_crash", "--time-limit", "5"), "such as `90s` or `5m`, got `5`"),
        (("run",), "EXPERIMENT"),
        (("rnu",), "rnu"),
        (("analyze",), "there is no run in runs"),
        (("analyze", "."), " holds no manifest.json"),
        (("explore", "refrence"), "did you mean `reference`?"),
        (("explore", "reference", "--count", "0"), "--count"),
        (("explore", "reference", "--recheck", "101"), "--recheck"),
        (("explore", "reference", "--mutated", "101"), "--mutated"),
        (("explore", "reference", "--time-limit", "5"), "such as `90s` or `5m`, got `5`"),
        (("explore", "--resume", "nowhere"), "nowhere holds no exploration"),
        (("explore", "reference", "more"), "more"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_bad_arguments_exit_254_and_leave_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], told: str
) -> None:
    """Usage errors of click are 2, which here means UNKNOWN: they must be mapped."""
    assert run_cli(arguments) == EXIT_BAD_ARGUMENTS

    assert told in capsys.readouterr().err
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("version: 1\nname: [x\ntopics: }\n", "broken.yaml:3: not valid YAML: "),
        ("version: 1\nname: x\n\tfoo: 1\n", "broken.yaml:3: not valid YAML: "),
        ("version: 1\nname: a\nname: b\n", "broken.yaml:3: "),
        ("", "broken.yaml: the file is empty"),
        ("- just\n- a list\n", "broken.yaml:1: the file must be a mapping"),
        ("\x00\x01", "broken.yaml: not valid YAML: "),
    ],
    ids=["syntax", "tab", "key twice", "empty", "a list", "binary"],
)
def test_file_that_is_no_experiment_is_told_without_a_traceback(
    folder: Path, capsys: pytest.CaptureFixture[str], content: str, told: str
) -> None:
    """The line is what a person needs."""
    (folder / "broken.yaml").write_text(content)

    assert run_cli(("run", "broken.yaml")) == EXIT_BAD_ARGUMENTS

    assert capsys.readouterr().err.startswith(told)
    assert not (folder / "runs").exists()
