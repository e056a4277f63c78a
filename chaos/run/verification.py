"""The verification at the end of a run: an administrator's client reads all committed offsets.

Each answer becomes a row of the trace. So the checkers see whether an acknowledged commit was lost.
"""

from collections.abc import Sequence

from chaos.experiment.structs import Experiment, coordinated_groups
from cluster.client.admin.orders import fetch_committed_offsets
from cluster.runtime import Runtime
from protocol.ids import TopicPartition
from protocol.trace import TraceEvent, TraceKind


async def read_committed_offsets(experiment: Experiment, runtime: Runtime) -> list[str]:
    """Fetch the offsets of every group that has a coordinator and members.

    The answers become rows of the trace. Return a sentence for each group whose offsets could not
    be read.

    The request names all partitions of the group's topics. If it asked for "all committed offsets"
    instead, the answer would not contain a partition whose commit was lost, and no checker would
    notice the loss.
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
        failure = await _read(runtime, group_id, partitions)
        if failure is not None:
            failures.append(f"the offsets of {group_id} could not be read: {failure.cause_text}")
            runtime.trace(failure)
    return failures


async def _read(
    runtime: Runtime, group_id: str, partitions: Sequence[TopicPartition]
) -> TraceEvent | None:
    """Fetch the offsets of `partitions`; return a row for the trace if this fails.

    If any of the partitions has offsets in an open transaction, a request for all partitions fails.
    This may happen every time, if the members begin each transaction right after the one before. So
    if the request fails, the function calls itself for each partition alone. Only a failure for a
    single partition counts.
    """
    try:
        await runtime.ask_as_admin(fetch_committed_offsets, group_id, partitions)
    except TimeoutError as error:
        if len(partitions) == 1:
            return TraceEvent(
                kind=TraceKind.OFFSETS_UNREADABLE,
                group=group_id,
                partition=str(partitions[0]),
                cause_text=str(error),
            )
        for partition in partitions:
            if (failure := await _read(runtime, group_id, [partition])) is not None:
                return failure
    return None
