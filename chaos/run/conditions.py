"""Conditions that a cluster must meet before faults, and again after healing.

Each function returns one sentence for each part of its condition that does not hold, so it returns
an empty list when the condition holds. A run that waits for a condition displays these sentences as
its progress, and fails with them.

`status` is the cluster's answer to one query. It has the partitions as the controller knows them,
the groups that each broker has in memory, the servers of ZooKeeper, and the members (the lab's own
consumers) that answered. `experiment` has the partitions, groups and members that should be there.
A late member starts during the run. An ISR is the in-sync replicas of a partition.
"""

from collections.abc import Collection

from chaos.experiment.structs import (
    Experiment,
    consumer_name,
    coordinated_groups,
    group_partition,
    internal_topics,
    to_cluster_spec,
    zookeeper_groups,
    zookeeper_ids,
)
from cluster.runtime import ClusterStatus
from protocol.errors import ErrorCode
from protocol.ids import NodeName, TopicPartition, offsets_partition, zookeeper_name

STABLE = "Stable"  # the coordinator's state of a group
_MEMBER_STABLE = "STABLE"  # a consumer's own state


def missing_for_steady_state(
    experiment: Experiment, status: ClusterStatus, *, guests: bool = False
) -> list[str]:
    """Return what is missing for the cluster's steady state.

    A cluster is steady if every partition has a leader and its full ISR, every group is Stable (no
    rebalance is in progress) with all its members, and each member that commits has had a commit
    acknowledged. Late members are not expected, nor is a group that has only late members. With
    `guests` a group may have additional members: clients from outside.
    """
    members = {group_id: group.members for group_id, group in experiment.groups.items()}
    missing = missing_partitions(experiment, status, full_isr=True)
    missing += missing_groups(experiment, status, members, guests=guests)
    missing += missing_on_zookeeper(experiment, status, members)
    return missing + missing_commits(experiment, status, members, {})


def missing_for_liveness(
    experiment: Experiment,
    status: ClusterStatus,
    commits_before: dict[str, int],
    *,
    lost: Collection[NodeName] = (),
    joined: Collection[NodeName] = (),
    deleted_topics: Collection[str] = (),
    guests: bool = False,
) -> list[str]:
    """Return what is missing for liveness after healing.

    The conditions are the same as for the steady state, except that a partition may lack replicas.

    - `commits_before`: acknowledged commits of each member at healing. Each member needs one more.
    - `lost`: members that are not expected. Members that their group has refused are not expected
      either. All other members are expected, including late and killed ones.
    - `joined`: members that are expected in addition to the members of the experiment.
    - `deleted_topics`: topics whose partitions need no leader.
    - `guests`: a group may have further members, which are clients from outside.
    """
    members = {group_id: group.members_total for group_id, group in experiment.groups.items()}
    lost = (*lost, *_refused(status))
    missing = missing_partitions(experiment, status, full_isr=False, deleted_topics=deleted_topics)
    missing += missing_groups(experiment, status, members, lost=lost, joined=joined, guests=guests)
    missing += missing_on_zookeeper(experiment, status, members, lost=lost, joined=joined)
    return missing + missing_commits(
        experiment, status, members, commits_before, lost=lost, joined=joined
    )


def missing_partitions(
    experiment: Experiment,
    status: ClusterStatus,
    *,
    full_isr: bool,
    deleted_topics: Collection[str] = (),
) -> list[str]:
    """Return the partitions without a leader or, with `full_isr`, without a full ISR.

    Partitions of `deleted_topics` are ignored.
    """
    missing = []
    sizes = {name: partitions for name, (partitions, _) in internal_topics(experiment).items()}
    sizes.update(
        (name, topic.partitions)
        for name, topic in experiment.topics.items()
        if name not in deleted_topics
    )
    for topic, partitions in sizes.items():
        for index in range(partitions):
            partition = TopicPartition(topic, index)
            current = status.partitions.get(partition)
            if current is None or current.leader < 0:
                missing.append(f"{partition} has no leader")
            elif full_isr and len(current.isr) < len(current.replicas):
                missing.append(
                    f"{partition} has {len(current.isr)} of {len(current.replicas)} "
                    "replicas in sync"
                )
    return missing


