"""Options of `run` that must be refused, or that stand in what a run leaves behind."""

import shlex

import pytest

from chaos.manifest import replay_command
from chaos.verdict import EXIT_BAD_ARGUMENTS
from coordlab.cli import run_cli


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--runtime", "virtual", "--time-scale", "10"], "virtual time takes no real time"),
        (["--time-scale", "0.5"], "0.5 is not in the range x>=1.0"),
        (["--time-scale", "fast"], "not a valid float"),
    ],
)
def test_time_scale_that_means_nothing_is_refused(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything is started: exit 254."""
    assert run_cli(["run", "graceful_move", *arguments]) == EXIT_BAD_ARGUMENTS
    assert message in " ".join(capsys.readouterr().err.replace("│", " ").split())


def test_time_scale_stands_in_the_replay_command_where_it_is_not_one() -> None:
    """Who runs it again gets the same clock."""
    scaled = replay_command("x", runtime="ray", seed=1, time_scale=10.0)
    plain = replay_command("x", runtime="ray", seed=1)

    assert shlex.split(scaled)[-2:] == ["--time-scale", "10"]
    assert "--time-scale" not in plain
