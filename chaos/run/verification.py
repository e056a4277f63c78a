"""The final verification of a run: all committed offsets are read once more.

The administrator's client reads them through the cluster's own network. Each answer becomes a row
of the trace, which the checkers judge.
"""

from collections.abc import Sequence

from chaos.experiment.structs import Experiment, coordinated_groups
from cluster.client.admin.orders import fetch_committed_offsets
from cluster.runtime import Runtime
from protocol.ids import TopicPartition
from protocol.trace import TraceEvent, TraceKind


async def read_committed_offsets(experiment: Experiment, runtime: Runtime) -> list[str]:
    """Fetch every group's offsets, so that the trace has them; return the failures as sentences.

    All partitions of the group's topics are requested by name. If the request were for "all
    committed offsets", the answer would not contain a partition whose commit was lost, and no
    checker would notice.
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
    """Fetch the offsets of `partitions`; return the row of the failure, if there is one.

    A request for all partitions fails while any of them has offsets in an open transaction. If
    members begin a transaction immediately after the last one, every attempt may fail. So after a
    failure each partition is requested alone, and only a failure of such a request counts.
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
