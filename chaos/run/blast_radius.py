"""The blast radius of a fault: the groups and partitions that depend on the nodes which it hits.

The blast radius is computed when the fault is injected. The journal and the report of a run show
it.
"""

from collections.abc import Iterable

from chaos.experiment.structs import Experiment, consumer_name, group_partition
from cluster.runtime import ClusterStatus
from protocol.ids import CONSUMER_OFFSETS, NodeName, TopicPartition, broker_name
from results_schema.journal import BlastRadius


def blast_radius_of(
    nodes: Iterable[NodeName], experiment: Experiment, status: ClusterStatus
) -> BlastRadius:
    """Return the blast radius of all of `nodes` together.

    A broker affects the groups that it coordinates and the partitions that it leads. A member
    affects its group and its partitions.
    """
    # The dict serves as an ordered set of nodes.
    hit_nodes = dict.fromkeys(nodes)
    # `coordinators` has one entry for each broker that believes that it is the group's coordinator.
    # If the network is split, two brokers may believe this.
    groups = {
        group_id
        for group_id, coordinators in status.groups.items()
        if any(broker_name(group.coordinator) in hit_nodes for group in coordinators)
    }
    partitions = {
        partition
        for partition, partition_status in status.partitions.items()
        if broker_name(partition_status.leader) in hit_nodes
    }
    # Besides its members a group may have spare places: nodes on which a fault can start further
    # members. So all places are looked at.
    for group_id, group in experiment.groups.items():
        for name in (consumer_name(group_id, index) for index in range(group.places_total)):
            if name in hit_nodes:
                groups.add(group_id)
                member = status.members.get(name)  # None if the member did not answer the query
                partitions.update(() if member is None else member.assigned)
    return _sorted(groups, partitions)


def blast_radius_of_partitions(
    partitions: Iterable[TopicPartition], experiment: Experiment
) -> BlastRadius:
    """Return the blast radius of a fault that moves the leaderships of `partitions`.

    The leader of a partition of `__consumer_offsets` is the coordinator of the groups that the
    partition stores. So if this partition moves, these groups are affected.
    """
    moved = set(partitions)
    groups = {
        group_id
        for group_id in experiment.groups
        if TopicPartition(CONSUMER_OFFSETS, group_partition(experiment, group_id)) in moved
    }
    return _sorted(groups, moved)


def _sorted(groups: set[str], partitions: set[TopicPartition]) -> BlastRadius:
    # The results are sorted, because the order of a set differs between processes, but equal runs
    # must have equal traces.
    return BlastRadius(
        groups=tuple(sorted(groups)),
        partitions=tuple(str(partition) for partition in sorted(partitions)),
    )
