"""Roles of servers: brokers, the controller, and the servers of a ZooKeeper ensemble.

`base` explains what a kind of target does. A cluster has a ZooKeeper ensemble only if it has groups
with `coordination: zookeeper`.
"""

from chaos.experiment.structs import (
    FIRST_CONTROLLER_ID,
    Experiment,
    group_partition,
    zookeeper_ids,
)
from chaos.targets.base import (
    Hit,
    Miss,
    Situation,
    TargetKind,
    Unknown,
    check_has_coordinator,
    check_no_argument,
)
from chaos.targets.partitions import (
    check_followers,
    check_partition_name,
    in_sync_followers,
    parse_partition,
    require_leader,
)
from protocol.ids import (
    NodeName,
    TopicPartition,
    broker_name,
    controller_name,
    offsets_partition,
    zookeeper_name,
)
from protocol.messages.zookeeper_quorum import ServerState


class CoordinatorOf(TargetKind):
    """The broker that coordinates a group."""

    name = "coordinator-of"
    syntax = "coordinator-of(<group>)"
    doc = "the broker that leads the group's partition of `__consumer_offsets`"

    def check(self, argument: str, experiment: Experiment) -> Unknown | None:
        """Return an error if the file has no such group, or if the group is on ZooKeeper."""
        return check_has_coordinator(self.name, argument, experiment)

    def resolve(self, argument: str, situation: Situation) -> Hit | Miss:
        """Return the broker that leads the group's offsets partition.

        The offsets partition is the partition of `__consumer_offsets` that stores the group. Its
        leader is the broker that the controller counts as leader. While the leadership moves,
        another broker may still have the group in memory. `detail["loaded_by"]` has the ids of all
        brokers that have the group in memory.
        """
        partition = offsets_partition(group_partition(situation.experiment, argument))
        hit = _leader_of(partition, situation)
        if isinstance(hit, Hit):
            loaded = situation.status.groups.get(argument, ())
            hit.detail["loaded_by"] = [int(group.coordinator) for group in loaded]
        return hit


class LeaderOf(TargetKind):
    """The broker that leads a partition."""

    name = "leader-of"
    syntax = "leader-of(<topic-partition>)"
    doc = "the broker that leads the partition, e.g. `leader-of(orders-3)`"

    def check(self, argument: str, experiment: Experiment) -> Unknown | None:
        """Return an error if the argument names no partition."""
        return check_partition_name(self.name, argument, experiment)

    def resolve(self, argument: str, situation: Situation) -> Hit | Miss:
        """Return the leader according to the controller."""
        return _leader_of(_parse_or_raise(argument), situation)


class FollowerOf(TargetKind):
    """A follower of a partition."""

    name = "follower-of"
    syntax = "follower-of(<topic-partition>)"
    doc = "the next in-sync follower after the partition's leader, in replica order, that is up"

    def check(self, argument: str, experiment: Experiment) -> Unknown | None:
        """Return an error if the argument names no partition, or one that has no followers."""
        unknown = check_partition_name(self.name, argument, experiment)
        if unknown is not None:
            return unknown
        return check_followers(_parse_or_raise(argument), experiment)

    def resolve(self, argument: str, situation: Situation) -> Hit | Miss:
        """Return the first in-sync follower that is up."""
        partition = _parse_or_raise(argument)
        partition_status = require_leader(partition, situation)
        if isinstance(partition_status, Miss):
            return partition_status
        for broker in in_sync_followers(partition_status):
            if situation.is_up(broker_name(broker)):
                return Hit(
                    nodes=(broker_name(broker),),
                    partitions=(partition,),
                    because=f"follows {partition}",
                    detail={
                        "partition": str(partition),
                        "leader_epoch": partition_status.leader_epoch,
                    },
                )
        return Miss(reason=f"{partition} has no in-sync follower that is up")


class Broker(TargetKind):
    """One broker, named by its id."""

    name = "broker"
    syntax = "broker(<id>)"
    doc = "the broker with this id; ids count from 0"

    def check(self, argument: str, experiment: Experiment) -> Unknown | None:
        """Return an error if the argument is not the id of a broker."""
        brokers = experiment.cluster.brokers
        # `isascii` is needed, because `isdecimal` alone also accepts the digits of other scripts.
        if argument.isascii() and argument.isdecimal() and int(argument) < brokers:
            return None
        return Unknown(
            message=f"there is no broker `{argument}`" if argument else "names no broker",
            expected=f"a broker id from 0 to {brokers - 1}",
        )

    def resolve(self, argument: str, situation: Situation) -> Hit | Miss:
        """Return the broker."""
        del situation
        return Hit(nodes=(broker_name(int(argument)),))


class AnyBroker(TargetKind):
    """One of the brokers that are up, drawn at random."""

    name = "any-broker"
    syntax = "any-broker"
    doc = "one of the brokers that are up, drawn by the run's seed"

    def check(self, argument: str, experiment: Experiment) -> Unknown | None:
        """Return an error if there is an argument."""
        del experiment
        return check_no_argument(self.name, argument)

    def resolve(self, argument: str, situation: Situation) -> Hit | Miss:
        """Return a broker that is up, drawn at random."""
        # A number from 0 to 1 is drawn, even if no broker is up: the other end of the same fault
        # may draw from the same random generator. So the number of draws must not depend on the
        # cluster's state.
        drawn = situation.rng.random()
        up = [name for name in _brokers(situation.experiment) if situation.is_up(name)]
        if not up:
            return Miss(reason="no broker is up")
        return Hit(
            nodes=(up[int(drawn * len(up))],),
            because="was drawn",
            detail={"drawn_among": list(up)},
        )


