"""The faults of a random trace.

A fault is injected, has effects on nodes and links, and in most cases is healed (undone) later. The
driver (the process that conducts a run) injects the faults and writes the rows about them into the
trace. Some of these rows, and some fields of their details, are left out at random: the code that
reads a trace must also work without them.
"""

from dataclasses import dataclass
from functools import partial

from protocol.trace import TraceKind
from tests.support.random_worlds.random_brokers import (
    BROKERS,
    CONTROLLER,
    OFFSETS_PARTITIONS,
    Brokers,
    offsets_partition,
    partition_of,
)
from tests.support.random_worlds.random_consumers import CONSUMERS, Consumers
from tests.support.random_worlds.random_world import DRIVER, World

# The kinds of faults with their weights: a kind with the weight 4 is drawn four times as often as a
# kind with the weight 1. A fault "client-..." hits a consumer. "missed" is a fault that finds no
# node to hit. All other faults hit a broker.
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
"""Faults that happen in a moment: they do not stay in force, so there is nothing to heal."""


@dataclass(slots=True)
class _Fault:
    """One fault that hits a node."""

    # The kind and the number of the fault, such as "crash-3".
    id: str
    kind: str
    # The nodes that the fault hits.
    nodes: tuple[str, ...]
    # For a fault of the network, these are the nodes at the two ends of the links. For a moved
    # leadership, they are the old and the new leader.
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
        """Inject a fault of a random kind. The fault may find no node to hit."""
        world = self._world
        if world.chance(0.15):
            # Inject another fault at the same time.
            self.inject()
        kinds, weights = zip(*_KINDS, strict=True)
        kind = world.rng.choices(kinds, weights)[0]
        fault_id = f"{kind}-{self._count}"
        self._count += 1
        is_client = kind.startswith("client-")
        candidates = world.active(tuple(CONSUMERS) if is_client else BROKERS)
        if kind == "missed" or not candidates:
            self._miss(fault_id)
            return
        victim = world.rng.choice(candidates)
        others = tuple(node for node in (*BROKERS, CONTROLLER) if node != victim)
        match kind:
            # These faults have one or two victims. They hit the links from the victims to all other
            # brokers and to the controller.
            case "cut" | "clog" | "slow" | "reset":
                victims = (victim, *others[:1]) if world.chance(0.3) else (victim,)
                rest = tuple(node for node in others if node not in victims)
                fault = _Fault(fault_id, kind, nodes=victims, from_nodes=victims, to_nodes=rest)
            case "leadership_move":
                fault = _Fault(
                    fault_id, kind, nodes=(victim,), from_nodes=(victim,), to_nodes=others[:1]
                )
            case _:
                fault = _Fault(fault_id, kind.removeprefix("client-"), nodes=(victim,))
        self._write_rows(fault)
        self._act(fault, victim)

    def _miss(self, fault_id: str) -> None:
        """Write the row of a fault that finds no node to hit.

        In half of the cases, a row FAULT_INJECTED comes before FAULT_MISSED, as if the fault had
        hit a node.
        """
        world = self._world
        detail: dict[str, object] = {"fault": "crash", "target": "broker(7)"}
        if world.chance(0.5):
            world.add(
                DRIVER, TraceKind.FAULT_INJECTED, peer="broker-0", cause=fault_id, detail=detail
            )
        detail = {**detail, "reason": "nobody there"}
        world.add(DRIVER, TraceKind.FAULT_MISSED, cause=fault_id, detail=detail)

    def _write_rows(self, fault: _Fault) -> None:
        """Write FAULT_INJECTED, and in most cases FAULT_IN_FORCE a little later."""
        world = self._world
        node = fault.nodes[0]
        led = self._partitions_led_by(node)
        # The target has the number of the node: "broker-2" -> "broker(2)". The target of a consumer
        # is written in the same way.
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
        world.add(DRIVER, TraceKind.FAULT_INJECTED, peer=peer, cause=fault.id, detail=detail)
        if fault.kind not in MOMENTARY and world.chance(0.8):

            def write_in_force() -> None:
                world.add(
                    DRIVER,
                    TraceKind.FAULT_IN_FORCE,
                    peer=peer,
                    cause=fault.id,
                    detail={"fault": fault.kind},
                )

            world.later(world.delay_us(20_000), write_in_force)

    def _act(self, fault: _Fault, victim: str) -> None:
        """Let the fault hit its victim and cause elections. In most cases, heal it later.

        A crash, a shutdown or a pause changes the victim. Faults of the network and moves of a
        leadership change no node: they cause elections, or have no effect.
        """
        world, kind = self._world, fault.kind
        led = self._partitions_led_by(victim)
        if kind == "crash":
            world.kill(victim)
        elif kind == "pause":
            world.pause(victim)
        elif kind == "controlled_shutdown":
            world.add(DRIVER, TraceKind.NODE_STOPPING, peer=victim)
            world.node_later(victim, 30_000, lambda: world.stop(victim))
        # One or two elections follow for each partition that the victim leads.
        if kind in ("crash", "pause", "cut", "clog", "controlled_shutdown", "leadership_move"):
            for partition in led:
                for _ in range(world.rng.choice((1, 1, 2))):
                    delay_us = world.rng.choice((40_000, 900_000, 2_500_000))
                    world.later(delay_us, partial(self._elect, partition, victim))
        if kind not in MOMENTARY and world.chance(0.85):
            length_us = world.rng.choice((200_000, 600_000, 3_000_000, 5_000_000))
            world.later(length_us, lambda: self._heal(fault, victim))

    def _partitions_led_by(self, broker: str) -> list[str]:
        """Return the offsets partitions that a broker leads."""
        return [
            partition for partition, leader in self._brokers.leaders.items() if leader == broker
        ]

    def _elect(self, partition: str, victim: str) -> None:
        """Elect a new leader, unless by now a broker other than the victim leads the partition."""
        # A partition without a leader has "" here.
        if self._brokers.leaders[partition] in (victim, ""):
            self._brokers.elect(partition)

    def _heal(self, fault: _Fault, victim: str) -> None:
        """Undo a fault, and write the row FAULT_HEALED up to 5 ms later."""
        world = self._world
        healed_at_us = world.now_us
        # Other events may have started, stopped or resumed the victim since the injection.
        life = world.lives[victim]
        if fault.kind in ("crash", "controlled_shutdown") and not life.alive:
            self.revive(victim)
        elif fault.kind == "pause" and life.alive and life.paused:
            world.resume(victim)
        detail: dict[str, object] = {"fault": fault.kind}
        if world.chance(0.85):
            detail["in_force_until_us"] = healed_at_us
        world.later(
            world.delay_us(5_000),
            lambda: world.add(
                DRIVER, TraceKind.FAULT_HEALED, peer=victim, cause=fault.id, detail=detail
            ),
        )

    def revive(self, node: str) -> None:
        """Start a dead node again."""
        if node in CONSUMERS:
            self._world.start(node, "consumer")
            self._consumers.restarted(node)
        else:
            self._world.start(node, "broker")
            self._brokers.restarted(node)


def _groups() -> tuple[str, ...]:
    """Return the groups of the consumers, without repetitions."""
    return tuple(dict.fromkeys(CONSUMERS.values()))


def spontaneous_election(world: World, brokers: Brokers) -> None:
    """Elect a new leader of a random offsets partition, although there was no fault."""
    brokers.elect(offsets_partition(world.rng.randrange(OFFSETS_PARTITIONS)))
