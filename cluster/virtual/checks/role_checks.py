"""A check of the rows in which replicas become leaders and followers.

A broker writes the row BECAME_LEADER or BECAME_FOLLOWER when the metadata gives a replica a role in
a new leader epoch. Many checks of the trace rely on these rows, so the rows must be true.

Source: Kafka `Partition.makeLeader`, `Partition.makeFollower`.
"""

from collections.abc import Mapping

from cluster.broker.node import BrokerNode
from cluster.virtual.lives import VirtualLife
from partition_log.replica import Partition
from protocol.errors import InvariantViolation
from protocol.ids import NodeName
from protocol.trace import TraceKind, TraceRow

ROLE_KINDS = frozenset({TraceKind.BECAME_LEADER, TraceKind.BECAME_FOLLOWER})
"""Kinds of rows that RoleChecks must see."""


class RoleChecks:
    """Compares the rows of roles with the replicas, just when a row is written."""

    def __init__(self, lives: Mapping[NodeName, VirtualLife]) -> None:
        self._lives = lives
        self._epochs: dict[tuple[str, str], tuple[Partition, int]] = {}
        """Node and partition -> the replica, and the leader epoch of its last row.

        If a topic is deleted and created again, a new replica begins with lower epochs."""

    def observe(self, row: TraceRow) -> None:
        """Check that a replica has the role in its row, in a higher epoch than before.

        Raises: InvariantViolation.
        """
        node = self._lives[NodeName(row.node)].node
        name = row.partition or ""
        if not isinstance(node, BrokerNode):
            return
        topic, _, index = name.rpartition("-")
        replica = node.partitions.get((topic, int(index)))
        if replica is None:  # only for mypy: a broker has each replica whose row it writes
            return
        epoch = -1 if row.leader_epoch is None else row.leader_epoch
        known_replica, known_epoch = self._epochs.get((row.node, name), (None, -1))
        self._epochs[row.node, name] = (replica, epoch)
        if replica is known_replica and epoch <= known_epoch:
            raise InvariantViolation(
                "a replica has one role in a leader epoch",
                f"{row.node}: {row.kind} of {name} in epoch {epoch}, after a row in epoch "
                f"{known_epoch}",
            )
        is_leader = row.kind == TraceKind.BECAME_LEADER
        if replica.is_leader != is_leader or replica.leader_epoch != epoch:
            role = "leads" if replica.is_leader else "follows"
            raise InvariantViolation(
                "a replica has one role in a leader epoch",
                f"{row.node}: {row.kind} of {name} in epoch {epoch}, but the replica {role} in "
                f"epoch {replica.leader_epoch}",
            )
