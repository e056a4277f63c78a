"""The command line: which commands there are, and how every error of theirs ends."""

import traceback
from collections.abc import Sequence

import click
from rich.console import Console
from rich.markup import escape

from chaos.conformance.transcript import TranscriptError
from chaos.exploration.store import CannotResume, NotAnExploration
from chaos.problems import ExperimentError
from chaos.run_directory import NotARun
from chaos.verdict import (
    EXIT_BAD_ARGUMENTS,
    EXIT_INTERNAL_ERROR,
    EXIT_INTERRUPTED,
    EXIT_PASS,
)
from cluster.fan_out import WorkersFailed
from cluster.runtime import ClusterStartError
from coordlab.analysis import NoJava
from coordlab.commands.analyze import analyze_command
from coordlab.commands.conform import conform_command
from coordlab.commands.diff import diff_command
from coordlab.commands.doctor import doctor_command
from coordlab.commands.explore import explore_command
from coordlab.commands.groups import groups_command
from coordlab.commands.init import init_command
from coordlab.commands.listing import list_command
from coordlab.commands.options import EXIT_CODES_HELP, PROGRAM
from coordlab.commands.replay import replay_command
from coordlab.commands.report import report_command
from coordlab.commands.run import run_command
from coordlab.commands.schema import schema_command
from coordlab.commands.shrink import shrink_command
from coordlab.commands.validate import validate_command
from coordlab.junit import JunitNotWritable

HELP_WIDTH = 100


def run_cli(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code; every error ends here, told once."""
    errors = Console(stderr=True)
    try:
        code = app.main(list(arguments), prog_name=PROGRAM, standalone_mode=False)
    except (ExperimentError, TranscriptError) as error:
        for problem in error.problems:
            errors.print(escape(str(problem)), highlight=False, soft_wrap=True)
        return EXIT_BAD_ARGUMENTS
    except (NotARun, NotAnExploration, CannotResume, JunitNotWritable, NoJava) as error:
        errors.print(escape(str(error)), highlight=False, soft_wrap=True)
        return EXIT_BAD_ARGUMENTS
    except click.ClickException as error:
        error.show()
        return EXIT_BAD_ARGUMENTS
    except (click.Abort, KeyboardInterrupt):
        errors.print("interrupted")
        return EXIT_INTERRUPTED
    except ClusterStartError as error:
        errors.print(f"the cluster could not be started: {escape(str(error))}", soft_wrap=True)
        return EXIT_INTERNAL_ERROR
    except WorkersFailed as error:
        errors.print(f"no worker could be kept alive: {escape(str(error))}", soft_wrap=True)
        return EXIT_INTERNAL_ERROR
    except Exception:
        errors.print("coordlab itself failed; this says nothing about Kafka:")
        errors.print(escape(traceback.format_exc()), highlight=False)
        return EXIT_INTERNAL_ERROR
    return code if isinstance(code, int) else EXIT_PASS


@click.group(
    epilog=EXIT_CODES_HELP,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": HELP_WIDTH},
)
@click.version_option(package_name="coordlab")
def app() -> None:
    """Break a Kafka-style cluster on purpose and see what its consumer groups lived through.

    A chaos lab for group coordination: an experiment file goes in, a cluster runs on Ray or in
    virtual time, faults hit it, and every phase of the failover is measured.
    """


for command in (
    run_command,
    explore_command,
    replay_command,
    diff_command,
    shrink_command,
    groups_command,
    analyze_command,
    report_command,
    list_command,
    init_command,
    validate_command,
    schema_command,
    conform_command,
    doctor_command,
):
    app.add_command(command)
