"""Faults of a random trace: their injection, their effects, and in most cases their healing.

A trace has the recorded events of a run, its rows. The driver is the process that injects faults,
and it writes the rows about them. A fault misses if it finds no node to hit. To heal a fault is to
undo it. Some rows, and some fields of a row's detail, are left out at random. The code that reads a
trace must not need them.
"""

from dataclasses import dataclass

from protocol.trace import TraceKind
from tests.support.random_worlds.random_brokers import (
    BROKERS,
    CONTROLLER,
    Brokers,
    offsets_partition,
    partition_of,
)
from tests.support.random_worlds.random_consumers import CONSUMERS, Consumers
from tests.support.random_worlds.random_world import DRIVER, World

# Kinds of faults, with weights: a kind with the weight 4 is drawn four times as often as one with
# the weight 1. A fault "client-..." hits a consumer, "missed" no node, and all others a broker.
_KINDS = (
    ("crash", 4),
    ("pause", 3),
    ("cut", 3),
    ("clog", 1),
    ("slow", 1),
    ("reset", 1),
    ("controlled_shutdown", 1),
    ("leadership_move", 2),
    ("client-crash", 2),
    ("client-pause", 1),
    ("missed", 2),
)
MOMENTARY = ("reset", "leadership_move")
"""Faults that are done immediately: nothing stays in force, and there is nothing to heal."""


@dataclass(slots=True)
class _Fault:
    """One fault: its id (`fault`), its kind, and the nodes that it hits.

    A fault of links also has the nodes at the two ends of the links.
    """

    fault: str
    kind: str
    nodes: tuple[str, ...]
    from_nodes: tuple[str, ...] = ()
    to_nodes: tuple[str, ...] = ()


