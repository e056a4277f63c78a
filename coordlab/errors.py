"""Prints the error that has ended a command, and decides on the exit code.

This module imports the errors of every package, which takes time. So this module is imported only
after a command has failed.
"""

import traceback

from rich.console import Console
from rich.markup import escape

from chaos.conformance.transcript import TranscriptError
from chaos.experiment.problems import ExperimentError
from chaos.exploration.store import CannotResume, NotAnExploration
from chaos.results.recording import NotRecorded
from chaos.results.run_directory import NotARun
from chaos.standing.control import SilentCluster
from chaos.standing.ports import PortTaken
from chaos.standing.registry import NameTaken, NoCluster
from cluster.disk_errors import is_of_the_disk
from cluster.fan_out import WorkersFailed
from cluster.runtime import ClusterStartError
from coordlab.analysis import NoJava
from coordlab.junit import JunitNotWritable
from results_schema.results import EXIT_BAD_ARGUMENTS, EXIT_INTERNAL_ERROR


def print_error(error: Exception) -> int:
    """Print an error on standard error, and return the exit code.

    A mistake of the user gives EXIT_BAD_ARGUMENTS, and any other error gives EXIT_INTERNAL_ERROR.
    An error that is not listed here is a failure of coordlab, and is printed with its traceback.

    This function must be called in the `except` block of the error. Only there can Python tell the
    traceback of the exception that is being handled.
    """
    console = Console(stderr=True)
    match error:
        # Mistakes of the user.
        case ExperimentError() | TranscriptError():
            for problem in error.problems:
                console.print(escape(str(problem)), highlight=False, soft_wrap=True)
            return EXIT_BAD_ARGUMENTS
        case (
            NotARun()
            | NotAnExploration()
            | CannotResume()
            | JunitNotWritable()
            | NoJava()
            | NoCluster()
            | NameTaken()
            | PortTaken()
        ):
            console.print(escape(str(error)), highlight=False, soft_wrap=True)
            return EXIT_BAD_ARGUMENTS
        # Failures of the machine, such as a full disk.
        case NotRecorded() | SilentCluster():
            console.print(escape(str(error)), highlight=False, soft_wrap=True)
        case OSError() if error.filename is not None and is_of_the_disk(error):
            message = f"{error.filename} cannot be written or read: {error.strerror}"
            console.print(escape(message), highlight=False, soft_wrap=True)
        case ClusterStartError():
            console.print(f"the cluster could not be started: {escape(str(error))}", soft_wrap=True)
        case WorkersFailed():
            console.print(f"no worker could be kept alive: {escape(str(error))}", soft_wrap=True)
        # Anything else.
        case _:
            console.print("coordlab itself failed; this says nothing about Kafka:")
            console.print(escape(traceback.format_exc()), highlight=False)
    return EXIT_INTERNAL_ERROR
