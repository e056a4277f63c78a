"""Options that several commands share, such as those that say which cluster is meant.

A command gets all these options as one dataclass, and not as many arguments.
"""

from dataclasses import dataclass

import click
from click.testing import CliRunner

from coordlab.options import gather_into


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedOptions:
    """The values of the shared options `--count` and `--json`."""

    count: int
    json: bool


def test_command_gets_the_shared_options_as_one_argument_and_its_own_options_by_name() -> None:
    """`gather_into` gathers `--count` and `--json` into the argument `shared`.

    The option `--group` is no field of the dataclass, so it stays an argument of its own. The help
    text of the command is still its own docstring.
    """
    calls: list[tuple[SharedOptions, str]] = []

    @click.command()
    @click.option("--count", type=int, default=3)
    @click.option("--json", is_flag=True)
    @click.option("--group")
    @gather_into(SharedOptions, "shared")
    def command(shared: SharedOptions, group: str) -> int:
        """Do nothing."""
        calls.append((shared, group))
        return 0

    assert CliRunner().invoke(command, ["--json", "--group", "readers"]).exit_code == 0
    assert calls == [(SharedOptions(count=3, json=True), "readers")]
    assert command.help == "Do nothing."