def missing_groups(
    experiment: Experiment,
    status: ClusterStatus,
    members: dict[str, int],
    *,
    lost: Collection[NodeName] = (),
    joined: Collection[NodeName] = (),
    guests: bool = False,
) -> list[str]:
    """Return what groups lack: each must be Stable at its coordinator, with all its members.

    - `members`: number of members of each group.
    - `lost`: members that are not expected.
    - `joined`: members that are expected in addition.
    - `guests`: if True, a group may have further members, which are clients from outside.

    If the experiment defines members for a group, but none of them is expected now, the group is
    skipped.
    """
    missing = []
    for group_id in coordinated_groups(experiment):
        names = _expected(group_id, members[group_id], lost, joined)
        expected = len(names)
        if not names and experiment.groups[group_id].members_total:
            continue
        # A former coordinator may still have the group in memory. Only the state at the leader of
        # the group's partition counts.
        partition = offsets_partition(group_partition(experiment, group_id))
        leader = status.partitions.get(partition)
        at_leader = [
            group
            for group in status.groups.get(group_id, ())
            if leader is not None and group.coordinator == leader.leader
        ]
        if not at_leader:
            missing.append(f"group {group_id}: its coordinator does not know it")
            continue
        group = at_leader[0]
        if group.state != STABLE:
            missing.append(f"group {group_id} is {group.state}")
        elif len(group.members) != expected and not (guests and len(group.members) > expected):
            # Guests may only add members, so too few members are missing in any case.
            missing.append(f"group {group_id} has {len(group.members)} of {expected} members")
        for name in names:
            member = status.members.get(name)
            if member is None:
                missing.append(f"{name} does not answer")
            elif member.state != _MEMBER_STABLE:
                missing.append(f"{name} is {member.state}")
    return missing


def missing_on_zookeeper(
    experiment: Experiment,
    status: ClusterStatus,
    members: dict[str, int],
    *,
    lost: Collection[NodeName] = (),
    joined: Collection[NodeName] = (),
) -> list[str]:
    """Return the ZooKeeper servers that do not serve, and what groups on ZooKeeper lack.

    The arguments have the same meaning as in `missing_groups`. No znode shows whether a group is
    stable (ZK-27 of docs/kafka/ZOOKEEPER_CONSUMER.md). So a group counts as stable when each member
    is stable, and every partition has one reader.
    """
    missing = [
        f"{zookeeper_name(server_id)} does not serve"
        for server_id in zookeeper_ids(experiment)
        if (server := status.zookeepers.get(zookeeper_name(server_id))) is None
        or not server.is_serving
    ]
    for group_id, group in zookeeper_groups(experiment).items():
        names = _expected(group_id, members[group_id], lost, joined)
        readers: dict[TopicPartition, int] = {}
        for name in names:
            member = status.members.get(name)
            if member is None:
                missing.append(f"{name} does not answer")
                continue
            if member.state != _MEMBER_STABLE:
                missing.append(f"{name} is {member.state}")
            for partition in member.assigned:
                readers[partition] = readers.get(partition, 0) + 1
        if not names:
            continue  # a group without members cannot read its partitions
        for topic in group.topics:
            for index in range(experiment.topics[topic].partitions):
                count = readers.get(TopicPartition(topic, index), 0)
                if count != 1:
                    missing.append(f"{count} members of {group_id} read {topic}-{index}")
    return missing


def missing_commits(
    experiment: Experiment,
    status: ClusterStatus,
    members: dict[str, int],
    commits_before: dict[str, int],
    *,
    lost: Collection[NodeName] = (),
    joined: Collection[NodeName] = (),
) -> list[str]:
    """Return the members without an acknowledged commit beyond `commits_before`.

    Three kinds of members are skipped: members of groups that do not commit, members without
    partitions, and members in `lost`.
    """
    missing = []
    for group_id, definition in experiment.groups.items():
        if not definition.commits:
            continue
        for name in _expected(group_id, members[group_id], lost, joined):
            member = status.members.get(name)
            # `missing_groups` has named a member that does not answer.
            if (
                member is not None
                and member.assigned
                and member.commits_acknowledged <= commits_before.get(name, 0)
            ):
                missing.append(f"{name} has no commit acknowledged")
    return missing


def _expected(
    group_id: str, total: int, lost: Collection[NodeName], joined: Collection[NodeName]
) -> list[NodeName]:
    """Return the members that a group of `total` members is expected to have now."""
    members = [consumer_name(group_id, index) for index in range(total)]
    # The name of a member is `consumer-<group>-<index>`.
    additional = [name for name in joined if name.rpartition("-")[0] == f"consumer-{group_id}"]
    return [name for name in dict.fromkeys((*members, *additional)) if name not in lost]


def _refused(status: ClusterStatus) -> tuple[NodeName, ...]:
    """Return the members that have stopped because they share no assignor with their group."""
    refusal = ErrorCode.INCONSISTENT_GROUP_PROTOCOL.name
    return tuple(name for name, member in status.members.items() if member.ended_by == refusal)


def slow_groups(experiment: Experiment) -> tuple[str, ...]:
    """Return the groups whose application may be slower than `max.poll.interval.ms`.

    Such a group may never be Stable with all its members, although nothing is broken: each member
    leaves when its application misses a poll, and joins again.
    """
    slow = {
        consumer.group_id: None
        for consumer in to_cluster_spec(experiment).consumers
        if consumer.longest_between_polls_us >= 1_000 * consumer.config.max_poll_interval_ms
    }
    return tuple(slow)


def summarize(missing: list[str], limit: int = 4) -> str:
    """Return the first `limit` sentences of `missing` as one, with the number of the others."""
    first_few = "; ".join(missing[:limit])
    return first_few if len(missing) <= limit else f"{first_few}; and {len(missing) - limit} more"
