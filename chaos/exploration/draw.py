"""From a seed to a schedule: sizes, settings and faults, each from a stream of its own.

DRAFT. Data flow: (Space, seed) -> Experiment with an explicit plan.
"""

from random import Random
from typing import Any

import msgspec

from chaos.experiment import Experiment, FaultDefinition, microseconds
from chaos.exploration.space import Space
from chaos.faults.registry import FAULT_KINDS
from cluster.randomness import stream


def draw(space: Space, seed: int) -> Experiment:
    """Return the experiment that `seed` means in `space`; the same in every process."""
    document = msgspec.json.decode(msgspec.json.encode(space.experiment))
    for path, values in space.settings.items():
        value = stream(seed, "setting", path).choice(values)
        _put(document, path, value)
    document |= {
        "version": 1,
        "name": f"{space.name}-{seed}",
        "question": space.question,
        "expect": "No promise is broken.",
    }
    experiment = msgspec.convert(document, Experiment)
    return msgspec.structs.replace(experiment, faults=_faults(space, experiment, seed))


def _put(document: dict[str, Any], path: str, value: Any) -> None:
    # Kafka's settings have dots themselves: what follows `config.` is one key.
    head, config, tail = path.partition(".config.")
    steps = [*head.split("."), *(["config", tail] if config else [])]
    for step in steps[:-1]:
        document = document.setdefault(step, {})
    document[steps[-1]] = value


def _faults(space: Space, experiment: Experiment, seed: int) -> tuple[FaultDefinition, ...]:
    rng = stream(seed, "faults")
    window_us = microseconds(space.faults.window)
    gap_us = microseconds(rng.choice(space.faults.gaps))
    kinds = [kind for kind in space.faults.kinds if rng.random() < 0.7] or [
        rng.choice(list(space.faults.kinds))
    ]
    faults, index, at_us = [], 0, 0
    while True:
        own = stream(seed, "fault", index)
        at_us += own.randrange(1, 2 * gap_us)
        if at_us >= window_us:
            return tuple(faults)
        faults.append(_fault(space, experiment, kinds, at_us // 1000, own))
        index += 1


def _fault(
    space: Space, experiment: Experiment, kinds: list[str], at_ms: int, rng: Random
) -> FaultDefinition:
    weights = [space.faults.kinds[kind] for kind in kinds]
    name = rng.choices(kinds, weights)[0]
    kind = FAULT_KINDS[name]
    duration = rng.choice(space.faults.durations)
    groups = list(experiment.groups)
    group = rng.choice(groups)
    broker = f"broker({rng.randrange(experiment.cluster.brokers)})"
    member = f"member({group}, {rng.randrange(max(1, experiment.groups[group].members))})"
    coordinator = f"coordinator-of({group})"
    other = rng.choice(["controller", "brokers", "members(" + group + ")", "clients"])
    args: dict[str, Any] = {}
    if kind.has_ends:
        if name == "slow":
            args["delay"] = rng.choice(["20ms", "200ms", "2s"])
        if name != "reset" and rng.random() < 0.3:
            args["direction"] = "one_way"
        return FaultDefinition(
            at=f"{at_ms}ms",
            fault=name,
            from_=rng.choice([coordinator, broker]),
            to=other,
            duration=None if kind.momentary else duration,
            args=args,
        )
    roles = {
        role: target
        for role, target in (
            ("coordinator-of", coordinator),
            ("broker", broker),
            ("any-broker", "any-broker"),
            ("controller", "controller"),
            ("member", member),
            ("leader-member-of", f"leader-member-of({group})"),
        )
        if role in kind.targets
    }
    return FaultDefinition(
        at=f"{at_ms}ms",
        fault=name,
        target=rng.choice(list(roles.values())),
        duration=None if kind.momentary else duration,
        args=args,
    )
