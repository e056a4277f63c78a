"""A check that loads and unloads of coordinators are not lost, and end in their order.

A broker schedules a load when it becomes the leader of an offsets partition (a partition of
`__consumer_offsets`). It schedules an unload when it stops leading the partition. It carries out
these tasks one after the other. So when a task has ended, all tasks that were scheduled before it
must have ended, too. The schedule and the end of each task are rows in the run's trace. An
incarnation is one life of a broker, from a start to its end.

Source: Kafka GroupMetadataManager, whose scheduler has one thread.
"""

from protocol.errors import InvariantViolation
from protocol.trace import TraceKind, TraceRow

_SCHEDULED: dict[str, str] = {
    TraceKind.LOAD_SCHEDULED: "load",
    TraceKind.UNLOAD_SCHEDULED: "unload",
}
_ENDED: dict[str, str] = {
    TraceKind.LOAD_COMPLETED: "load",
    TraceKind.LOAD_FAILED: "load",
    TraceKind.LOAD_IGNORED: "load",
    TraceKind.UNLOAD_COMPLETED: "unload",
    TraceKind.UNLOAD_IGNORED: "unload",
}
TASK_KINDS = frozenset((*_SCHEDULED, *_ENDED))
"""Kinds of rows that TaskChecks must see."""

_Task = tuple[str, str | None, int | None]
"""Kind of the task ("load" or "unload"), partition and leader epoch."""


class TaskChecks:
    """Compares the tasks that each broker has scheduled with the rows of their ends."""

    def __init__(self) -> None:
        self._scheduled: dict[tuple[str, int], dict[_Task, None]] = {}
        """Node and incarnation -> its tasks that have not ended, in the order of scheduling."""

    def observe(self, row: TraceRow) -> None:
        """Take the next row of TASK_KINDS. Raises: InvariantViolation."""
        tasks = self._scheduled.setdefault((row.node, row.incarnation), {})
        scheduled = _SCHEDULED.get(row.kind)
        if scheduled is not None:
            tasks[scheduled, row.partition, row.leader_epoch] = None
            return
        task = (_ENDED[row.kind], row.partition, row.leader_epoch)
        # With `late_notices_us` a coordinator gets each notice several times, so a task is carried
        # out several times. Its first end has removed the task.
        if task not in tasks:
            return
        earlier = next(iter(tasks))
        if earlier != task:
            kind, partition, leader_epoch = earlier
            raise InvariantViolation(
                "the tasks of a coordinator end in their order, each with a row",
                f"{row.node} incarnation {row.incarnation}: the {task[0]} of {row.partition} in "
                f"epoch {row.leader_epoch} has ended, and the {kind} of {partition} in epoch "
                f"{leader_epoch}, which was scheduled before it, has not",
            )
        del tasks[task]
