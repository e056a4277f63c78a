"""The answer to the command `status`: state of the cluster, its faults, and the findings so far.

A standing cluster runs until a command ends it, and answers other commands until then.
`ClusterStatus` has the latest answers of its nodes. The keys of its field `brokers_alive` are all
brokers; the value is False for a broker that does not live.

A StatusAnswer consists of facts, such as BrokerFacts. A finding is a violation that a checker
reports. A broker is fenced while the controller counts it as dead. The ISR of a partition is its
in-sync replicas.
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
    """Return the answer, which has two parts: the run's identity, and the cluster's state.

    `blank` is an answer with the identity only: the name, run directory, runtime, process, stage,
    time and addresses. The state comes from the other arguments.
    """
    # Topic -> number of its partitions. The first partition has the number 0.
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
            # Brokers are left out, because the field `brokers` has the state of each broker.
            if state is not NodeState.UP and not _is_broker(node, status)
        },
        faults=tuple(faults),
        records_produced=status.records_produced,
        findings=tuple(f"{finding.check}: {finding.summary}" for finding in findings),
        waiting_for=tuple(waiting_for),
    )


def broker_state(status: ClusterStatus, broker_id: BrokerId) -> str:
    """Return the state of a broker's process, or `fenced` if it runs and is fenced."""
    word = str(status.nodes.get(broker_name(broker_id), NodeState.DOWN))
    # If no controller answers, nobody knows whether the broker is fenced. It is shown as running.
    if word == NodeState.UP and status.brokers_fenced.get(broker_id, False):
        return "fenced"
    return word


def group_facts(status: ClusterStatus, experiment: Experiment) -> tuple[GroupAtBroker, ...]:
    """Return every group at each broker that has it in memory, in order of the groups' names."""
    # Only the lab's own consumers tell their member ids, not clients from outside.
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
            leader=known.leader,
            leader_epoch=known.leader_epoch,
            replicas=tuple(known.replicas),
            isr=tuple(known.isr),
        )
        for partition, known in sorted(status.partitions.items())
    )


def _is_broker(node: str, status: ClusterStatus) -> bool:
    return any(node == broker_name(broker_id) for broker_id in status.brokers_alive)
