"""`up`: starts a standing cluster, which stays until the user ends it.

The command runs in the foreground and shows the cluster. From another terminal the user breaks the
cluster with `inject`, repairs it with `heal`, asks for its state with `status`, and ends it with
`down`. These commands find the cluster by its name. When the cluster has ended, `up` prints a
verdict and writes a report, as `run` does.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click
from rich.console import Console
from rich.text import Text

from chaos.results.run_directory import RunDirectory, create_run_directory
from chaos.run.plan import plan_of
from chaos.standing.claim import ClaimedName
from chaos.standing.definition import Flags, StandingDefinition, define
from chaos.standing.mailbox import Mailbox
from chaos.standing.messages import DownAnswer, DownRequest, StatusAnswer
from chaos.standing.ports import check_ports, is_loopback
from chaos.standing.stand import Stood, stand
from cluster.runtime import RowObserver, Runtime
from cluster.spec import ListenerSpec
from coordlab.commands.run.play import LOCAL, RAY, make_runtime
from coordlab.commands.up.hints import break_command, down_command_line, up_command_line
from coordlab.options import (
    gather_into,
    master_option,
    ray_address_option,
    runs_option,
    var_option,
    with_examples,
)
from coordlab.parameters import DurationParam, OneOf
from coordlab.program import EXIT_CODES_HELP, to_paste
from coordlab.signals import ask_on_first_ctrl_c, terminate_as_ctrl_c
from coordlab.views.standing_view import standing_view

RUNTIMES = (LOCAL, RAY)
MAX_BROKERS = 100
"""The largest number of brokers. An experiment file has the same limit for `cluster.brokers`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpOptions:
    """The argument and options of `up`.

    - `file`: the experiment whose cluster is started; None: a cluster from the other options.
    - `name`: the cluster's name; None: the name in the file, or the default name.
    - `play`: True to carry out the file's plan of faults.
    - `duration_us`: how long the cluster stays after its brokers have begun to serve; None: until
      the user ends it.
    - `listen`, `port`: the address at which the brokers accept clients.
    - `advertise`: the host to which brokers tell clients to connect; None: the host of `listen`.
    """

    file: str | None
    name: str | None
    runtime: str
    brokers: int | None
    topic: tuple[str, ...]
    group: tuple[str, ...]
    producer: tuple[str, ...]
    var: tuple[str, ...]
    play: bool
    duration_us: int | None
    listen: str | None
    port: int
    advertise: str | None
    seed: int
    runs: Path
    ray_address: str
    trace: bool
    analyze: bool
    report: bool
    master: str | None


