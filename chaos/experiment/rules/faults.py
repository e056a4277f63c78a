"""Rules for the faults of a plan: their targets, ends, arguments and times.

Which keys a fault needs depends on its kind:

- Most kinds have a target, such as `broker(0)`. But a fault of links, such as a cut, has two ends,
  `from` and `to`. Each end has one or more targets.
- Most kinds may have a duration. But a momentary fault, such as the deletion of a topic, must not
  have a duration. A gradual fault, such as a rollout, must not have a duration either, because it
  lasts until its work is done.

In the functions `path` is the fault's place in the file, such as `faults[2]`.
"""

from collections.abc import Iterator
from dataclasses import replace

import msgspec

from chaos.experiment.problems import Problem, one_of
from chaos.experiment.rules.semantic_checks import (
    FILE,
    LONGEST_US,
    check_known,
    problem,
    too_long,
)
from chaos.experiment.schema_errors import shape_problems
from chaos.experiment.structs import Experiment, FaultDefinition, microseconds
from chaos.experiment.yaml_document import item_of
from chaos.faults.base import MEMBER_TARGETS, ZOOKEEPER_TARGETS, FaultKind
from chaos.faults.registry import FAULT_KINDS
from chaos.run.plan import ends_of
from chaos.targets.registry import check_target, split_target


def fault_errors(experiment: Experiment, fault: FaultDefinition, path: str) -> Iterator[Problem]:
    """Yield all reasons for which a fault can never be injected."""
    kind = FAULT_KINDS.get(fault.fault)
    yield from _time_errors(fault, kind, path)
    aim_errors = list(_aim_errors(experiment, fault, kind, path))
    yield from aim_errors
    if kind is None:
        yield from check_known("fault", fault.fault, FAULT_KINDS, f"{path}.fault")
        return
    argument_errors = list(_argument_errors(fault, kind, f"{path}.args"))
    yield from argument_errors
    # The check of the kind itself needs targets that exist, and arguments of the right shape.
    if not aim_errors and not argument_errors:
        for error in kind.check(fault, experiment):
            yield replace(error, path=f"{path}.{error.path}")


def fault_warnings(experiment: Experiment, fault: FaultDefinition, path: str) -> Iterator[Problem]:
    """Yield warnings about a fault."""
    # All warnings are about nodes that come back too early. So they concern only faults with a
    # duration and a target.
    if fault.duration is None or fault.target is None:
        return
    lasts_us = microseconds(fault.duration)
    # If the target has another form, `fault_errors` refuses it, and the role is "" here.
    role, argument = split_target(fault.target) or ("", "")
    if role in MEMBER_TARGETS:
        if fault.fault == "crash":
            yield from _short_member_crash(experiment, fault, argument, f"{path}.duration")
        return
    session_ms = experiment.cluster.config.broker_session_timeout_ms
    # The remaining warnings are about brokers that are away for less than their session timeout,
    # after which the controller counts a silent broker as dead.
    if role in ("controller", *ZOOKEEPER_TARGETS) or lasts_us >= session_ms * 1_000:
        return
    if fault.fault in {"crash", "power_loss"}:
        yield problem(
            f"{path}.duration",
            "the broker cannot register until its old session ends, so it fails over all the same",
            expected=f"more than broker.session.timeout.ms ({session_ms} ms)",
            found=f"`{fault.duration}`",
        )
    elif fault.fault == "pause":
        yield problem(
            f"{path}.duration",
            # If a paused broker runs on within its session timeout, its heartbeats go on in time.
            "the controller may not notice at all",
            expected=f"more than broker.session.timeout.ms ({session_ms} ms)",
            found=f"`{fault.duration}`",
        )


def _short_member_crash(
    experiment: Experiment, fault: FaultDefinition, argument: str, path: str
) -> Iterator[Problem]:
    """Yield a warning about a crash of a member that is shorter than the member's session."""
    group = experiment.groups.get(argument.partition(",")[0].strip())  # `group, index`
    if group is None or group.is_on_zookeeper or fault.duration is None:
        return
    # A static member (with a `group.instance.id`) gets its old place back when it restarts, so the
    # group does not wait.
    if group.config.group_instance_id is not None:
        return
    session_ms = group.config.session_timeout_ms
    if microseconds(fault.duration) < session_ms * 1_000:
        yield problem(
            path,
            "it joins again, under a new member id, before its old one expires: all members wait "
            "until then, in one long rebalance",
            expected=f"more than session.timeout.ms ({session_ms} ms)",
            found=f"`{fault.duration}`",
        )


