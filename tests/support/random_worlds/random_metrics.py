"""Samples of metrics in a random trace: of live brokers and controllers."""

import random

from protocol.trace import TraceKind
from tests.support.random_worlds.random_brokers import BROKERS, CONTROLLER
from tests.support.random_worlds.random_world import World

_NAMES = ("NumGroups", "Heartbeat.PurgatorySize", "offset-commit-rate", "partition-load-time-max")
_LONGEST_US = 6_000_000


def sample_metrics(world: World, seed: int) -> None:
    """Let every server of the world write samples from now on.

    Values and times are drawn from a stream of their own, so that the rest of the trace is
    unchanged.
    """
    rng = random.Random(f"metrics of {seed}")
    for node in (*BROKERS, CONTROLLER):
        _sample_later(world, rng, node)


def _sample_later(world: World, rng: random.Random, node: str) -> None:
    def sample() -> None:
        if node in world.moving((node,)):
            # Two rows of one time: a broker writes one for each of its parts. A row may be empty.
            for names in (_NAMES[:2], _NAMES[2:]):
                detail: dict[str, object] = {
                    name: _value(rng) for name in names if rng.random() < 0.8
                }
                world.add(node, TraceKind.METRICS, detail=detail or None)
        _sample_later(world, rng, node)

    world.later(rng.randint(1, _LONGEST_US), sample)


def _value(rng: random.Random) -> float | None:
    return rng.choice((0, rng.randint(1, 10**12), round(rng.uniform(0, 100), 6), 1e-06, None))
