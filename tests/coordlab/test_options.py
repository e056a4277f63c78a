"""Options that several commands share: a command gets all of them as one value."""

from dataclasses import dataclass

import click
from click.testing import CliRunner

from coordlab.options import as_one


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """The values of the shared options."""

    count: int
    json: bool


def test_command_gets_the_fields_of_the_dataclass_as_one_and_others_by_name() -> None:
    """`as_one` gathers `--count` and `--json`, the fields of Given, into the argument `where`.

    The help is still that of the command's own docstring.
    """
    calls: list[tuple[Given, str]] = []  # the arguments of each call of the command

    @click.command()
    @click.option("--count", type=int, default=3)
    @click.option("--json", is_flag=True)
    @click.option("--group")
    @as_one(Given, "where")
    def command(where: Given, group: str) -> int:
        """Do nothing."""
        calls.append((where, group))
        return 0

    assert CliRunner().invoke(command, ["--json", "--group", "readers"]).exit_code == 0
    assert calls == [(Given(count=3, json=True), "readers")]
    assert command.help == "Do nothing."