class Controller(TargetKind):
    """The active controller."""

    name = "controller"
    syntax = "controller"
    doc = "the active controller; a cluster's only controller counts as active in any state"

    def check(self, argument: str, experiment: Experiment) -> Unknown | None:
        """Return an error if there is an argument."""
        del experiment
        return check_no_argument(self.name, argument)

    def resolve(self, argument: str, situation: Situation) -> Hit | Miss:
        """Return the controller that is active."""
        active = situation.status.controller
        if active is not None:
            return Hit(nodes=(active,))
        count = situation.experiment.cluster.controllers
        if count == 1:  # no controller answers, but only this controller can have the role
            return Hit(nodes=(controller_name(FIRST_CONTROLLER_ID),))
        return Miss(reason="no controller is active")


class Brokers(TargetKind):
    """All brokers."""

    name = "brokers"
    syntax = "brokers"
    doc = "all brokers"

    def check(self, argument: str, experiment: Experiment) -> Unknown | None:
        """Return an error if there is an argument."""
        del experiment
        return check_no_argument(self.name, argument)

    def resolve(self, argument: str, situation: Situation) -> Hit | Miss:
        """Return every broker, in any state.

        A fault of links must also hit a broker that starts later. Its link rules are in force for
        every process of a node.
        """
        return Hit(nodes=_brokers(situation.experiment))


class ZooKeeperServer(TargetKind):
    """One server of the ensemble, named by its number."""

    name = "zookeeper"
    syntax = "zookeeper(<id>)"
    doc = "the ZooKeeper server with this number; numbers count from 1"

    def check(self, argument: str, experiment: Experiment) -> Unknown | None:
        """Return an error if the argument is not the number of a server."""
        servers = zookeeper_ids(experiment)
        if argument.isascii() and argument.isdecimal() and int(argument) in servers:
            return None
        # If there is no ensemble, the error says this, because no number would be right.
        return _check_ensemble(experiment) or Unknown(
            message=f"there is no ZooKeeper server `{argument}`" if argument else "names no server",
            expected=f"a number from 1 to {len(servers)}",
        )

    def resolve(self, argument: str, situation: Situation) -> Hit | Miss:
        """Return the server."""
        del situation
        return Hit(nodes=(zookeeper_name(int(argument)),))


class ZooKeeperLeader(TargetKind):
    """The leader of the ensemble."""

    name = "zookeeper-leader"
    syntax = "zookeeper-leader"
    doc = "the ZooKeeper server that leads the ensemble"

    def check(self, argument: str, experiment: Experiment) -> Unknown | None:
        """Return an error if there is an argument, or if the file has no ensemble."""
        return check_no_argument(self.name, argument) or _check_ensemble(experiment)

    def resolve(self, argument: str, situation: Situation) -> Hit | Miss:
        """Return the server that leads in the newest epoch.

        There may be two leaders. A leader that is cut off from the other servers believes for a
        while that it still leads, although they have elected another leader in a newer epoch.
        """
        del argument
        leaders = [
            (server.epoch, name)
            for name, server in situation.status.zookeepers.items()
            if server.state == ServerState.LEADING and server.is_serving
        ]
        if not leaders:
            return Miss(reason="no ZooKeeper server leads")
        _, newest_leader = max(leaders)  # the maximum of pairs has the greatest first value
        return Hit(nodes=(newest_leader,), because="leads the ensemble")


class ZooKeepers(TargetKind):
    """All servers of the ensemble."""

    name = "zookeepers"
    syntax = "zookeepers"
    doc = "all ZooKeeper servers"

    def check(self, argument: str, experiment: Experiment) -> Unknown | None:
        """Return an error if there is an argument, or if the file has no ensemble."""
        return check_no_argument(self.name, argument) or _check_ensemble(experiment)

    def resolve(self, argument: str, situation: Situation) -> Hit | Miss:
        """Return every server, in any state."""
        del argument
        servers = zookeeper_ids(situation.experiment)
        return Hit(nodes=tuple(zookeeper_name(server_id) for server_id in servers))


def _check_ensemble(experiment: Experiment) -> Unknown | None:
    """Return an error if the file has no group on ZooKeeper, and so no ensemble."""
    if zookeeper_ids(experiment):
        return None
    return Unknown(
        message="the file has no ZooKeeper ensemble",
        expected="a group with `coordination: zookeeper`",
    )


def _brokers(experiment: Experiment) -> tuple[NodeName, ...]:
    return tuple(broker_name(broker_id) for broker_id in range(experiment.cluster.brokers))


def _leader_of(partition: TopicPartition, situation: Situation) -> Hit | Miss:
    """Return the broker that the controller counts as leader of a partition. It may be down."""
    partition_status = require_leader(partition, situation)
    if isinstance(partition_status, Miss):
        return partition_status
    return Hit(
        nodes=(broker_name(partition_status.leader),),
        partitions=(partition,),
        because=f"leads {partition}",
        detail={"partition": str(partition), "leader_epoch": partition_status.leader_epoch},
    )


def _parse_or_raise(argument: str) -> TopicPartition:
    partition = parse_partition(argument)
    if partition is None:
        raise ValueError(f"not a partition: {argument!r}")
    return partition
