"""The last look of a run: what is committed, read through the cluster's own network."""

from chaos.experiment.structs import Experiment, coordinated_groups
from cluster.client.admin.orders import fetch_committed_offsets
from cluster.runtime import Runtime
from protocol.ids import TopicPartition
from protocol.trace import TraceEvent, TraceKind


async def read_committed_offsets(experiment: Experiment, runtime: Runtime) -> list[str]:
    """Fetch every group's offsets, which leaves the rows for the checkers; return what failed.

    Each partition of the group's topics is asked for, so that a commit that vanished is seen.
    """
    failures = []
    for group_id, group in coordinated_groups(experiment).items():
        if group.members_total == 0:
            continue
        partitions = [
            TopicPartition(topic, index)
            for topic in group.topics
            for index in range(experiment.topics[topic].partitions)
        ]
        try:
            await runtime.ask_as_admin(fetch_committed_offsets, group_id, partitions)
        except TimeoutError as error:
            failures.append(f"the offsets of {group_id} could not be read: {error}")
            runtime.trace(
                TraceEvent(kind=TraceKind.OFFSETS_UNREADABLE, group=group_id, cause_text=str(error))
            )
    return failures
