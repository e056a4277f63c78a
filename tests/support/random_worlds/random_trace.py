"""Random but plausible traces, for comparing Spark's tables with plain Python.

A trace has the recorded events of a run, one row each. These traces come from a simple simulation
of a cluster, not from the cluster itself. A controller elects leaders. Brokers load and unload
groups. Consumers send requests to the brokers that they consider coordinators. Faults hit or miss,
overlap, and are not always healed. Rows follow each other as in a real trace.

Every next step is random, so that the traces have cases that no hand-written trace has:
simultaneous rows, answers that never come, two coordinators of one group, a broker that is elected
again, nodes that were restarted, interrupted runs.
"""

import random

from protocol.trace import TraceRow
from tests.support.random_worlds.random_brokers import (
    BROKERS,
    CONTROLLER,
    GROUPS,
    Brokers,
    offsets_partition,
)
from tests.support.random_worlds.random_consumers import ADMIN, CONSUMERS, PRODUCER, Consumers
from tests.support.random_worlds.random_faults import Faults, spontaneous_election
from tests.support.random_worlds.random_metrics import sample_metrics
from tests.support.random_worlds.random_world import Life, World

_STEPS_US = (0, 1, 900, 15_000, 15_000, 120_000, 400_000)
"""Times that may pass between two events. If it is 0, rows have equal times."""
_SKEW_US = 4_000
"""Largest difference of a node's clock from the run's."""


def random_run(seed: int) -> list[TraceRow]:
    """Return the trace of a random run, in the order in which its rows were written.

    `seq` counts from 0 in each incarnation of a node (its life between two restarts), and the time
    never decreases within an incarnation. In some runs the clocks of nodes differ, or have a
    resolution of 50 ms. Some runs have no rows of messages, some are interrupted, some have no
    fault, and some continue after the stage `stopping`.
    """
    rng = random.Random(seed)
    world = World(rng, messages=rng.random() < 0.85)
    nodes = (*BROKERS, CONTROLLER, *CONSUMERS, PRODUCER, ADMIN)
    if rng.random() < 0.3:
        world.skew_us = {node: rng.randint(-_SKEW_US, _SKEW_US) for node in nodes}
    world.grain_us = rng.choice((1, 1, 1, 50_000))

    world.stage("starting")
    world.lives["driver"] = Life("driver")  # it writes no row of its start
    for node in nodes:
        world.start(node, node.split("-")[0])
    brokers = Brokers(world)
    consumers = Consumers(world, brokers)
    faults = Faults(world, brokers, consumers)
    sample_metrics(world, seed)
    for index in range(len(brokers.epochs)):
        world.advance(rng.choice(_STEPS_US))
        brokers.elect(offsets_partition(index), leader=BROKERS[index])

    # The step before which the run becomes steady. With -1 it never does.
    steady_at = rng.randint(20, 80) if rng.random() < 0.95 else -1
    fault_rate = rng.choice((0.0, 0.005, 0.01, 0.015, 0.03))
    for step in range(rng.randint(250, 700)):
        world.advance(rng.choice(_STEPS_US))
        if step == steady_at:
            world.stage("steady")
        _let_one_event_happen(world, brokers, consumers, faults, fault_rate)

    # 25 % of the runs do not enter the stage `stopping`: they count as interrupted.
    if rng.random() < 0.75:
        world.stage("stopping")
        for _ in range(rng.randint(0, 40)):
            world.advance(rng.choice(_STEPS_US))
            _let_one_event_happen(world, brokers, consumers, faults, 0.0)
        for node in (*CONSUMERS, *BROKERS):
            if world.moving((node,)):
                world.stop(node)
    return world.rows


def _let_one_event_happen(
    world: World, brokers: Brokers, consumers: Consumers, faults: Faults, fault_rate: float
) -> None:
    """Let one random event happen, most often an act of a consumer, and sometimes nothing."""
    rng = world.rng
    if rng.random() < fault_rate:
        faults.inject()
        return
    chance = rng.random()
    # The limits are cumulative: 74 % acts of consumers, 10 % records produced, 6 % expiries, and so
    # on.
    if chance < 0.74:
        moving = world.moving(tuple(CONSUMERS))
        if moving:
            consumers.act(rng.choice(moving))
    elif chance < 0.84:
        consumers.produce()
    elif chance < 0.90:
        _expire_random_member(world, brokers)
    elif chance < 0.92:
        consumers.administer()
    elif chance < 0.925:
        spontaneous_election(world, brokers)
    elif chance < 0.928:
        moving = world.moving((*BROKERS, *CONSUMERS))
        if len(moving) > 3:  # some nodes must be left
            world.stop(rng.choice(moving))
    elif chance < 0.95:
        dead = [name for name in (*BROKERS, *CONSUMERS) if not world.lives[name].alive]
        if dead:
            faults.revive(rng.choice(dead))


def _expire_random_member(world: World, brokers: Brokers) -> None:
    """Let a coordinator of a random group expire a random member, if the group has members."""
    group = world.rng.choice(GROUPS)
    for broker in brokers.coordinators(group):
        coordinated = broker.groups.get(group)
        if coordinated is not None and coordinated.members and world.rng.random() < 0.5:
            member = world.rng.choice(list(coordinated.members))
            brokers.expire(broker, group, member, left=False)
            return
