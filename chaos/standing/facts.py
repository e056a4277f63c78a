"""Makes the answer of a standing cluster to the command `status`.

The answer is a StatusAnswer. It has the state of brokers, partitions and groups, the faults, and
the violations that were found until now. The command gets the answer as JSON, and prints it.
"""

from collections.abc import Sequence

from chaos.experiment.structs import Experiment
from chaos.standing.messages import (
    BrokerFacts,
    GroupAtBroker,
    MemberFacts,
    PartitionFacts,
    StatusAnswer,
)
from cluster.runtime import ClusterStatus, GroupStatus, NodeState
from protocol.ids import BrokerId, broker_name
from results_schema.journal import JournalEntry
from results_schema.results import Finding


def status_answer(
    status: ClusterStatus,
    experiment: Experiment,
    blank: StatusAnswer,
    *,
    faults: Sequence[JournalEntry],
    findings: Sequence[Finding],
    waiting_for: Sequence[str],
    with_partitions: bool,
) -> StatusAnswer:
    """Return the answer: which run this is, and the state of its cluster.

    - `blank`: an answer in which only the fields about the run itself are filled in, such as its
      name and directory. The fields about the cluster come from the other arguments.
    - `with_partitions`: True if the answer is to list every partition.
    """
    # The number of partitions of each topic. Partitions count from 0, so if `orders-5` has the
    # highest number, the topic has six partitions.
    sizes: dict[str, int] = {}
    for partition in status.partitions:
        sizes[partition.topic] = max(sizes.get(partition.topic, 0), partition.partition + 1)
    return StatusAnswer(
        name=blank.name,
        run_directory=blank.run_directory,
        runtime=blank.runtime,
        pid=blank.pid,
        stage=blank.stage,
        time_us=blank.time_us,
        bootstrap=blank.bootstrap,
        controller=status.controller,
        brokers=tuple(
            BrokerFacts(broker_id=broker_id, state=broker_state(status, broker_id))
            for broker_id in sorted(status.brokers_alive)
        ),
        topics=dict(sorted(sizes.items())),
        partitions=_partitions(status) if with_partitions else (),
        groups=group_facts(status, experiment),
        not_up={
            str(node): str(state)
            for node, state in status.nodes.items()
            # Brokers are left out here, because the field `brokers` above has them.
            if state is not NodeState.UP and not _is_broker(node, status)
        },
        faults=tuple(faults),
        records_produced=status.records_produced,
        findings=tuple(f"{finding.check}: {finding.summary}" for finding in findings),
        waiting_for=tuple(waiting_for),
    )


def broker_state(status: ClusterStatus, broker_id: BrokerId) -> str:
    """Return the state of a broker's process as a word.

    If the broker runs, but the controller counts it as dead, return `fenced`.
    """
    word = str(status.nodes.get(broker_name(broker_id), NodeState.DOWN))
    # If no controller answers, `brokers_fenced` lacks the broker. Then it is shown as running.
    if word == NodeState.UP and status.brokers_fenced.get(broker_id, False):
        return "fenced"
    return word


def group_facts(status: ClusterStatus, experiment: Experiment) -> tuple[GroupAtBroker, ...]:
    """Return the groups of the cluster, sorted by name.

    After a failover two brokers may have the same group in memory. Then the group is returned
    twice.
    """
    # member id -> name of the consumer's node. Clients from outside are missing here, because they
    # do not answer status queries.
    nodes = {member.member_id: str(name) for name, member in status.members.items()}
    return tuple(
        _group(group_id, group, nodes, is_of_the_file=group_id in experiment.groups)
        for group_id in sorted(status.groups)
        for group in status.groups[group_id]
    )


def _group(
    group_id: str, group: GroupStatus, nodes: dict[str, str], *, is_of_the_file: bool
) -> GroupAtBroker:
    return GroupAtBroker(
        group=group_id,
        coordinator=group.coordinator,
        offsets_partition=group.offsets_partition,
        state=group.state,
        generation=group.generation,
        members=tuple(
            MemberFacts(member_id=member, node=nodes.get(member), is_leader=member == group.leader)
            for member in group.members
        ),
        is_of_the_file=is_of_the_file,
    )


def _partitions(status: ClusterStatus) -> tuple[PartitionFacts, ...]:
    return tuple(
        PartitionFacts(
            topic=partition.topic,
            partition=partition.partition,
            leader=partition_status.leader,
            leader_epoch=partition_status.leader_epoch,
            replicas=tuple(partition_status.replicas),
            isr=tuple(partition_status.isr),
        )
        for partition, partition_status in sorted(status.partitions.items())
    )


def _is_broker(node: str, status: ClusterStatus) -> bool:
    return any(node == broker_name(broker_id) for broker_id in status.brokers_alive)
