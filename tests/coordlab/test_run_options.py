"""Options of `coordlab run`.

Invalid options are refused. Valid options become part of the replay command, which a run prints for
people who want to repeat the run.
"""

import shlex
from pathlib import Path

import pytest

from chaos.results.manifest import run_command_line
from coordlab.cli import run_cli
from results_schema.results import EXIT_BAD_ARGUMENTS


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--runtime", "virtual", "--time-scale", "10"], "virtual time takes no real time"),
        (["--time-scale", "0.5"], "expected a number from 1 to 100, got `0.5`"),
        (["--time-scale", "fast"], "expected a number from 1 to 100, got `fast`"),
        (["--time-scale", "nan"], "expected a number from 1 to 100, got `nan`"),
        (["--time-scale", "inf"], "expected a number from 1 to 100, got `inf`"),
        (["--time-scale", "101"], "expected a number from 1 to 100, got `101`"),
    ],
)
def test_invalid_time_scale_is_refused(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The time scale is refused before the start, with exit code 254."""
    assert run_cli(["run", "graceful_move", *arguments]) == EXIT_BAD_ARGUMENTS
    # The message is printed in a box. The box has a frame and line ends, which interrupt the text.
    assert message in " ".join(capsys.readouterr().err.replace("│", " ").split())


def test_impossible_runs_folder_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A runs folder below a file is the user's mistake, and not a failure of coordlab."""
    (tmp_path / "file").write_text("")
    runs = tmp_path / "file" / "runs"

    code = run_cli(["run", "graceful_move", "--runtime", "virtual", "--runs", str(runs)])

    assert code == EXIT_BAD_ARGUMENTS
    assert f"no run directory can be made in {runs}" in capsys.readouterr().err


def test_replay_command_has_the_time_scale_unless_it_is_one() -> None:
    """A person who repeats the run with this command gets the same clock."""
    scaled = run_command_line("x", runtime="ray", seed=1, time_scale=10.0)
    plain = run_command_line("x", runtime="ray", seed=1)

    assert shlex.split(scaled)[-2:] == ["--time-scale", "10"]
    assert "--time-scale" not in plain


def test_replay_command_has_the_address_of_the_joined_ray() -> None:
    """A person who repeats the run with this command uses the same Ray cluster."""
    joined = run_command_line("x", runtime="ray", seed=1, ray_address="192.0.2.7:6379")

    assert shlex.split(joined)[-2:] == ["--ray-address", "192.0.2.7:6379"]
    assert "--ray-address" not in run_command_line("x", runtime="ray", seed=1)
