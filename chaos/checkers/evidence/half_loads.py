"""Coordinators that answer from a part of the log, because they lost the leadership in a load.

A broker that becomes leader of a partition of `__consumer_offsets` loads it: it reads the
partition's groups into memory. It unloads (drops) them when it is no longer leader. Kafka allows
this sequence (`doLoadGroupsAndOffsets`):
1. In the middle of a load a broker learns that it no longer leads the partition, and reads no
   further. The part that it has read counts as loaded.
2. Its unload waits behind the loads of other partitions, because one thread does all loads and
   unloads. Until the unload the broker answers for groups whose last records it has not read.

Only the first load in a leader epoch (the number of the partition's leadership) has this excuse. A
second load without leadership is an error. In the corpus (schedules that the tests play),
`coordinator_that_lost_its_log_while_it_loaded_it` shows the case.
"""

from protocol.trace import TraceKind, TraceRow

HALF_LOAD_KINDS = frozenset(
    {TraceKind.BECAME_LEADER, TraceKind.LEADER_ELECTED, TraceKind.LOAD_COMPLETED}
)
"""Kinds of rows that HalfLoads must see."""


class HalfLoads:
    """Follows how much of each partition each broker has loaded, and whether it still leads."""

    def __init__(self) -> None:
        # (broker, partition, leader epoch) -> the end of the log at the beginning of the epoch. The
        # broker may lead again before the load of an earlier epoch has ended.
        self._log_ends: dict[tuple[str, str, int | None], int] = {}
        # (broker, partition) -> LOAD_COMPLETED, whose offset is the end of the part that was read
        self._loads: dict[tuple[str, str], TraceRow] = {}
        self._epochs: dict[str, int] = {}  # partition -> the controller's newest leader epoch

    def observe(self, row: TraceRow) -> None:
        """Take a row of HALF_LOAD_KINDS."""
        partition = row.partition or ""
        match row.kind:
            case TraceKind.BECAME_LEADER:
                self._log_ends[row.node, partition, row.leader_epoch] = row.offset or 0
            case TraceKind.LOAD_COMPLETED:
                # Only the first load of an epoch has the excuse, so a second one is not kept.
                load = self._loads.get((row.node, partition))
                if load is None or load.leader_epoch != row.leader_epoch:
                    self._loads[row.node, partition] = row
            case _:
                self._epochs[partition] = max(row.leader_epoch or 0, self._epochs.get(partition, 0))

    def answers_from_half(self, broker: str, partition: str) -> bool:
        """Return True if a broker's last load ended before the end of its log, in an old epoch."""
        load = self._loads.get((broker, partition))
        if load is None:
            return False
        log_end = self._log_ends.get((broker, partition, load.leader_epoch), 0)
        was_replaced = self._epochs.get(partition, 0) > (load.leader_epoch or 0)
        return was_replaced and (load.offset or 0) < log_end
