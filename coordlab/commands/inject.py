"""`inject`: injects a fault into a cluster that `up` has started.

Faults, targets and arguments have the same names as in experiment files. The request goes to the
process of `up`. This process checks the request, injects the fault, and answers with the fault's
entry in its journal.
"""

from pathlib import Path

import click
import yaml

from chaos.standing.messages import InjectAnswer, InjectRequest
from coordlab.options import with_examples
from coordlab.standing_options import (
    EXIT_CODES_OF_REQUESTS,
    ask_cluster,
    handles_refusal,
    name_option,
    runs_of_cluster_option,
)
from results_schema.journal import JournalEntry


@click.command(
    "inject",
    cls=with_examples(
        "inject crash 'coordinator-of(payments)' --duration 20s",
        "inject crash --duration 20s --coordinator-of payments",
        "inject cut --from 'broker(0)' --to controller --duration 15s",
        "inject slow --from clients --to brokers --arg delay=200ms --wait --duration 10s",
        "inject leadership_move 'coordinator-of(payments)' --name lab",
    ),
    epilog=EXIT_CODES_OF_REQUESTS,
)
@click.argument("fault")
@click.argument("target", required=False)
@click.option(
    "--coordinator-of",
    "coordinator_of",
    metavar="GROUP",
    help="The same as the target `coordinator-of(GROUP)`.",
)
@click.option("--from", "from_", metavar="TARGET", multiple=True, help="Of links: one end.")
@click.option("--to", metavar="TARGET", multiple=True, help="Of links: the other end.")
@click.option(
    "--duration",
    metavar="DURATION",
    help="How long it lasts, e.g. `20s`; default: until it is healed, or the cluster goes down.",
)
@click.option(
    "--arg",
    "args",
    metavar="KEY=VALUE",
    multiple=True,
    help="What the fault takes beside, e.g. `disk=empty`.",
)
@click.option("--wait", is_flag=True, help="Return when the fault is over, not when it began.")
@name_option
@runs_of_cluster_option
@handles_refusal
def inject_command(
    fault: str,
    target: str | None,
    coordinator_of: str | None,
    from_: tuple[str, ...],
    to: tuple[str, ...],
    duration: str | None,
    args: tuple[str, ...],
    wait: bool,
    name: str | None,
    runs: Path,
) -> int:
    """Inject a fault into a cluster that is up.

    FAULT and TARGET are those of experiment files: docs/generated/faults.md lists them.
    """
    if coordinator_of is not None:
        if target is not None:
            raise click.UsageError("expected one of TARGET and --coordinator-of, got both")
        target = f"coordinator-of({coordinator_of})"
    request = InjectRequest(
        fault=fault,
        target=target,
        from_=from_,
        to=to,
        duration=duration,
        args=dict(map(_key_and_value, args)),
        waits=wait,
    )
    answer = ask_cluster(runs, name, request, InjectAnswer)
    for warning in answer.warnings:
        click.echo(f"unwise: {warning}", err=True)
    click.echo(injected_line(answer.fault))
    return 0


def injected_line(fault: JournalEntry) -> str:
    """Return a line about an injected fault, with the nodes that it has hit, and its duration.

    An example is `crash-0: crash of broker(0) hit broker-0; in force for 20 s`.
    """
    line = f"{fault.fault_id}: {fault.fault} of {fault.target} hit {fault.hit}"
    if fault.momentary:  # such as a moved leadership: nothing is left that could be healed
        return f"{line}; done"
    if fault.healed_at_us is not None:  # with --wait, the command has waited for the healing
        return f"{line}; over"
    if fault.duration_us is not None:
        return f"{line}; in force for {fault.duration_us / 1e6:g} s"
    return f"{line}; in force until `heal {fault.fault_id}`"


def _key_and_value(text: str) -> tuple[str, object]:
    """Return the key and the value of a text such as `disk=empty`. The value is read as YAML."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise click.BadParameter(f"expected `key=value`, got `{text}`", param_hint="`--arg`")
    try:
        return key, yaml.safe_load(value)
    except (yaml.YAMLError, ValueError, RecursionError):
        # This is no YAML. An impossible date such as `2026-13-01` gives a ValueError, and brackets
        # that are nested too deeply give a RecursionError. The value is sent as text. The cluster
        # refuses it, and says what it expects.
        return key, value