class Faults:
    """Injects and heals faults."""

    def __init__(self, world: World, brokers: Brokers, consumers: Consumers) -> None:
        self._world = world
        self._brokers = brokers
        self._consumers = consumers
        self._count = 0

    def inject(self) -> None:
        """Inject a fault of any kind, which may miss."""
        world = self._world
        if world.chance(0.15):
            self.inject()  # two faults at the same time
        kind = world.rng.choices([kind for kind, _ in _KINDS], [weight for _, weight in _KINDS])[0]
        name = f"{kind}-{self._count}"
        self._count += 1
        is_client = kind.startswith("client-")
        candidates = world.moving(tuple(CONSUMERS) if is_client else BROKERS)
        if kind == "missed" or not candidates:
            self._miss(name)
            return
        victim = world.rng.choice(candidates)
        others = tuple(node for node in (*BROKERS, CONTROLLER) if node != victim)
        match kind:
            # These faults hit the links from one or two nodes to all other nodes.
            case "cut" | "clog" | "slow" | "reset":
                hit = (victim, *others[:1]) if world.chance(0.3) else (victim,)
                rest = tuple(node for node in others if node not in hit)
                fault = _Fault(name, kind, nodes=hit, from_nodes=hit, to_nodes=rest)
            case "leadership_move":
                # From the old leader to the new one.
                fault = _Fault(
                    name, kind, nodes=(victim,), from_nodes=(victim,), to_nodes=others[:1]
                )
            case _:
                fault = _Fault(name, kind.removeprefix("client-"), nodes=(victim,))
        self._write(fault)
        self._act(fault, victim)

    def _miss(self, name: str) -> None:
        """Write the row of a fault that misses; sometimes a row of its injection comes first."""
        world = self._world
        detail: dict[str, object] = {"fault": "crash", "target": "broker(7)"}
        if world.chance(0.5):
            world.add(DRIVER, TraceKind.FAULT_INJECTED, peer="broker-0", cause=name, detail=detail)
        detail = {**detail, "reason": "nobody there"}
        world.add(DRIVER, TraceKind.FAULT_MISSED, cause=name, detail=detail)

    def _write(self, fault: _Fault) -> None:
        """Write the row of a fault's injection, and in most cases a row when it is in force."""
        world = self._world
        node = fault.nodes[0]
        led = [partition for partition, leader in self._brokers.leaders.items() if leader == node]
        detail: dict[str, object] = {
            "fault": fault.kind,
            "target": f"broker({node[-1]})",
            "members_survive": node not in CONSUMERS,
        }
        if world.chance(0.85):
            detail["groups"] = [group for group in _groups() if partition_of(group) in led]
            detail["partitions"] = [*led, "orders-1"]
        if world.chance(0.9):
            detail["nodes"] = list(fault.nodes)
        if fault.from_nodes:
            detail |= {"from": list(fault.from_nodes), "to": list(fault.to_nodes)}
        if world.chance(0.3):
            detail["pid"] = world.rng.randint(2, 30_000)
        peer = "" if world.chance(0.05) else node
        kind = TraceKind.FAULT_INJECTED
        world.add(DRIVER, kind, peer=peer, cause=fault.fault, detail=detail)
        if fault.kind not in MOMENTARY and world.chance(0.8):
            in_force = TraceKind.FAULT_IN_FORCE
            kind_detail: dict[str, object] = {"fault": fault.kind}
            world.later(
                world.delay_us(20_000),
                lambda: world.add(
                    DRIVER, in_force, peer=peer, cause=fault.fault, detail=kind_detail
                ),
            )

    def _act(self, fault: _Fault, victim: str) -> None:
        """Let the fault hit its nodes and cause elections, and in most cases heal it later."""
        world, kind = self._world, fault.kind
        led = [partition for partition, leader in self._brokers.leaders.items() if leader == victim]
        if kind == "crash":
            world.kill(victim)
        elif kind == "pause":
            world.pause(victim)
        elif kind == "controlled_shutdown":
            world.add(DRIVER, TraceKind.NODE_STOPPING, peer=victim)
            world.node_later(victim, 30_000, lambda: world.stop(victim))
        # For each partition that the victim leads, one or two elections follow.
        if kind in ("crash", "pause", "cut", "clog", "controlled_shutdown", "leadership_move"):
            for partition in led:
                for _ in range(world.rng.choice((1, 1, 2))):
                    delay_us = world.rng.choice((40_000, 900_000, 2_500_000))
                    # The default of `at` keeps this partition; `partition` has another value when
                    # the function is called.
                    world.later(delay_us, lambda at=partition: self._elect(at, victim))  # type: ignore[misc]
        if kind not in MOMENTARY and world.chance(0.85):
            length_us = world.rng.choice((200_000, 600_000, 3_000_000, 5_000_000))
            world.later(length_us, lambda: self._heal(fault, victim))

    def _elect(self, partition: str, victim: str) -> None:
        """Elect a leader, unless another broker than the victim leads the partition by now."""
        if self._brokers.leaders[partition] in (victim, ""):
            self._brokers.elect(partition)

    def _heal(self, fault: _Fault, victim: str) -> None:
        """Undo a fault, and write the row about it up to 5 ms later."""
        world = self._world
        began_us = world.now_us
        life = world.lives[victim]
        if fault.kind in ("crash", "controlled_shutdown") and not life.alive:
            self.revive(victim)
        elif fault.kind == "pause" and life.alive and life.paused:
            world.resume(victim)
        detail: dict[str, object] = {"fault": fault.kind}
        if world.chance(0.85):
            detail["in_force_until_us"] = began_us
        world.later(
            world.delay_us(5_000),
            lambda: world.add(
                DRIVER, TraceKind.FAULT_HEALED, peer=victim, cause=fault.fault, detail=detail
            ),
        )

    def revive(self, node: str) -> None:
        """Start a dead node again."""
        is_client = node in CONSUMERS
        self._world.start(node, "consumer" if is_client else "broker")
        (self._consumers if is_client else self._brokers).restarted(node)


def _groups() -> tuple[str, ...]:
    """Return the groups of the consumers, each once."""
    return tuple(dict.fromkeys(CONSUMERS.values()))


def spontaneous_election(world: World, brokers: Brokers) -> None:
    """Elect a new leader of a random offsets partition, without a fault."""
    brokers.elect(offsets_partition(world.rng.randrange(3)))
