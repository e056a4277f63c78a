"""The commands that `up` prints for the user to paste into a shell.

The commands break the cluster, end it, or start it again:

    coordlab inject crash 'coordinator-of(readers)' --duration 20s
    coordlab down
    coordlab up --group readers:orders:3
"""

import shlex
from collections.abc import Sequence
from pathlib import Path

from chaos.experiment.structs import Experiment, coordinated_groups, duration_of
from chaos.standing.registry import DEFAULT_NAME
from coordlab.program import PROGRAM
from coordlab.standing_options import DEFAULT_RUNS

_CRASH_DURATION = "20s"
"""The time for which a broker stays down after the printed command has crashed it.

In this time the user should see another broker become the coordinator. This happens when the
controller fences the silent broker, after broker.session.timeout.ms (9 s).
"""


def break_command(experiment: Experiment, name: str, runs: Path) -> str:
    """Return a command that crashes the coordinator of the first group with members.

    If no group has members, the command crashes broker 0.
    """
    groups = [
        group_id
        for group_id, definition in coordinated_groups(experiment).items()
        if definition.members
    ]
    target = f"coordinator-of({groups[0]})" if groups else "broker(0)"
    words = ["inject", "crash", target, "--duration", _CRASH_DURATION]
    return _command_line([*words, *_option_words(name, runs)])


def down_command_line(name: str, runs: Path) -> str:
    """Return the command that ends the cluster."""
    words = ["down"] if name == DEFAULT_NAME else ["down", name]
    return _command_line([*words, *_runs_option_words(runs)])


def up_command_line(
    file: str | None,
    *,
    repeated: Sequence[tuple[str, Sequence[str]]],
    single: Sequence[tuple[str, object]],
    switches: Sequence[tuple[str, bool]],
    duration_us: int | None,
) -> str:
    """Return the command that starts the same cluster again.

    - `repeated`: options that can be given several times, such as `("--topic", ("orders", "pay"))`,
      which becomes `--topic orders --topic pay`.
    - `single`: options with one value, such as `("--brokers", 5)`. Options with the value None are
      left out.
    - `switches`: options without a value, and whether they are on, such as `("--play", True)`.
    """
    words = ["up"]
    if file is not None:
        words.append(file)
    for option, values in repeated:
        for value in values:
            words += [option, value]
    for option, value_or_none in single:
        if value_or_none is not None:
            words += [option, str(value_or_none)]
    words += [option for option, is_on in switches if is_on]
    if duration_us is not None:
        words += ["--duration", duration_of(duration_us)]
    return _command_line(words)


def _option_words(name: str, runs: Path) -> list[str]:
    """Return the options with which a command finds the cluster, as words.

    A command needs no options to find the default name in the default folder.
    """
    name_words = [] if name == DEFAULT_NAME else ["--name", name]
    return [*name_words, *_runs_option_words(runs)]


def _runs_option_words(runs: Path) -> list[str]:
    return [] if str(runs) == DEFAULT_RUNS else ["--runs", str(runs)]


def _command_line(words: Sequence[str]) -> str:
    """Return the command line `coordlab WORDS`, quoted for a shell."""
    return f"{PROGRAM} {shlex.join(words)}"
