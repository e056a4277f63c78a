"""Samples of metrics in a random trace: figures that servers write from time to time.

The metrics are like the JMX metrics of Kafka.
"""

import random

from protocol.trace import TraceKind
from tests.support.random_worlds.random_brokers import BROKERS, CONTROLLER
from tests.support.random_worlds.random_world import World

_NAMES = ("NumGroups", "Heartbeat.PurgatorySize", "offset-commit-rate", "partition-load-time-max")
_INTERVAL_MAX_US = 6_000_000
"""The longest time between two samples of a node."""


def sample_metrics(world: World, seed: int) -> None:
    """Let every broker and the controller write samples from now on, as long as they are alive.

    The values and times come from a random generator of their own. So the rest of the trace is the
    same with and without metrics.
    """
    rng = random.Random(f"metrics of {seed}")
    for node in (*BROKERS, CONTROLLER):
        _sample_later(world, rng, node)


def _sample_later(world: World, rng: random.Random, node: str) -> None:
    """Plan the next sample of a node. Each sample plans the following sample."""

    def sample() -> None:
        if world.active((node,)):
            # A broker writes one row for each of its parts, so two rows have the same time. Each
            # metric is left out now and then, so some rows are empty.
            for names in (_NAMES[:2], _NAMES[2:]):
                detail: dict[str, object] = {
                    name: _value(rng) for name in names if rng.random() < 0.8
                }
                world.add(node, TraceKind.METRICS, detail=detail or None)
        _sample_later(world, rng, node)

    world.later(rng.randint(1, _INTERVAL_MAX_US), sample)


def _value(rng: random.Random) -> float | None:
    """Return a random value of a metric. None means that the metric has no value yet."""
    return rng.choice((0, rng.randint(1, 10**12), round(rng.uniform(0, 100), 6), 1e-06, None))
