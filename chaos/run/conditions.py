"""Conditions that a cluster must fulfil before faults are injected, and again after their healing.

A function for a condition compares what the experiment defines with the state that the cluster has
reported (`status`). It returns a sentence for each thing that is missing:

    ["orders-2 has no leader", "group billing is PreparingRebalance"]

An empty list means that the condition is fulfilled. While a run waits for a condition, it shows
these sentences as its progress. If it waits in vain, it gives them as the reason.
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

STABLE = "Stable"  # name of a group's state at its coordinator
_MEMBER_STABLE = "STABLE"  # name of a consumer's own state


def missing_for_steady_state(
    experiment: Experiment, status: ClusterStatus, *, guests: bool = False
) -> list[str]:
    """Return what is missing for the cluster's steady state.

    The cluster is steady if these conditions hold:

    - Every partition has a leader and its full ISR.
    - Every group is Stable, with all its members.
    - Each member that commits has had a commit acknowledged.

    Members that start later, during the run, are not expected yet. If `guests` is True, a group may
    have additional members, which are clients from outside.
    """
    members = {group_id: group.members for group_id, group in experiment.groups.items()}
    missing = missing_partitions(experiment, status, full_isr=True)
    missing += missing_groups(experiment, status, members, guests=guests)
    missing += missing_on_zookeeper(experiment, status, members)
    # Without `commits_before` each member needs its first commit.
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
    """Return what is missing for liveness, after all faults were undone (the healing).

    The conditions are the same as for the steady state, except that a partition may lack replicas.

    All members of the experiment are expected, because the healing has started killed members
    again. There are two exceptions, which stay away: the members in `lost`, and members that their
    group has refused.

    - `commits_before`: the number of acknowledged commits that each member had at the healing. Each
      member needs one more.
    - `lost`: members that never come back.
    - `joined`: members that a fault has started in addition to the experiment's own members.
    - `deleted_topics`: topics that a fault has deleted. Their partitions need no leader.
    - `guests`: if True, a group may have further members, which are clients from outside.
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
    """Return the partitions that have no leader, as sentences such as "orders-2 has no leader".

    If `full_isr` is True, also return the partitions without a full ISR (set of in-sync replicas),
    such as "orders-1 has 2 of 3 replicas in sync". Partitions of `deleted_topics` are ignored.
    """
    missing = []
    # topic -> number of its partitions
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
            if current is None or current.leader < 0:  # -1 stands for "no leader"
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
    """Return what groups lack. Each must be Stable at its coordinator, with all its members.

    - `members`: number of members of each group.
    - `lost`: members that are not expected.
    - `joined`: members that are expected in addition.
    - `guests`: if True, a group may have further members, which are clients from outside.

    If all members of a group start later, the group is skipped, because no coordinator knows it
    yet. But a group for which the experiment defines no members at all is not skipped.
    """
    missing = []
    for group_id in coordinated_groups(experiment):
        names = _expected(group_id, members[group_id], lost, joined)
        expected = len(names)
        if not names and experiment.groups[group_id].members_total:
            continue  # all members start later
        # A broker that was the group's coordinator before may still have the group in its memory.
        # So only the state at the leader of the group's partition counts.
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
            # With guests a group may have more members than expected, but never fewer.
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

    A group on ZooKeeper has no coordinator that could be asked for the group's state. There is no
    znode either that shows whether the group is stable (ZK-27 of docs/kafka/ZOOKEEPER_CONSUMER.md).
    So the group counts as stable if each member says that it is stable, and if every partition is
    read by exactly one member. The arguments have the same meaning as in `missing_groups`.
    """
    missing = []
    for server_id in zookeeper_ids(experiment):
        server = status.zookeepers.get(zookeeper_name(server_id))
        if server is None or not server.is_serving:
            missing.append(f"{zookeeper_name(server_id)} does not serve")
    for group_id, group in zookeeper_groups(experiment).items():
        names = _expected(group_id, members[group_id], lost, joined)
        readers: dict[TopicPartition, int] = {}  # partition -> number of members that read it
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
    """Return the members that have no more acknowledged commits than in `commits_before`.

    If a member is not in `commits_before`, it needs its first commit. Members of groups that do not
    commit need no commit, and members without partitions need none either.
    """
    missing = []
    for group_id, definition in experiment.groups.items():
        if not definition.commits:
            continue
        for name in _expected(group_id, members[group_id], lost, joined):
            member = status.members.get(name)
            # If a member does not answer, `missing_groups` reports this.
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
    """Return the names of the members that the group should have now.

    These are its first `total` members and its members in `joined`. Members in `lost` are left out.
    """
    members = [consumer_name(group_id, index) for index in range(total)]
    # The name of a member is `consumer-<group>-<index>`.
    additional = [name for name in joined if name.rpartition("-")[0] == f"consumer-{group_id}"]
    return [name for name in dict.fromkeys((*members, *additional)) if name not in lost]


def _refused(status: ClusterStatus) -> tuple[NodeName, ...]:
    """Return the members that gave up because their group has refused them.

    A coordinator refuses a member that shares no assignor with the other members.
    """
    refusal = ErrorCode.INCONSISTENT_GROUP_PROTOCOL.name
    return tuple(name for name, member in status.members.items() if member.ended_by == refusal)


def slow_groups(experiment: Experiment) -> tuple[str, ...]:
    """Return the groups whose application may need more time than `max.poll.interval.ms`.

    A member leaves its group if its application does not poll within this time, and joins again
    later. So such a group may never be Stable with all its members, although nothing is broken.
    """
    slow = {
        consumer.group_id: None
        for consumer in to_cluster_spec(experiment).consumers
        if consumer.longest_between_polls_us >= 1_000 * consumer.config.max_poll_interval_ms
    }
    return tuple(slow)


def summarize(missing: list[str], limit: int = 4) -> str:
    """Return the first sentences of `missing` as one text, such as "A; B; C; D; and 3 more"."""
    first_few = "; ".join(missing[:limit])
    return first_few if len(missing) <= limit else f"{first_few}; and {len(missing) - limit} more"
