"""Coordinators that answer from a part of the log, because they lost the leadership during a load.

When a broker becomes leader of a partition of `__consumer_offsets`, it loads the partition's groups
into memory. Kafka allows these two steps (`GroupMetadataManager.doLoadGroupsAndOffsets`):

1. A broker is in the middle of a load. It learns that it no longer leads the partition, and reads
   no further. What it has read so far counts as loaded.
2. The broker should now unload the groups. But one thread does all loads and unloads, and the loads
   of other partitions come first. Until the unload, the broker answers for groups whose last
   records it has not read.

Only the first load in a leader epoch has this excuse. A second load in this epoch is an error,
because it begins when the broker already knows that it does not lead. The tests have a schedule of
faults for this case, `coordinator_that_lost_its_log_while_it_loaded_it`.
"""

from protocol.trace import TraceKind, TraceRow

HALF_LOAD_KINDS = frozenset(
    {TraceKind.BECAME_LEADER, TraceKind.LEADER_ELECTED, TraceKind.LOAD_COMPLETED}
)
"""Kinds of rows that HalfLoads must see."""


class HalfLoads:
    """Follows how much of each partition a broker has loaded, and whether it still leads."""

    def __init__(self) -> None:
        # (broker, partition, leader epoch) -> the end of the broker's log when it became leader. A
        # whole load reads up to this offset. The epoch is in the key because a broker may lead
        # again before the load of an earlier epoch has ended.
        self._log_ends: dict[tuple[str, str, int | None], int] = {}
        # (broker, partition) -> last LOAD_COMPLETED, whose `offset` tells how far the load has read
        self._loads: dict[tuple[str, str], TraceRow] = {}
        self._epochs: dict[str, int] = {}  # partition -> the controller's newest leader epoch

    def observe(self, row: TraceRow) -> None:
        """Take a row of HALF_LOAD_KINDS."""
        partition = row.partition or ""
        match row.kind:
            case TraceKind.BECAME_LEADER:
                self._log_ends[row.node, partition, row.leader_epoch] = row.offset or 0
            case TraceKind.LOAD_COMPLETED:
                # A second load in the same epoch has no excuse, so the first load is kept.
                known = self._loads.get((row.node, partition))
                if known is None or known.leader_epoch != row.leader_epoch:
                    self._loads[row.node, partition] = row
            case _:  # LEADER_ELECTED
                self._epochs[partition] = max(row.leader_epoch or 0, self._epochs.get(partition, 0))

    def answers_from_half(self, broker: str, partition: str) -> bool:
        """Return True if a broker was replaced, and its last load did not reach the log's end."""
        load = self._loads.get((broker, partition))
        if load is None:
            return False
        log_end = self._log_ends.get((broker, partition, load.leader_epoch), 0)
        was_replaced = self._epochs.get(partition, 0) > (load.leader_epoch or 0)
        return was_replaced and (load.offset or 0) < log_end