@click.command(
    "up",
    cls=with_examples(
        "up",
        "up --topic orders:6 --group readers:orders:3 --producer orders:100",
        "up coordinator_crash --play --duration 2m",
        "up --name blue --port 9092 --var cluster.config.group.initial.rebalance.delay.ms=0",
    ),
    epilog=EXIT_CODES_HELP,
)
@click.argument("file", required=False)
@click.option("--name", metavar="NAME", help="The cluster's name; default: the file's, or `lab`.")
@click.option(
    "--runtime",
    type=OneOf(RUNTIMES),
    default=LOCAL,
    show_default=True,
    metavar="|".join(RUNTIMES),
    help="All brokers in this process, or real processes on Ray.",
)
@click.option(
    "--brokers",
    type=click.IntRange(min=1, max=MAX_BROKERS),
    metavar="N",
    help="Number of brokers; default: the file's, or 3.",
)
@click.option(
    "--topic",
    metavar="NAME[:PARTITIONS[:REPLICATION]]",
    multiple=True,
    help="A topic; default 6 partitions, on 3 brokers each.",
)
@click.option(
    "--group",
    metavar="NAME:TOPIC[,TOPIC][:MEMBERS]",
    multiple=True,
    help="A group of the lab's own consumers; default 3 members. Topics that are missing are made.",
)
@click.option(
    "--producer",
    metavar="TOPIC[:RECORDS_PER_SECOND]",
    multiple=True,
    help="A producer of the lab's own; default 100 records a second.",
)
@var_option
@click.option("--play", is_flag=True, help="Carry out the file's plan, from the steady state on.")
@click.option(
    "--duration",
    "duration_us",
    type=DurationParam(),
    help="Go down by itself so long after the brokers serve, e.g. `90s`; default: when told to.",
)
@click.option(
    "--listen",
    metavar="HOST",
    help="Address at which brokers listen for clients; default: this machine alone.",
)
@click.option(
    "--port",
    type=click.IntRange(min=0, max=65_535),
    default=0,
    metavar="N",
    help="Port of the first broker, the others' follow; default: free ports.",
)
@click.option(
    "--advertise",
    metavar="HOST",
    help="Host that clients are told to connect to; default: the address that brokers listen at.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Seed of every random choice.",
)
@runs_option
@ray_address_option
@click.option(
    "--trace/--no-trace",
    default=True,
    show_default=True,
    help="Write every message into the trace, or events only.",
)
@click.option(
    "--analyze/--no-analyze",
    default=True,
    show_default=True,
    help="Make tables with Spark when the cluster has gone down; the summary needs none.",
)
@click.option(
    "--report/--no-report",
    default=True,
    show_default=True,
    help="Write report.html into the run directory after the analysis.",
)
@master_option
@gather_into(UpOptions)
def up_command(options: UpOptions) -> int:
    """Start a cluster that stays until it is ended, and show it; break it from another terminal.

    FILE is a name that `list` shows, or a file: its cluster, topics, groups and producers, and with
    --play its plan. Options change it, or make a cluster without one. Ctrl-C, `down` and SIGTERM
    heal everything, judge the trace and write the report; a second Ctrl-C ends that.
    """
    console = Console()
    flags = Flags(
        brokers=options.brokers,
        topics=options.topic,
        groups=options.group,
        producers=options.producer,
        overrides=options.var,
    )
    definition = define(options.file, flags, name=options.name, plays=options.play)
    listener = ListenerSpec(
        host=options.listen, first_port=options.port, advertised_host=options.advertise
    )
    check_ports(listener, definition.experiment.cluster.brokers)
    for unwise in definition.warnings:
        console.print(Text(f"unwise: {unwise}", style="yellow"), soft_wrap=True)
    if not is_loopback(options.listen):
        warning = (
            f"unsafe: brokers listen at {options.listen} without TLS and passwords: every program "
            "that reaches this address can read and write all of the cluster"
        )
        console.print(Text(warning, style="yellow"), soft_wrap=True)
    with terminate_as_ctrl_c():
        return _run_until_ended(options, definition, listener, console)


