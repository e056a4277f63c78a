"""Checks of the appends of group coordinators, and of their answers to commits.

A coordinator writes groups and offsets with acks=all, to a partition that its broker leads. So the
leader must refuse the append if its ISR (the replicas in sync) is smaller than min.insync.replicas.
And it must acknowledge the append only when the high watermark has passed the written records. The
checks here look at the log and the ISR of the broker, and not at the coordinator. No check is made
if an experiment has switched off this protection (`Guards`), or if the broker has lost the
leadership meanwhile.

Source: Kafka GroupMetadataManager.appendForGroup, storeOffsets; Partition.appendRecordsToLeader.
"""

from cluster.broker.node import BrokerNode
from cluster.spec import ClusterSpec
from cluster.storage.compression import CODECS
from partition_log.log import PartitionLog
from partition_log.replica import Partition
from protocol.errors import ErrorCode, InvariantViolation
from protocol.ids import CONSUMER_OFFSETS, TopicPartition
from protocol.messages.offset import OffsetCommitRequest, OffsetCommitResponse
from protocol.messages.transaction import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from protocol.partitioner import partition_for
from protocol.records.batch import fields_of
from protocol.records.offsets import decode_offset_commit_value, encode_offset_commit_key
from protocol.trace import TraceKind, TraceRow


class CoordinatorChecks:
    """The checks of one run's appends to `__consumer_offsets`, and of answers to commits.

    Raises: InvariantViolation, from each method.
    """

    def __init__(self, spec: ClusterSpec) -> None:
        self._config = spec.broker_config
        self._gates_answers = spec.guards.high_watermark_gate
        """True if a commit is answered only when the high watermark has passed its record."""
        self._refuses_small_isr = (
            # With `commits_apply_on_append`, appends have acks=1, and need no other replica in
            # sync.
            spec.guards.min_insync_check and not spec.java.commits_apply_on_append
        )
        self._under_min: dict[tuple[str, int, int | None], str] = {}
        """Append -> what was wrong with the ISR when the append started.

        An append is identified by the node, the incarnation and the correlation id of its trace
        row."""
        # Both dicts are caches, because commits are frequent.
        self._partitions: dict[str, int] = {}
        """Group -> its partition of `__consumer_offsets`."""
        self._keys: dict[tuple[str, str, int], bytes] = {}
        """Group, topic and partition -> the key of its committed offset."""

    def appended(self, broker: BrokerNode, partition: Partition | None, row: TraceRow) -> None:
        """Check an append when it starts and when it completes.

        `row` is a row of `broker`. `partition` is the replica that `broker` has of the partition in
        the row; None if `broker` has no replica of it.
        - An append with acks other than 0 started with a large enough ISR.
        - An acknowledged append is below the high watermark.
        """
        append = (row.node, row.incarnation, row.correlation_id)
        if row.kind == TraceKind.APPEND_STARTED:
            if (
                partition is not None
                and self._refuses_small_isr
                # Nearly always all replicas are in sync. Then this test is False, and
                # min.insync.replicas need not be looked up.
                and len(partition.isr) < len(partition.replicas)
            ):
                # As in Kafka, a partition cannot need more replicas than it has.
                least = min(self._min_insync_replicas(broker), len(partition.replicas))
                if len(partition.isr) < least:
                    # A small ISR is a violation only if the append has acks=all. Such an append
                    # has a second row at its end, with the same correlation id. (Tombstones are
                    # appended with acks=0. They have no second row.)
                    self._under_min[append] = (
                        f"{partition.topic_partition}: leader {partition.broker_id} appended at "
                        f"{row.offset} with ISR {partition.isr}, and min.insync.replicas is {least}"
                    )
            return
        evidence = self._under_min.pop(append, None)
        if evidence is not None:
            raise InvariantViolation(
                "an append with acks=all needs min.insync.replicas in sync", evidence
            )
        # The leader acknowledges a record that is not below its high watermark.
        if (
            row.error == ErrorCode.NONE.name
            and self._gates_answers
            and partition is not None
            and partition.is_leader
            and row.offset is not None
            and partition.high_watermark <= row.offset
        ):
            raise InvariantViolation(
                "an acknowledged append is below the high watermark",
                f"{partition.topic_partition}: the coordinator's append at {row.offset} is "
                f"acknowledged, the high watermark of leader {partition.broker_id} is "
                f"{partition.high_watermark}",
            )

    def commit_answered(
        self,
        broker: BrokerNode,
        request: OffsetCommitRequest | TxnOffsetCommitRequest,
        response: OffsetCommitResponse | TxnOffsetCommitResponse,
    ) -> None:
        """Check a commit's answer.

        - OFFSET_METADATA_TOO_LARGE is the answer if the metadata is longer than
          offset.metadata.max.bytes, and only then.
        - Each acknowledged offset is in the log below the high watermark. (The record may come from
          an older commit of the same offset, because a record does not tell to which request it
          belongs.)
        """
        check_metadata(request, response, self._config.offset_metadata_max_bytes)
        accepted = {
            (topic.name, answer.partition_index)
            for topic in response.topics
            for answer in topic.partitions
            if answer.error_code is ErrorCode.NONE
        }
        if not accepted or not self._gates_answers:
            return
        offsets_partitions = broker.metadata.image.topics.get(CONSUMER_OFFSETS)
        if not offsets_partitions:
            return
        group_id = request.group_id
        index = self._partitions.get(group_id)
        if index is None:
            index = self._partitions[group_id] = partition_for(group_id, len(offsets_partitions))
        partition = broker.partitions.get((CONSUMER_OFFSETS, index))
        if partition is None or not partition.is_leader:
            return
        wanted: dict[bytes, int] = {}
        for topic in request.topics:
            for entry in topic.partitions:
                if (topic.name, entry.partition_index) in accepted:
                    name = (group_id, topic.name, entry.partition_index)
                    key = self._keys.get(name)
                    if key is None:
                        key = self._keys[name] = encode_offset_commit_key(
                            group_id, TopicPartition(topic.name, entry.partition_index)
                        )
                    wanted[key] = entry.committed_offset  # the last entry of a partition counts
        _remove_found(wanted, partition.log)
        if wanted:
            raise InvariantViolation(
                "an acknowledged commit is below the high watermark",
                f"{partition.topic_partition}: {partition.broker_id} acknowledges a commit of "
                f"{group_id}, and its log has below the high watermark "
                f"{partition.high_watermark} no record of {wanted}",
            )

    def _min_insync_replicas(self, broker: BrokerNode) -> int:
        """Return min.insync.replicas of `__consumer_offsets`: the topic's own, or the broker's."""
        own = broker.metadata.image.topic_config(CONSUMER_OFFSETS).min_insync_replicas
        return self._config.min_insync_replicas if own is None else own


