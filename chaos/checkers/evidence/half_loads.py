"""Coordinators that answer from a part of the log, because they lost it during its load.

1. In the middle of a load a broker learns that it no longer leads the partition, and reads no
   further. The part that it has read counts as loaded.
2. Its unload waits behind the loads of other partitions. Until then it answers for groups whose
   last records it has not read (Kafka `doLoadGroupsAndOffsets`, and one thread for all loads and
   unloads).
Only the first load of an epoch counts: a second load without leadership has no excuse.
Corpus: `coordinator_that_lost_its_log_while_it_loaded_it`.
"""

from protocol.trace import TraceKind, TraceRow

HALF_LOAD_KINDS = frozenset(
    {TraceKind.BECAME_LEADER, TraceKind.LEADER_ELECTED, TraceKind.LOAD_COMPLETED}
)
"""Kinds of rows that HalfLoads must see."""


class HalfLoads:
    """Follows the extent of each broker's load of each partition, and its leadership."""

    def __init__(self) -> None:
        self._log_ends: dict[tuple[str, str], TraceRow] = {}  # (broker, partition): BECAME_LEADER
        self._loads: dict[tuple[str, str], TraceRow] = {}
        self._epochs: dict[str, int] = {}  # partition -> the controller's newest leader epoch

    def observe(self, row: TraceRow) -> None:
        """Take a row of HALF_LOAD_KINDS."""
        partition = row.partition or ""
        match row.kind:
            case TraceKind.BECAME_LEADER:
                self._log_ends[row.node, partition] = row
            case TraceKind.LOAD_COMPLETED:
                known = self._loads.get((row.node, partition))
                if known is None or known.leader_epoch != row.leader_epoch:
                    self._loads[row.node, partition] = row
            case _:
                self._epochs[partition] = max(row.leader_epoch or 0, self._epochs.get(partition, 0))

    def answers_from_half(self, broker: str, partition: str) -> bool:
        """Return True if a broker has loaded less than it led, and leads no longer."""
        load = self._loads.get((broker, partition))
        led = self._log_ends.get((broker, partition))
        if load is None or led is None or load.leader_epoch != led.leader_epoch:
            return False
        was_replaced = self._epochs.get(partition, 0) > (load.leader_epoch or 0)
        return was_replaced and (load.offset or 0) < (led.offset or 0)
