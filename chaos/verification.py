"""The last look of a run: what is committed, read through the cluster's own network."""

from chaos.experiment import Experiment
from cluster.client.admin import VERIFICATION
from cluster.runtime import Runtime
from protocol.ids import TopicPartition
from protocol.trace import TraceEvent, TraceKind


async def read_committed_offsets(experiment: Experiment, runtime: Runtime) -> list[str]:
    """Fetch every group's offsets, which leaves the rows for the checkers; return what failed.

    A partition for which the coordinator has no offset leaves no row of its own: one is written
    here, so that a commit that vanished is seen.
    """
    failures = []
    for group_id, group in experiment.groups.items():
        if group.members_total == 0:
            continue
        try:
            committed = await runtime.committed_offsets(group_id)
        except TimeoutError as error:
            failures.append(f"the offsets of {group_id} could not be read: {error}")
            continue
        for topic in group.topics:
            for index in range(experiment.topics[topic].partitions):
                partition = TopicPartition(topic, index)
                if partition not in committed:
                    runtime.trace(
                        TraceEvent(
                            kind=TraceKind.OFFSETS_FETCHED,
                            group=group_id,
                            partition=str(partition),
                            offset=-1,
                            cause=VERIFICATION,
                        )
                    )
    return failures
