"""Random but plausible traces, for tests of the tables that the analysis of a run makes.

The tests compare the tables that Spark makes of such a trace with the tables of plain Python. A
trace has the recorded events of a run, one row each. No cluster runs for these traces. Instead, a
simple simulation writes rows in an order in which a real cluster could write them. A controller
elects leaders. Brokers load and unload groups. Consumers send requests to the brokers that they
consider coordinators. Faults hit a node or miss, overlap, and are not always healed.

Every next step is random. So the traces have cases that no hand-written trace has: rows with equal
times, answers that never come, or two coordinators of one group. A broker is elected again, nodes
are restarted, and runs are interrupted.
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
"""The possible times between two events. With 0, the two events have equal times."""
_SKEW_US = 4_000
"""The largest difference between a node's clock and the clock of the run."""


def random_run(seed: int) -> list[TraceRow]:
    """Return the trace of a random run, in the order in which its rows were written.

    The runs differ in many ways, so that the tests meet many cases:

    - The clocks of the nodes agree, or they differ, or they have a resolution of only 50 ms.
    - The trace has rows about messages, or it has none.
    - There are many faults, or few, or none.
    - The run ends in the stage `stopping`, or it is interrupted before.

    As in a real trace, `seq` counts the rows of each incarnation of a node (its life between two
    restarts), and within an incarnation the time never decreases.
    """
    rng = random.Random(seed)
    world = World(rng, messages=rng.random() < 0.85)
    nodes = (*BROKERS, CONTROLLER, *CONSUMERS, PRODUCER, ADMIN)
    if rng.random() < 0.3:
        world.skew_us = {node: rng.randint(-_SKEW_US, _SKEW_US) for node in nodes}
    world.clock_resolution_us = rng.choice((1, 1, 1, 50_000))

    world.stage("starting")
    # The driver is the process that conducts the run. It writes no row about its own start, so
    # `start` is not called for the driver.
    world.lives["driver"] = Life("driver")
    for node in nodes:
        role = node.split("-")[0]
        world.start(node, role)
    brokers = Brokers(world)
    consumers = Consumers(world, brokers)
    faults = Faults(world, brokers, consumers)
    sample_metrics(world, seed)
    for index in range(len(brokers.epochs)):
        world.advance(rng.choice(_STEPS_US))
        brokers.elect(offsets_partition(index), leader=BROKERS[index])

    # The number of the step at which the run enters the stage `steady`. With -1 it never does.
    steady_at = rng.randint(20, 80) if rng.random() < 0.95 else -1
    fault_rate = rng.choice((0.0, 0.005, 0.01, 0.015, 0.03))
    for step in range(rng.randint(250, 700)):
        world.advance(rng.choice(_STEPS_US))
        if step == steady_at:
            world.stage("steady")
        _let_one_event_happen(world, brokers, consumers, faults, fault_rate)

    # 25 % of the runs never enter the stage `stopping`. The analysis takes them for interrupted.
    if rng.random() < 0.75:
        world.stage("stopping")
        for _ in range(rng.randint(0, 40)):
            world.advance(rng.choice(_STEPS_US))
            _let_one_event_happen(world, brokers, consumers, faults, 0.0)
        for node in (*CONSUMERS, *BROKERS):
            if world.active((node,)):
                world.stop(node)
    return world.rows


def _let_one_event_happen(
    world: World, brokers: Brokers, consumers: Consumers, faults: Faults, fault_rate: float
) -> None:
    """Let one random event happen: most often a step of a consumer, sometimes nothing."""
    rng = world.rng
    if rng.random() < fault_rate:
        faults.inject()
        return
    chance = rng.random()
    # Each limit is the sum of the probabilities so far: a consumer's step has 74 %, new records
    # have 10 %, the expiry of a member has 6 %, and so on.
    if chance < 0.74:
        active = world.active(tuple(CONSUMERS))
        if active:
            consumers.act(rng.choice(active))
    elif chance < 0.84:
        consumers.produce()
    elif chance < 0.90:
        _expire_random_member(world, brokers)
    elif chance < 0.92:
        consumers.administer()
    elif chance < 0.925:
        spontaneous_election(world, brokers)
    elif chance < 0.928:
        active = world.active((*BROKERS, *CONSUMERS))
        # At least three nodes must stay active: a run without active nodes would have no events.
        if len(active) > 3:
            world.stop(rng.choice(active))
    elif chance < 0.95:
        dead = [name for name in (*BROKERS, *CONSUMERS) if not world.lives[name].alive]
        if dead:
            faults.revive(rng.choice(dead))


def _expire_random_member(world: World, brokers: Brokers) -> None:
    """Let a coordinator of a random group find that a random member's session has expired."""
    group = world.rng.choice(GROUPS)
    for broker in brokers.coordinators(group):
        coordinated = broker.groups.get(group)
        if coordinated is not None and coordinated.members and world.rng.random() < 0.5:
            member = world.rng.choice(list(coordinated.members))
            brokers.expire(broker, group, member, left=False)
            return
