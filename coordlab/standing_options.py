"""Options and errors of the commands that ask a standing cluster: inject, heal, status, down.

A standing cluster is one that `coordlab up` keeps running. Its process answers the requests of
these commands, and refuses a request that cannot be carried out. These commands must start fast,
because a person watches the cluster while typing them. So they import neither the runner (the code
that conducts a run) nor a runtime.
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
"""The same default as that of `coordlab.options.runs_option`, which imports too much."""
A = TypeVar("A")  # type of a request's answer
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

NO_CLUSTER_HELP = (
    "Exit codes: 0 done, 2 nothing was done because the target is nothing now, 254 bad arguments, "
    "or no such cluster is up, 255 internal error."
)


class Refused(Exception):
    """A request that the cluster refused."""

    def __init__(self, refusal: OrderRefusal) -> None:
        super().__init__("; ".join(refusal.problems))
        self.refusal = refusal


def ask_cluster(runs: Path, name: str | None, request: Request, expected: type[A]) -> A:
    """Send a request to a cluster, and return the cluster's answer.

    Print a notice for each cluster of the folder `runs` whose process has died.

    - `name`: the cluster; None: the only one that is up, or the one with the default name.
    - `expected`: the type of the answer.

    Raises: NoCluster if it is not up, SilentCluster if it does not answer, Refused if it refuses
    the request.
    """
    try:
        cluster, died = find_cluster(runs, name)
    except NoCluster as error:
        # If clusters are up, the user must name one of them. `up` would be the wrong advice.
        if not error.none_is_up:
            raise
        raise NoCluster(f"{error}: `{called_as()} up` starts one") from error
    for notice in died:
        click.echo(str(notice), err=True)
    answer: Answer = cluster.ask(request)
    if isinstance(answer, OrderRefusal):
        raise Refused(answer)
    # Each request has one type of answer. Another type is a bug in `up`, or another version of it.
    if not isinstance(answer, expected):
        raise TypeError(f"expected {expected.__name__} of {cluster.name}, got {answer!r}")
    return answer


def ends_with_refusal(command: Command) -> Callable[..., int]:
    """Return `command` with a handler of Refused, which prints the problems and returns a code.

    The code is the exit code that the cluster's refusal contains.
    """

    @functools.wraps(command)
    def refused_or_done(*args: object, **kwargs: object) -> int:
        try:
            return command(*args, **kwargs)
        except Refused as refused:
            for problem in refused.refusal.problems:
                click.echo(problem, err=True)
            sys.stderr.flush()
            return refused.refusal.exit_code

    return refused_or_done