def _run_until_ended(
    options: UpOptions, definition: StandingDefinition, listener: ListenerSpec, console: Console
) -> int:
    """Run the cluster until it is ended, and return the exit code.

    1. Claim the cluster's name. From now on other commands find the cluster, and no second cluster
       can take the name.
    2. Create the run directory.
    3. Start the cluster. When the brokers serve, print their addresses.
    4. Let it run until `down`, Ctrl-C, SIGTERM or the end of the duration.
    5. Print the verdict, write the report, and answer the command `down`.

    Raises: NameTaken, or NotARun if the directory cannot be made. At this time nothing has been
        started. NotRecorded if the run could not be recorded.
    """
    experiment = definition.experiment
    mailbox = Mailbox()  # other commands put their requests into it, and the run takes them out
    with ClaimedName(
        options.runs, experiment.name, runtime=options.runtime, mailbox=mailbox
    ) as claimed:
        # An earlier cluster with this name may have died without giving the name back.
        for dead_cluster in claimed.died:
            console.print(Text(str(dead_cluster)), soft_wrap=True)
        directory = create_run_directory(
            options.runs,
            experiment,
            plan_of(experiment),
            seed=options.seed,
            runtime=options.runtime,
            replay=_command_line(options),
            experiment_file=None if definition.path is None else str(definition.path),
        )
        claimed.publish(run_directory=directory.path)  # the brokers' addresses follow later
        # The part of the answers to `status` that never changes. For each answer, the run fills in
        # the other fields, such as the stage and the time, which are placeholders here.
        identity = StatusAnswer(
            name=experiment.name,
            run_directory=str(directory.path),
            runtime=options.runtime,
            pid=os.getpid(),
            stage="",
            time_us=0,
        )

        def make_cluster_runtime(observers: Sequence[RowObserver]) -> Runtime:
            """Return a runtime that passes each row of the trace to `observers`."""
            return make_runtime(
                experiment,
                directory,
                observers,
                ray_address=options.ray_address,
                trace_messages=options.trace,
                listener=listener,
            )

        def announce_that_brokers_serve(runtime: Runtime, _at_us: int) -> None:
            """Tell other commands and the user the addresses at which the brokers serve.

            The user also gets a command that breaks the cluster, and a command that ends it.
            """
            bootstrap = runtime.bootstrap_servers()
            claimed.publish(run_directory=directory.path, bootstrap=bootstrap)
            lines = []
            if bootstrap:
                lines.append(f"bootstrap servers: {','.join(bootstrap)}")
            crash_command = break_command(experiment, experiment.name, options.runs)
            lines.append(f"break it: {to_paste(crash_command)}")
            down_command = down_command_line(experiment.name, options.runs)
            lines.append(f"end it: Ctrl-C, or {to_paste(down_command)}")
            for line in lines:
                console.print(Text(line), soft_wrap=True)

        with standing_view(console, experiment.name, options.runtime) as view:
            stood = stand(
                experiment,
                directory,
                make_cluster_runtime,
                mailbox,
                identity=identity,
                duration_us=options.duration_us,
                progress=view,
                on_serving=announce_that_brokers_serve,
                # While the brokers serve, a Ctrl-C does the same as the command `down`.
                while_serving=ask_on_first_ctrl_c(lambda: mailbox.ask(DownRequest())),
            )
        return _print_verdict_and_answer_down(options, directory, stood, claimed, console)


def _print_verdict_and_answer_down(
    options: UpOptions,
    directory: RunDirectory,
    stood: Stood,
    claimed: ClaimedName,
    console: Console,
) -> int:
    """Print the verdict, write the report, and answer the commands `down` that wait for both."""
    # This import takes a while. It comes so late because the brokers should serve as soon as
    # possible.
    from coordlab.commands.run.conclusion import conclude_run  # noqa: PLC0415

    results = stood.results
    notes: tuple[str, ...] = ()
    if stood.unseen_groups:
        notes = (
            "clients from outside joined " + ", ".join(stood.unseen_groups) + ": what brokers and "
            "coordinators did is judged, what happens inside these clients is not seen",
        )
    report: Path | None = None
    try:
        report = conclude_run(
            console,
            directory,
            results,
            analyze=options.analyze,
            report=options.report,
            master=options.master,
        )
        for note in notes:
            console.print(Text(note), soft_wrap=True)
    finally:
        # A command `down` waits for this answer. So it must get an answer even if the report fails.
        claimed.conclude(
            DownAnswer(
                exit_code=results.exit_code,
                outcome=results.outcome,
                verdict=results.verdict,
                reasons=results.reasons,
                run_directory=str(directory.path),
                report=None if report is None else str(report),
                notes=notes,
            )
        )
    return results.exit_code


def _command_line(options: UpOptions) -> str:
    """Return the command that starts the same cluster again.

    Options that have their default values are left out. For this, they are passed on as None or (),
    and `up_command_line` drops them.
    """
    return up_command_line(
        options.file,
        repeated=(
            ("--topic", options.topic),
            ("--group", options.group),
            ("--producer", options.producer),
            ("--var", options.var),
        ),
        single=(
            ("--name", options.name),
            ("--runtime", None if options.runtime == LOCAL else options.runtime),
            ("--brokers", options.brokers),
            ("--listen", options.listen),
            ("--port", options.port or None),
            ("--advertise", options.advertise),
            ("--seed", options.seed or None),
            ("--ray-address", None if options.ray_address == "local" else options.ray_address),
        ),
        switches=(("--play", options.play), ("--no-trace", not options.trace)),
        duration_us=options.duration_us,
    )