def check_metadata(
    request: OffsetCommitRequest | TxnOffsetCommitRequest,
    response: OffsetCommitResponse | TxnOffsetCommitResponse,
    max_length: int,
) -> None:
    """Check that exactly the metadata that is too long is refused. Raises: InvariantViolation.

    Kafka compares offset.metadata.max.bytes with the number of UTF-16 units, not of bytes.
    Source: Kafka GroupMetadataManager.validateOffsetMetadataLength.
    """
    too_large = ErrorCode.OFFSET_METADATA_TOO_LARGE
    # Metadata that is None counts as empty.
    lengths = {
        (topic.name, entry.partition_index): _utf16_units(entry.committed_metadata or "")
        for topic in request.topics
        for entry in topic.partitions  # the last entry of a partition counts
    }
    for topic in response.topics:
        for answer in topic.partitions:
            length = lengths[topic.name, answer.partition_index]
            # Two answers can be wrong: NONE for metadata that is too long, and too_large for
            # metadata that is not. An entry with any other error is not checked, because it was
            # refused for another reason.
            is_wrong = (
                length > max_length
                if answer.error_code is ErrorCode.NONE
                else answer.error_code is too_large and length <= max_length
            )
            if is_wrong:
                raise InvariantViolation(
                    "metadata over offset.metadata.max.bytes is refused, and no other",
                    f"{topic.name}-{answer.partition_index} of {request.group_id}: metadata of "
                    f"{length} UTF-16 units has the answer {answer.error_code.name}, and "
                    f"offset.metadata.max.bytes is {max_length}",
                )


def _utf16_units(text: str) -> int:
    """Return the length as Java's String counts it: a character beyond U+FFFF counts twice."""
    return len(text) + sum(character > "\uffff" for character in text)


def _remove_found(wanted: dict[bytes, int], log: PartitionLog) -> None:
    """Remove each entry of `wanted` (key -> offset) for which the log has a record.

    Only records below the high watermark count.

    The log is read backwards from the high watermark, because the wanted records are the newest.
    """
    storage, end = log.storage, log.high_watermark
    for index in range(len(storage) - 1, -1, -1):
        batch = storage.batch(index)
        # A batch that is not wholly below the high watermark does not count. Control batches are
        # markers of transactions, which have no commits.
        if batch.base_offset >= end or batch.is_control or batch.next_offset > end:
            continue
        for key, value, _ in fields_of(batch, CODECS):
            if (
                key in wanted
                and value is not None
                and decode_offset_commit_value(value).offset == wanted[key]
            ):
                del wanted[key]
        if not wanted:
            return
