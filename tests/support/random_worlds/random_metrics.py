"""Samples of metrics (figures such as Kafka's JMX metrics) of servers in a random trace."""

import random

from protocol.trace import TraceKind
from tests.support.random_worlds.random_brokers import BROKERS, CONTROLLER
from tests.support.random_worlds.random_world import World

_NAMES = ("NumGroups", "Heartbeat.PurgatorySize", "offset-commit-rate", "partition-load-time-max")
_LONGEST_US = 6_000_000
"""Longest time between two samples of a node."""


def sample_metrics(world: World, seed: int) -> None:
    """Let every broker and the controller write samples from now on, while they are up.

    Values and times are drawn from a random generator of their own. Thus the rest of the trace is
    the same with and without metrics.
    """
    rng = random.Random(f"metrics of {seed}")
    for node in (*BROKERS, CONTROLLER):
        _sample_later(world, rng, node)


def _sample_later(world: World, rng: random.Random, node: str) -> None:
    """Plan the next sample of a node, which plans the one after it."""

    def sample() -> None:
        if node in world.moving((node,)):
            # Two rows with the same time: a broker writes one for each of its parts. Some rows are
            # empty.
            for names in (_NAMES[:2], _NAMES[2:]):
                detail: dict[str, object] = {
                    name: _value(rng) for name in names if rng.random() < 0.8
                }
                world.add(node, TraceKind.METRICS, detail=detail or None)
        _sample_later(world, rng, node)

    world.later(rng.randint(1, _LONGEST_US), sample)


def _value(rng: random.Random) -> float | None:
    """Return the value of a metric; None: it has none."""
    return rng.choice((0, rng.randint(1, 10**12), round(rng.uniform(0, 100), 6), 1e-06, None))
