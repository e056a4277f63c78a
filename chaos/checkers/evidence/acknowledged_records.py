"""Acknowledged records of data partitions, and logs of new leaders that lack such records.

Only records that were produced with acks=all are followed. For these records, an acknowledgement
says that every in-sync replica has the records. The next leader is one of these replicas. So when
the next leader takes over, its log must have every record that was acknowledged before. (The
checker Fencing checks the same for the appends of coordinators.) There are two exceptions:

- If unclean elections are allowed, acknowledged records may be lost, so nothing is judged.
- A broker that was paused may take over late, when another leader already has a newer epoch. The
  log of the paused broker need not have the records that the other leader has acknowledged.

Two batches must not be acknowledged at the same offset, because then the first batch was lost.
But Kafka allows some losses, and only at the end of the run it is known whether this loss was
allowed. So two acknowledgements at the same offset are first kept as a doubt.
"""

from collections import deque
from dataclasses import dataclass

from chaos.checkers.context import CheckContext, detail_of, topic_of
from chaos.checkers.evidence.intervals import IntervalSet
from protocol.trace import TraceKind, TraceRow

ACKNOWLEDGEMENT_KINDS = frozenset(
    {
        TraceKind.RECORDS_PRODUCED,
        TraceKind.BECAME_LEADER,
        TraceKind.TOPIC_DELETED,
    }
)
"""Kinds of rows that AcknowledgedRecords must see."""
MAX_KEPT = 256
"""Number of acknowledgements that are kept for a partition: those with the highest offsets."""
MAX_DOUBTS = 100
"""Number of doubts that are kept. Most runs have none, because doubts come only with lost data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """Two acknowledgements at the same offset: a violation, unless the partition lost data."""

    partition: str
    claim: str  # a sentence for the finding
    rows: list[TraceRow]


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingRecords:
    """Acknowledged records that the log of a new leader lacks."""

    partition: str
    acknowledged: TraceRow  # RECORDS_PRODUCED with the highest offsets
    last: int  # offset of the last record in that row
    leader: TraceRow  # BECAME_LEADER of the new leader


class AcknowledgedRecords:
    """Compares the log of each new leader with the records that were acknowledged before."""

    def __init__(self, context: CheckContext) -> None:
        self._context = context
        self._producers = {producer.name for producer in context.producers if producer.acks_all}
        # partition -> (end offset, row) of each acknowledgement whose end offset is higher than all
        # end offsets before; the oldest comes first
        self._ends: dict[str, deque[tuple[int, TraceRow]]] = {}
        self._newest_epochs: dict[str, int] = {}  # partition -> newest leader epoch so far
        self._offsets: dict[str, IntervalSet] = {}  # partition -> acknowledged offsets
        # Names of deleted topics. A new topic may have the same name, and begins with offset 0
        # again. So an offset that is acknowledged again in such a topic raises no doubt.
        self._deleted_topics: dict[str, None] = {}
        self.doubts: list[Doubt] = []
        """Acknowledgements at the same offset. The caller judges them at the end of the run."""

    def observe(self, row: TraceRow) -> MissingRecords | None:
        """Take a row of ACKNOWLEDGEMENT_KINDS; return what the log of a new leader lacks."""
        if self._context.unclean_elections:
            return None
        match row.kind:
            case TraceKind.RECORDS_PRODUCED if row.node in self._producers:
                self._doubt_if_repeated(row)
                self._note_end(row)
            case TraceKind.BECAME_LEADER:
                return self._compare(row)
            case TraceKind.TOPIC_DELETED:
                topic = detail_of(row).get("topic")
                self._deleted_topics[str(topic)] = None
                for partition in list(self._ends):  # a copy: the loop removes entries
                    if topic_of(partition) == topic:
                        del self._ends[partition]
                        self._newest_epochs.pop(partition, None)
            case _:
                pass
        return None

    def _doubt(self, row: TraceRow, claim: str, rows: list[TraceRow]) -> None:
        """Keep a doubt about the partition of `row`, if there is room for it."""
        partition = row.partition or ""
        if len(self.doubts) < MAX_DOUBTS and topic_of(partition) not in self._deleted_topics:
            self.doubts.append(Doubt(partition=partition, claim=claim, rows=rows))

    def _doubt_if_repeated(self, row: TraceRow) -> None:
        """Note the acknowledged offsets; keep a doubt if some were acknowledged before."""
        partition, start, end = row.partition or "", row.offset or 0, _end_of(row)
        known = self._offsets.get(partition)
        if known is None:
            known = self._offsets[partition] = IntervalSet()
        # Nearly all records begin where the known records end. For such records the first test is
        # False, so that no search is needed.
        if (known.end or 0) > start and known.covered(start, end):
            overlapping = [
                other
                for _, other in self._ends.get(partition, ())
                if (other.offset or 0) < end and _end_of(other) > start
            ]
            self._doubt(
                row,
                f"records {start} to {end - 1} were acknowledged to {row.node}, and at the same "
                "offsets others before",
                # One earlier acknowledgement proves the claim. There may be none, because only some
                # acknowledgements are kept.
                [*overlapping[:1], row],
            )
        known.add(start, end)

    def _note_end(self, row: TraceRow) -> None:
        """Keep an acknowledgement if its end offset is higher than all end offsets before."""
        ends = self._ends.setdefault(row.partition or "", deque(maxlen=MAX_KEPT))
        end = _end_of(row)
        if not ends or end > ends[-1][0]:
            ends.append((end, row))

    def _compare(self, leader: TraceRow) -> MissingRecords | None:
        """Return the acknowledged records that the log of a new leader lacks.

        `leader` is the row BECAME_LEADER of the new leader. Its `offset` is the end of the leader's
        log.
        """
        partition, epoch = leader.partition or "", leader.leader_epoch or 0
        newest_epoch = self._newest_epochs.get(partition, -1)
        self._newest_epochs[partition] = max(epoch, newest_epoch)
        ends = self._ends.get(partition)
        if ends is None or leader.offset is None or epoch < newest_epoch:
            return None
        # The producer's clock may be behind the clock of the new leader. Then even an
        # acknowledgement by the new leader itself may have an earlier time than its BECAME_LEADER.
        # So only acknowledgements count that are earlier by more than the clock error.
        before_us = leader.time_us - self._context.clock_error_us
        # Of the acknowledgements that count, the first one in this order has the highest end
        # offset, so it decides.
        for end, row in reversed(ends):
            if row.time_us >= before_us:
                continue
            if end <= leader.offset:
                return None
            # The loss is reported once. From now on other records get the lost offsets.
            ends.clear()
            return MissingRecords(
                partition=partition, acknowledged=row, last=end - 1, leader=leader
            )
        return None


def _end_of(row: TraceRow) -> int:
    """Return the offset after the records of RECORDS_PRODUCED."""
    count: int = detail_of(row).get("count", 1)
    return (row.offset or 0) + count
