"""Records of data partitions that were acknowledged with acks=all, and logs that lack them.

An acknowledgement with acks=all says that every in-sync replica has the records. The next leader is
one of these replicas. So when it takes over, its log must have every record that was acknowledged
before. (The checker Fencing checks the same for the appends of coordinators.) There are two
exceptions:

- If unclean elections are allowed, acknowledged records may be lost, so nothing is judged.
- A broker that was paused may take over late, when another leader already has a newer epoch. Its
  log need not have what the other leader has acknowledged.

Nor may two batches be acknowledged at the same offset, because then the first one was lost. Whether
it was lost in a way that Kafka allows is known only at the end of the run, so such a case is first
kept as a doubt.
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
"""Number of a partition's last acknowledgements that are kept. They have the highest offsets."""
MAX_DOUBTS = 100
"""Number of doubts that are kept. There are doubts only if data was lost, allowed or not."""


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
        # partition -> (end offset, row) of each acknowledgement that raised the end, oldest first
        self._ends: dict[str, deque[tuple[int, TraceRow]]] = {}
        self._newest_epochs: dict[str, int] = {}  # partition -> newest leader epoch so far
        self._offsets: dict[str, IntervalSet] = {}  # partition -> acknowledged offsets
        # Names of deleted topics. If an offset is acknowledged again there, it may be that of a new
        # topic with the same name, so there are no doubts about them.
        self._deleted_topics: dict[str, None] = {}
        self.doubts: list[Doubt] = []
        """Acknowledgements at the same offset, to be judged by the caller at the end of the run."""

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
        """Note the acknowledged offsets; doubt those that were acknowledged before."""
        partition, start, end = row.partition or "", row.offset or 0, _end_of(row)
        known = self._offsets.get(partition)
        if known is None:
            known = self._offsets[partition] = IntervalSet()
        # Nearly all records begin where the known ones end. The first test spares these the search.
        if (known.end or 0) > start and known.covered(start, end):
            first = [
                other
                for _, other in self._ends.get(partition, ())
                if (other.offset or 0) < end and _end_of(other) > start
            ]
            self._doubt(
                row,
                f"records {start} to {end - 1} were acknowledged to {row.node}, and at the same "
                "offsets others before",
                [*first[:1], row],
            )
        known.add(start, end)

    def _note_end(self, row: TraceRow) -> None:
        """Keep an acknowledgement, if it is for higher offsets than all before."""
        ends = self._ends.setdefault(row.partition or "", deque(maxlen=MAX_KEPT))
        end = _end_of(row)
        if not ends or end > ends[-1][0]:
            ends.append((end, row))

    def _compare(self, leader: TraceRow) -> MissingRecords | None:
        """Return the acknowledged records that the log of a new leader lacks.

        `leader` is its BECAME_LEADER, whose `offset` is the end of its log.
        """
        partition, epoch = leader.partition or "", leader.leader_epoch or 0
        newest_epoch = self._newest_epochs.get(partition, -1)
        self._newest_epochs[partition] = max(epoch, newest_epoch)
        ends = self._ends.get(partition)
        if ends is None or leader.offset is None or epoch < newest_epoch:
            return None
        # The producer's clock may be behind the leader's, so that an acknowledgement by the new
        # leader itself has an earlier time than its BECAME_LEADER. So only acknowledgements count
        # that are earlier by more than the clock error.
        before_us = leader.time_us - self._context.clock_error_us
        for end, row in reversed(ends):
            if row.time_us >= before_us:
                continue
            if end <= leader.offset:
                return None
            ends.clear()  # the loss is reported once; other records get these offsets now
            return MissingRecords(
                partition=partition, acknowledged=row, last=end - 1, leader=leader
            )
        return None


def _end_of(row: TraceRow) -> int:
    """Return the offset after the records of RECORDS_PRODUCED."""
    count: int = detail_of(row).get("count", 1)
    return (row.offset or 0) + count
