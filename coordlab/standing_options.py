"""Options and functions that the commands `inject`, `heal`, `status` and `down` share.

Each of these commands sends a request to a cluster that `up` has started. The cluster answers the
request, or refuses it if it cannot be carried out. A user types these commands while watching the
cluster, so they must start fast. That is why the commands and this module import little.
"""

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click

from chaos.standing.messages import Answer, OrderRefusal, Request
from chaos.standing.registry import FOLDER, NoCluster, find_cluster
from coordlab.program import called_as

DEFAULT_RUNS = "runs"
"""The default folder of run directories.

`coordlab.options` has the same default, but importing that module would take too long.
"""
AnswerT = TypeVar("AnswerT")
Command = TypeVar("Command", bound=Callable[..., int])

runs_of_cluster_option = click.option(
    "--runs",
    type=click.Path(path_type=Path, file_okay=False),
    default=DEFAULT_RUNS,
    show_default=True,
    help=f"Folder of the run directories; `{FOLDER}` in it names the clusters that are up.",
)
name_option = click.option(
    "--name",
    metavar="NAME",
    help="The cluster; default: the only one that is up, or `lab`.",
)

EXIT_CODES_OF_REQUESTS = (
    "Exit codes: 0 done, 2 nothing was done because the target is nothing now, 254 bad arguments, "
    "or no such cluster is up, 255 internal error."
)


class Refused(Exception):
    """The cluster has refused a request."""

    def __init__(self, refusal: OrderRefusal) -> None:
        super().__init__("; ".join(refusal.problems))
        self.refusal = refusal


def ask_cluster(runs: Path, name: str | None, request: Request, expected: type[AnswerT]) -> AnswerT:
    """Send a request to a cluster, and return its answer.

    If other clusters have died without going down, print a line about each of them.

    - `runs`: the folder in which clusters note their names and ports.
    - `name`: the cluster; None for the only cluster that is up, or for the default name.
    - `expected`: the type of the answer.

    Raises: NoCluster if the cluster is not up, SilentCluster if it does not answer, Refused if it
    refuses the request.
    """
    try:
        cluster, dead_clusters = find_cluster(runs, name)
    except NoCluster as error:
        # If some cluster is up, the user should name it, and not start another cluster.
        if not error.none_is_up:
            raise
        raise NoCluster(f"{error}: `{called_as()} up` starts one") from error
    for dead_cluster in dead_clusters:
        click.echo(str(dead_cluster), err=True)
    answer: Answer = cluster.ask(request)
    if isinstance(answer, OrderRefusal):
        raise Refused(answer)
    # An answer of another type is a bug in `up`, or comes from another version of `up`.
    if not isinstance(answer, expected):
        raise TypeError(f"expected {expected.__name__} of {cluster.name}, got {answer!r}")
    return answer


def handles_refusal(command: Command) -> Callable[..., int]:
    """Decorate a command: if the cluster refuses its request, print why, and end the command.

    The command then ends with the exit code of the refusal.
    """

    @functools.wraps(command)
    def command_or_refusal(*args: object, **kwargs: object) -> int:
        try:
            return command(*args, **kwargs)
        except Refused as refused:
            for problem in refused.refusal.problems:
                click.echo(problem, err=True)
            sys.stderr.flush()
            return refused.refusal.exit_code

    return command_or_refusal
