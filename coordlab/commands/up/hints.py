"""Command lines that `coordlab up` prints, so that the user can paste them into a shell.

`up` starts a cluster that runs until `down` ends it. The lines break the cluster, end it, or start
it again.
"""

import shlex
from collections.abc import Sequence
from pathlib import Path

from chaos.experiment.structs import Experiment, coordinated_groups, duration_of
from chaos.standing.registry import DEFAULT_NAME
from coordlab.program import PROGRAM
from coordlab.standing_options import DEFAULT_RUNS

_DURATION = "20s"
"""How long the crashed broker stays down.

After broker.session.timeout.ms (9 s) the controller declares the silent broker dead, and another
broker becomes the coordinator of its groups. The crash lasts longer, so that the user sees this
change before the broker returns.
"""


def break_command(experiment: Experiment, name: str, runs: Path) -> str:
    """Return a command that crashes the coordinator of the first group that has members.

    The coordinator is the broker that manages the group's membership. If no group has members, the
    command crashes broker 0.
    """
    groups = [
        group_id
        for group_id, definition in coordinated_groups(experiment).items()
        if definition.members
    ]
    target = f"coordinator-of({groups[0]})" if groups else "broker(0)"
    words = ["inject", "crash", target, "--duration", _DURATION]
    return _line([*words, *_options_for(name, runs)])


def down_command_line(name: str, runs: Path) -> str:
    """Return the command that ends the cluster."""
    words = ["down"] if name == DEFAULT_NAME else ["down", name]
    return _line([*words, *_runs(runs)])


def up_command_line(
    file: str | None,
    *,
    repeated: Sequence[tuple[str, Sequence[str]]],
    single: Sequence[tuple[str, object]],
    switches: Sequence[tuple[str, bool]],
    duration_us: int | None,
) -> str:
    """Return the command that starts the same cluster again.

    - `repeated`: options that can be given several times, each with the sequence of its values.
    - `single`: options with one value; those whose value is None are left out.
    - `switches`: options without a value, and whether they are on.
    """
    words = ["up", *([] if file is None else [file])]
    # An option with two values gives four words: `--topic a --topic b`.
    for option, values in repeated:
        for value in values:
            words += [option, value]
    for option, value_or_none in single:
        if value_or_none is not None:
            words += [option, str(value_or_none)]
    words += [option for option, is_on in switches if is_on]
    if duration_us is not None:
        # `duration_of` writes the number as a text with a unit, such as `20s`.
        words += ["--duration", duration_of(duration_us)]
    return _line(words)


def _options_for(name: str, runs: Path) -> list[str]:
    """Return the options that name a cluster, without options that have their default values."""
    return [*([] if name == DEFAULT_NAME else ["--name", name]), *_runs(runs)]


def _runs(runs: Path) -> list[str]:
    """Return the option `--runs` and the folder of runs as words; [] for the default folder."""
    return [] if str(runs) == DEFAULT_RUNS else ["--runs", str(runs)]


def _line(words: Sequence[str]) -> str:
    """Return a command line; words with blanks or special characters are quoted for the shell."""
    return f"{PROGRAM} {shlex.join(words)}"
