"""FaultDraw: draws what a fault needs, such as its target and its duration.

Each value is drawn from a random generator of its own. The state of this generator depends on three
things: the seed, the number of the fault, and a word for the purpose, such as "target" or "length".
So if a change of the code draws one more value for one purpose, the values for all other purposes
stay the same.

A target is written as in an experiment file. For example, `leader-of(orders-3)` is the broker that
leads partition 3 of the topic `orders`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from chaos.experiment.structs import (
    Experiment,
    FaultDefinition,
    coordinated_groups,
    internal_topics,
    machine_layout,
    microseconds,
    zookeeper_groups,
    zookeeper_ids,
)
from chaos.exploration.draw.timeouts import timeout_ms
from chaos.exploration.space_definition import FaultSpace
from cluster.host.randomness import stream
from cluster.machines import MachineLayout
from protocol.ids import CONSUMER_OFFSETS, TRANSACTION_STATE

MS = 1_000
"""Microseconds of a millisecond."""
_ROLES = {
    "coordinator-of": 5,
    "leader-of": 1,
    "follower-of": 1,
    "broker": 2,
    "any-broker": 1,
    "controller": 2,
    "member": 3,
    "leader-member-of": 1,
    "all-topic-partitions": 1,
    "zookeeper": 2,
    "zookeeper-leader": 2,
    "machine": 2,
    "machine-of": 3,
}
"""Weight of each role in the draw of a target.