def _time_errors(fault: FaultDefinition, kind: FaultKind | None, path: str) -> Iterator[Problem]:
    """Yield errors of `at`, `duration`, `every` and `repeat`."""
    for field in ("at", "duration", "every"):
        duration = getattr(fault, field)
        if duration is not None:
            yield from too_long(duration, f"{path}.{field}")

    ends_by_itself = kind is not None and (kind.momentary or kind.is_gradual)
    # `kind is not None` follows from `ends_by_itself`, and is only for the type checker.
    if fault.duration is not None and ends_by_itself and kind is not None:
        why = "is done in a moment" if kind.momentary else "takes as long as it takes"
        yield problem(
            f"{path}.duration",
            f"`{fault.fault}` {why} and has no duration",
            expected="no such key",
            found=f"`{fault.duration}`",
        )

    # `every` and `repeat` belong together.
    if fault.every is None:
        if fault.repeat is not None and fault.repeat > 1:
            yield problem(
                f"{path}.every", "is missing beside `repeat`", expected="a duration such as `20s`"
            )
        return
    if fault.repeat is None:
        yield problem(
            f"{path}.repeat", "is missing beside `every`", expected="how often in all, e.g. `3`"
        )
        return

    every_us = microseconds(fault.every)
    if every_us == 0:
        yield problem(
            f"{path}.every",
            "is not allowed",
            expected="more than nothing",
            found=f"`{fault.every}`",
        )
        return
    # LONGEST_US is 24 hours. The last injection comes `repeat - 1` times `every` after the first.
    if microseconds(fault.at) + every_us * (fault.repeat - 1) > LONGEST_US:
        yield problem(
            f"{path}.repeat", "the last one would be too late", expected="all within `24h`"
        )

    # The remaining rules are for a repeated fault with a duration: two of its injections must not
    # overlap in time.
    if kind is None or kind.momentary or kind.is_gradual or fault.repeat == 1:
        return
    if fault.duration is None:
        yield problem(
            f"{path}.duration",
            "is missing beside `every`: without one the first injection lasts until the end",
            expected=f"at most `{fault.every}`, the length of `every`",
        )
    elif microseconds(fault.duration) > every_us:
        yield problem(
            f"{path}.duration",
            "the next injection would begin before this one is healed",
            expected=f"at most `{fault.every}`, the length of `every`",
            found=f"`{fault.duration}`",
        )


def _aim_errors(
    experiment: Experiment, fault: FaultDefinition, kind: FaultKind | None, path: str
) -> Iterator[Problem]:
    """Yield the errors of a fault's target, or of its two ends."""
    ends = (("from", ends_of(fault.from_)), ("to", ends_of(fault.to)))
    given = [name for name, targets in ends if targets]  # the ends that the file has
    # If the kind of fault is unknown, only the keys can show whether it was meant to have two ends.
    has_ends = kind.has_ends if kind is not None else bool(given) and fault.target is None
    if has_ends:
        if fault.target is not None:
            yield problem(
                f"{path}.target",
                f"`{fault.fault}` is a fault of links: it has two ends and no target",
                expected="`from` and `to`",
                found=f"`{fault.target}`",
            )
        for name, targets in ends:
            # If the fault has a target and no ends, the error above asks for both ends already.
            if not targets and (fault.target is None or given):
                yield problem(
                    f"{path}.{name}", "is missing", expected="a target, or a list of targets"
                )
            # A single target may stand in the file without a list. Its path has no index then.
            value = fault.from_ if name == "from" else fault.to
            for index, target in enumerate(targets):
                target_path = f"{path}.{name}" + ("" if isinstance(value, str) else f"[{index}]")
                yield from _target_errors(experiment, target, kind, target_path)
        return

    for name in given:
        yield problem(
            f"{path}.{name}",
            f"`{fault.fault}` is no fault of links",
            expected="`target`" if fault.target is None else "no such key beside `target`",
        )
    if fault.target is not None:
        yield from _target_errors(experiment, fault.target, kind, f"{path}.target")
    elif not given:
        yield problem(f"{path}.target", "is missing", expected="a target such as `broker(0)`")


def _target_errors(
    experiment: Experiment, target: str, kind: FaultKind | None, path: str
) -> Iterator[Problem]:
    """Yield an error if a target can never exist, or if this kind of fault cannot have it."""
    unknown = check_target(target, experiment)
    if unknown is not None:
        yield problem(
            path,
            unknown.message,
            expected=unknown.expected,
            near_miss=unknown.near_miss,
            found=f"`{target}`",
        )
        return
    role, _ = split_target(target) or ("", "")  # never None, because `check_target` found no error
    # If the kind of fault is unknown, its allowed roles are not known either.
    if kind is not None and role not in kind.targets:
        yield problem(
            path,
            f"`{kind.name}` cannot be aimed at it",
            expected=one_of(kind.targets),
            found=f"`{role}`",
        )


def _argument_errors(fault: FaultDefinition, kind: FaultKind, path: str) -> Iterator[Problem]:
    """Yield errors of arguments that the fault's struct does not allow."""
    if msgspec.structs.fields(kind.args_type):
        yield from shape_problems(item_of(fault.args), kind.args_type, FILE, path)
        return
    for name in fault.args:
        yield problem(
            f"{path}.{name}",
            "unknown key",
            expected=f"no arguments: `{kind.name}` takes none",
        )