A fault accepts only some of the roles, and only these roles are drawn for this fault. The names of
the roles are the names in experiment files.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultDraw:
    """Draws the values of one fault, or of all faults of one pattern (a combination of faults).

    - `index`: the number of this fault or pattern in the plan of the seed, counted from 0.
    - `at_ms`: the time of this fault or pattern, counted from the steady state (the moment at which
      the cluster works and all groups have their assignments). In the methods, `after_ms` counts
      from `at_ms`.

    Every call of a method with the same purpose returns the same value. For example, `group()`
    always returns the same group.
    """

    experiment: Experiment
    space: FaultSpace
    seed: int
    index: int
    at_ms: int

    def rng(self, purpose: str) -> Random:
        """Return the random generator of one purpose, in the state before its first value."""
        return stream(self.seed, "fault", self.index, purpose)

    def chance(self, purpose: str, share: float) -> bool:
        """Draw True with probability `share`."""
        return self.rng(purpose).random() < share

    # -- targets --

    @property
    def broker_ids(self) -> range:
        """The ids of all brokers."""
        return range(self.experiment.cluster.brokers)

    def group(self) -> str:
        """Draw the group of this fault; every call gives the same group."""
        return self.rng("group").choice(list(self.experiment.groups))

    def coordinator(self) -> str:
        """Return the coordinator of the fault's group as a target.

        If the fault's group is on ZooKeeper, it has no coordinator, and another group is drawn. If
        no group of the experiment has a coordinator, a broker is drawn.
        """
        group, coordinated = self.group(), coordinated_groups(self.experiment)
        if group not in coordinated:
            if not coordinated:
                return self.broker()
            group = self.rng("coordinated group").choice(list(coordinated))
        return f"coordinator-of({group})"

    def member(self, purpose: str = "member") -> str | None:
        """Draw a member of the fault's group as a target; None if this group has no members."""
        total = self.experiment.groups[self.group()].members_total
        return f"member({self.group()}, {self.rng(purpose).randrange(total)})" if total else None

    def zookeeper_group(self) -> str | None:
        """Draw a group on ZooKeeper; every call gives the same group.

        Return None if the experiment has no group on ZooKeeper.
        """
        groups = list(zookeeper_groups(self.experiment))
        return self.rng("ZooKeeper group").choice(groups) if groups else None

    def zookeeper_member(self, purpose: str = "member") -> str | None:
        """Draw a member of the group that `zookeeper_group` draws.

        Return None if there is no group on ZooKeeper, or if the group has no members.
        """
        group = self.zookeeper_group()
        total = 0 if group is None else self.experiment.groups[group].members_total
        return f"member({group}, {self.rng(purpose).randrange(total)})" if total else None

    def zookeeper_server(self, purpose: str = "server") -> str | None:
        """Draw a ZooKeeper server; None if the experiment has no such servers."""
        servers = zookeeper_ids(self.experiment)
        return f"zookeeper({self.rng(purpose).choice(servers)})" if servers else None

    def broker(self, purpose: str = "broker") -> str:
        """Draw a broker."""
        return f"broker({self.rng(purpose).choice(self.broker_ids)})"

    def partition(self) -> str:
        """Draw a partition. In half of the draws it is a partition of `__consumer_offsets`."""
        rng = self.rng("partition")
        sizes = {name: topic.partitions for name, topic in self.experiment.topics.items()}
        internal = internal_topics(self.experiment)
        if TRANSACTION_STATE in internal:
            # Each value of `internal` is a tuple (number of partitions, replication factor).
            sizes[TRANSACTION_STATE] = internal[TRANSACTION_STATE][0]
        offsets = internal[CONSUMER_OFFSETS][0]
        # `sizes` has the number of partitions of all topics but `__consumer_offsets`. If `sizes` is
        # empty, `__consumer_offsets` is drawn in any case.
        drawn = CONSUMER_OFFSETS if rng.random() < 0.5 or not sizes else rng.choice(list(sizes))
        # `sizes` does not have `__consumer_offsets`. So for this topic, `get` returns its default
        # `offsets`, the number of partitions of `__consumer_offsets`.
        return f"{drawn}-{rng.randrange(sizes.get(drawn, offsets))}"

    def target(self, roles: Sequence[str], purpose: str = "target") -> str | None:
        """Draw a target with one of `roles`; None if the experiment has no such node."""
        known = self._targets()
        fitting = [role for role in roles if role in known]
        if not fitting:
            return None
        # `choices` returns a list, here with one role.
        weights = [_ROLES[role] for role in fitting]
        return known[self.rng(purpose).choices(fitting, weights)[0]]

    def _targets(self) -> dict[str, str]:
        """Return a drawn target for each role that the experiment has."""
        partition = self.partition()
        known = {
            "coordinator-of": self.coordinator(),
            "leader-of": f"leader-of({partition})",
            "broker": self.broker(),
            "any-broker": "any-broker",
            "controller": "controller",
            "all-topic-partitions": "all-topic-partitions",
        }
        server = self.zookeeper_server()
        if server is not None:
            known |= {"zookeeper": server, "zookeeper-leader": "zookeeper-leader"}
        if self.group() in zookeeper_groups(self.experiment):
            # The fault's group is on ZooKeeper and has no coordinator, so `coordinator()` has drawn
            # the coordinator of another group, or a broker.
            del known["coordinator-of"]
        if self.replicas_of(partition) > 1:
            known["follower-of"] = f"follower-of({partition})"
        member = self.member()
        if member is not None:
            known["member"] = member
            if self.group() not in zookeeper_groups(self.experiment):
                known["leader-member-of"] = f"leader-member-of({self.group()})"
        layout = self.layout()
        if layout is not None:
            occupied = [index for index, nodes in enumerate(layout.machines) if nodes]
            known["machine"] = f"machine({self.rng('machine').choice(occupied)})"
            node = known.get("coordinator-of", known["broker"])
            known["machine-of"] = f"machine-of({node})"
        return known

    def layout(self) -> MachineLayout | None:
        """Return which nodes run on each machine; None if the experiment has no machines."""
        return machine_layout(self.experiment)

    def replicas_of(self, partition: str) -> int:
        """Return the replication factor of a partition."""
        topic = partition.rpartition("-")[0]
        internal = internal_topics(self.experiment).get(topic)
        if internal is not None:
            return internal[1]
        return self.experiment.topics[topic].replication_factor

    # -- times --

    def length_ms(self, purpose: str = "length") -> int:
        """Draw a length: one of the space's durations, or one near a timeout of the experiment."""
        rng = self.rng(purpose)
        longest_ms = microseconds(self.space.longest) // MS
        fixed_ms = microseconds(rng.choice(self.space.durations)) // MS
        if not self.space.timeouts or rng.random() < 0.5:
            return min(fixed_ms, longest_ms)
        return self.around_ms(rng.choice(self.space.timeouts), rng.choice(self.space.factors))

    def around_ms(self, timeout: str, factor: float, group: str | None = None) -> int:
        """Return `factor` times a timeout, at least 1 ms and at most the space's `longest`.

        - `timeout`: the timeout's name in Kafka, such as "session.timeout.ms".
        - `group`: the group whose consumers have this timeout; by default the fault's group.
        """
        around_ms = int(timeout_ms(timeout, self.experiment, group or self.group()) * factor)
        return max(1, min(around_ms, microseconds(self.space.longest) // MS))

    def gap_ms(self, purpose: str, longest_ms: int) -> int:
        """Draw a gap from 1 ms to `longest_ms`. Short gaps are as likely as long gaps.

        For example, a gap of 2 to 3 ms is as likely as a gap of 4 to 7 ms, or a gap of 8 to 15 ms.
        """
        rng = self.rng(purpose)
        # First a power of two is drawn, such as 16 (2 to the power of `exponent`). Then a value is
        # drawn from this power up to the next power, such as 16 to 31.
        exponent = rng.randrange(max(1, longest_ms).bit_length())
        return min(longest_ms, rng.randrange(1 << exponent, 2 << exponent))

    def restart_ms(self, purpose: str = "restart") -> int:
        """Draw the time from a kill to a quick restart: 100 ms to 3 s."""
        return self.rng(purpose).choice((100, 300, 1_000, 3_000))

    def disk(self, purpose: str = "disk") -> dict[str, Any]:
        """Draw whether a killed broker loses its disk; return the fault's arguments for this."""
        return {"disk": "empty"} if self.chance(purpose, self.space.empty_disks) else {}

    def duration(self) -> str | None:
        """Draw the duration of the fault; None if only the run's end heals the fault."""
        unhealed = self.chance("unhealed", self.space.unhealed)
        return None if unhealed else length_text(self.length_ms())

    def moment(self, after_ms: int) -> str:
        """Return the time `after_ms` after `at_ms`, as text such as `2s`."""
        return length_text(self.at_ms + after_ms)

    def fault(
        self,
        kind: str,
        target: str,
        *,
        after_ms: int = 0,
        lasts_ms: int | None = None,
        args: dict[str, Any] | None = None,
    ) -> FaultDefinition:
        """Return a fault of a target that begins `after_ms` after `at_ms`."""
        return FaultDefinition(
            at=length_text(self.at_ms + after_ms),
            fault=kind,
            target=target,
            duration=None if lasts_ms is None else length_text(lasts_ms),
            args=args or {},
        )

    def link_fault(
        self,
        kind: str,
        from_: str | tuple[str, ...],
        to: str | tuple[str, ...],
        *,
        after_ms: int = 0,
        lasts_ms: int,
        one_way: bool = False,
        args: dict[str, Any] | None = None,
    ) -> FaultDefinition:
        """Return a fault of the links between two ends that begins `after_ms` after `at_ms`."""
        return FaultDefinition(
            at=length_text(self.at_ms + after_ms),
            fault=kind,
            from_=from_,
            to=to,
            duration=length_text(lasts_ms),
            args={**(args or {}), **({"direction": "one_way"} if one_way else {})},
        )


def length_text(length_ms: int) -> str:
    """Return a length as text such as `2s`, `150ms` or `0ms`."""
    return f"{length_ms // MS}s" if length_ms % MS == 0 and length_ms else f"{length_ms}ms"
