"""The replicas of partitions that this broker holds, as leader or follower.

A replica is a Partition (package `partition_log`): a state machine with a log. The ReplicaManager
makes each Partition lead or follow, as the metadata says, and passes requests to the Partitions. It
also carries out what a Partition returns. For example, when a leader proposes a new ISR, the
ReplicaManager sends the proposal to the controller. The ReplicaManager knows nothing of groups.

Many requests must wait: a Produce until its records are acknowledged, a Fetch until there are
enough bytes. Whatever happens to a log may end such waits. The methods here only note what has
happened, in `_grown` and `_advanced`. `complete_delayed` ends the waits when a request, an answer
or a timer has been handled completely.

Source: Kafka `ReplicaManager`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from cluster.broker.channels import BrokerIdentity, ControllerChannel
from cluster.broker.control.metadata_cache import MetadataCache
from cluster.broker.replication.delayed_appends import DelayedAppend, DelayedAppends
from cluster.broker.replication.delayed_fetches import DelayedFetches
from cluster.broker.replication.fetch_reader import FetchReader, PartitionKey
from cluster.broker.replication.isr_changes import IsrChanges
from cluster.broker.replication.log_cleaner import LogCleaner
from cluster.broker.replication.log_flusher import LogFlusher
from cluster.broker.replication.quiet_fetches import QuietFetches
from cluster.broker.replication.replica_fetcher import ReplicaFetchers
from cluster.broker.replication.replica_metrics import ReplicaMetrics
from cluster.controller.metadata_image import PartitionRegistration
from cluster.host.host import Host
from cluster.spec import ClusterSpec
from cluster.storage.compression import CODECS
from partition_log.checkpoints import (
    REPLICATION_OFFSET_CHECKPOINT,
    decode_offset_checkpoint,
    encode_offset_checkpoint,
)
from partition_log.invariants import check_log, check_partition
from partition_log.log import PartitionLog
from partition_log.outcomes import (
    AlterPartitionResult,
    AppendInfo,
    FetchResult,
    FollowerFetchResult,
    IsrProposal,
    ReplicaConfig,
)
from partition_log.replica import Partition
from protocol.compression import CompressionType
from protocol.config import TopicConfig
from protocol.effects import Append
from protocol.errors import ErrorCode, InvariantViolation
from protocol.ids import (
    CONSUMER_OFFSETS,
    METADATA_PARTITION,
    NO_BROKER,
    Offset,
    RequestId,
    TopicPartition,
)
from protocol.messages.log import FetchRequest, FetchResponse
from protocol.records.batch import RecordBatch
from protocol.records.control import EndTransactionMarker
from protocol.trace import TraceEvent

INITIAL_EPOCH, FINAL_EPOCH = 0, -1
"""The session epoch in a Fetch that asks for a new session, and in a Fetch without a session.

Source: Kafka FetchMetadata.
"""
AppendCallback = Callable[[ErrorCode], None]
"""Takes the outcome of an append: NONE if it is acknowledged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalLeadership:
    """The effects of a change of the metadata on this broker: the result of `ReplicaManager.apply`.

    `became_leader` and `became_follower` are the partitions with a new leader epoch that this
    broker now leads or follows.
    """

    became_leader: tuple[Partition, ...]
    became_follower: tuple[Partition, ...]
    deleted: tuple[TopicPartition, ...] = ()
    """Partitions of deleted topics, even partitions of which this broker had no replica.

    This includes a topic that was deleted and created again since the last change.
    """


class ReplicaManager:
    """All replicas of this broker, and the requests that wait for them."""

    def __init__(
        self,
        host: Host,
        identity: BrokerIdentity,
        cluster: ClusterSpec,
        cache: MetadataCache,
        controller: ControllerChannel,
    ) -> None:
        self._host = host
        self._identity = identity
        self._config = cluster.broker_config
        self._checkpoint_us = self._config.replica_high_watermark_checkpoint_interval_ms * 1_000
        # As in Kafka, the ISRs are checked after each half of replica.lag.time.max.ms. So a silent
        # follower is removed from an ISR after 1 to 1.5 times this setting.
        self._shrink_us = self._config.replica_lag_time_max_ms * 1_000 // 2
        self._expire_us = self._config.producer_id_expiration_check_interval_ms * 1_000
        # Checks of Kafka that an experiment may switch off.
        self._guards = cluster.guards
        self._cache = cache
        self._partitions: dict[PartitionKey, Partition] = {}
        """The replicas of this broker whose metadata is known."""
        self._topic_offsets: dict[str, int] = {}
        """Topic -> the offset of its TopicRecord in the metadata log, by which we notice that a
        topic was deleted and created again."""
        self._logs: dict[TopicPartition, PartitionLog] = {}
        """Logs that were found on the disk, until the metadata says what their replicas do."""
        self._checkpointed: bytes | None = None
        """The last checkpoint that was written; None at first. An equal checkpoint is not written
        again."""
        self._flusher = LogFlusher(host, cluster, self._all_logs, self._topic_config)
        self._cleaner = LogCleaner(
            host, cluster.broker_config, self._partition_logs, self._topic_config
        )
        self._appends = DelayedAppends()
        self._quiet = QuietFetches(cache.eligible_brokers)
        self._reader = FetchReader(self._partitions, self.absence, self._fetched, self._quiet)
        self._fetches = DelayedFetches(host, self._reader)
        self._fetchers = ReplicaFetchers(
            host, identity, cluster.broker_config, self._follower_fetched
        )
        self._isr_changes = IsrChanges(host, controller, identity, self._isr_changed)
        self._metrics = ReplicaMetrics(
            host, self._partitions, interval_us=cluster.metrics_interval_us
        )
        self._grown: dict[TopicPartition, None] = {}
        """The partitions whose logs grew since the last `complete_delayed`, as keys."""
        self._advanced: dict[TopicPartition, Partition] = {}
        """Partitions whose high watermark, leader or ISR changed since the last
        `complete_delayed`."""
        self._log_moved: Callable[[Partition], None] | None = None
        """The callback that was passed to `watch_offsets_logs`, if any."""
        self._is_completing = False
        self._in_controlled_shutdown = False
        self._ends_at_shut_down: list[tuple[PartitionLog, Offset]] = []
        """End of each log when this broker shut down."""

    def start(self) -> None:
        """Recover the logs from the disk, and begin the periodic work."""
        storage = self._host.storage
        content = storage.read_checkpoint(REPLICATION_OFFSET_CHECKPOINT)
        checkpoint = {} if content is None else decode_offset_checkpoint(content)
        for name in storage.partitions():
            if name != METADATA_PARTITION:
                self._logs[name] = PartitionLog(
                    name, storage.log(name), high_watermark=checkpoint.get(name, 0)
                )
        first_tick_us = self._host.first_tick_us
        self._host.after(first_tick_us("checkpoint", self._checkpoint_us), self._checkpoint)
        self._host.after(first_tick_us("isr-expiration", self._shrink_us), self._shrink_isrs)
        self._host.after(self._expire_us, self._expire_producers)
        self._flusher.start()
        self._cleaner.start(self._logs.values())
        self._metrics.start()

    def begin_controlled_shutdown(self) -> None:
        """From now on, stop following a partition when this broker is removed from its ISR."""
        self._in_controlled_shutdown = True

    def shut_down(self) -> None:
        """Flush all logs and write the high watermarks, as an orderly stop does.

        Source: Kafka LogManager.shutdown, ReplicaManager.shutdown.
        """
        self._ends_at_shut_down = [(log, log.log_end_offset) for log in self._all_logs()]
        self._flusher.flush_all()
        self._write_checkpoint()

    def watch_offsets_logs(self, log_moved: Callable[[Partition], None]) -> None:
        """Call `log_moved` for partitions of `__consumer_offsets` at the end of each input.

        `log_moved` gets the partitions whose log end, high watermark or leadership may have
        changed.
        """
        self._log_moved = log_moved

    @property
    def partitions(self) -> Mapping[PartitionKey, Partition]:
        """All replicas of this broker; to read only."""
        return self._partitions

    def partition(self, name: TopicPartition) -> Partition | None:
        """Return this broker's replica of a partition, None if the broker has no replica."""
        return self._partitions.get(name)

    def absence(self, topic: str, partition: int) -> ErrorCode:
        """Return the error for a partition without a replica on this broker.

        Source: Kafka `getPartitionOrError`.
        """
        if self._cache.contains(topic, partition):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def check_invariants(self, *, thoroughly: bool = False) -> None:
        """Check all invariants. If `thoroughly`, also check the content of every log.

        Raises: InvariantViolation.
        """
        expired_ms = self._host.wall_us() // 1_000 - self._config.producer_id_expiration_ms
        for partition in self._partitions.values():
            check_partition(partition)
            self._check_source(partition)
            self._isr_changes.check_invariants(partition)
            if thoroughly:
                check_log(partition.log, expired_ms=expired_ms)
        if thoroughly:
            self._cleaner.check_invariants()
        self._check_flushed()
        self._appends.check_invariants()
        self._fetches.check_invariants()

    def _check_source(self, partition: Partition) -> None:
        """Check that a follower fetches from its leader, and that a leader does not fetch."""
        name = partition.topic_partition
        source = self._fetchers.source_of(name)
        leader = None if partition.is_leader else partition.leader_id
        # A follower does not fetch while its partition has no leader. A broker in a controlled
        # shutdown does not fetch once it was removed from the ISR.
        may_stop = leader in (None, NO_BROKER) or self._in_controlled_shutdown
        if source != leader and not (source is None and may_stop):
            raise InvariantViolation(
                "a follower fetches from its leader",
                f"{name} on {self._identity.broker_id}: expected to fetch from {leader}, fetches "
                f"from {source}",
            )

    def check_follows_metadata(self) -> None:
        """Check that each replica leads or follows as the published metadata cache says.

        A leader may have a newer partition epoch than the cache, because the controller has
        answered its proposal of a new ISR.

        Raises: InvariantViolation.
        """
        for partition in self._partitions.values():
            name = partition.topic_partition
            known = self._cache.image.partition(name)
            if known is None:
                raise InvariantViolation("a replica is one of the metadata", f"{name} is in none")
            leads = known.leader == self._identity.broker_id
            newer = partition.partition_epoch - known.partition_epoch
            # A replica is never behind the cache, and only a leader may be ahead of it.
            if (
                partition.is_leader != leads
                or partition.leader_epoch != known.leader_epoch
                or newer < 0
                or (newer > 0 and not leads)
            ):
                raise InvariantViolation(
                    "a replica follows the metadata",
                    f"{name} leads: {partition.is_leader}, expected {leads}; leader epoch "
                    f"{partition.leader_epoch}, expected {known.leader_epoch}; partition epoch "
                    f"{partition.partition_epoch}, expected {known.partition_epoch}",
                )

    def check_logs(self) -> None:
        """Check that no log is left of a topic that the published metadata cache lacks.

        Raises: InvariantViolation.
        """
        for name in self._host.storage.partitions():
            if self._cache.image.partition(name) is None:
                raise InvariantViolation("a log is of a topic that exists", f"{name} is deleted")

    def _check_flushed(self) -> None:
        """Check that `shut_down` has flushed each log up to the end that the log had then."""
        for log, end in self._ends_at_shut_down:
            if log.recovery_point < end:
                raise InvariantViolation(
                    "a broker that has shut down has flushed its logs",
                    f"{log.topic_partition} ended at {end}, and is flushed up to "
                    f"{log.recovery_point}",
                )

    # -- metadata --

    def apply(self, changed: Iterable[TopicPartition]) -> LocalLeadership:
        """Make the replicas of the changed partitions lead or follow as the metadata cache says.

        As in Kafka, deletions come first, then new leaders, then new followers.
        Source: Kafka `ReplicaManager.applyDelta`.
        """
        broker_id = self._identity.broker_id
        leading: list[tuple[Partition, PartitionRegistration]] = []
        following: list[tuple[Partition, PartitionRegistration]] = []
        deleted: list[TopicPartition] = []
        changed = tuple(changed)
        anew = self._note_topics(changed)
        for name in changed:
            self._quiet.changed(name)  # the kept answers have the old leader epoch
            registration = self._cache.image.partition(name)
            if registration is None or name.topic in anew:
                deleted.append(name)
                self._delete(name)
        if anew:
            self.complete_delayed()  # answers what waits for a replica of the old topic
        for name in changed:
            registration = self._cache.image.partition(name)
            if registration is not None and broker_id in registration.replicas:
                leads = registration.leader == broker_id
                (leading if leads else following).append((self._get_or_create(name), registration))
        became_leader = [
            partition
            for partition, registration in leading
            if self._make_leader(partition, registration)
        ]
        became_follower = [
            partition
            for partition, registration in following
            if self._make_follower(partition, registration)
        ]
        self.complete_delayed()
        return LocalLeadership(
            became_leader=tuple(became_leader),
            became_follower=tuple(became_follower),
            deleted=tuple(deleted),
        )

    def _note_topics(self, changed: Sequence[TopicPartition]) -> set[str]:
        """Note the topics of `changed`; return the topics that were deleted and created again.

        If a topic was deleted and created again since the last change, the image shows only the new
        topic. The replicas of the old topic must be deleted before the replicas of the new topic
        are created.

        DEVIATION: topics have no id on the disk. So a broker that was down meanwhile keeps the log
        of the old topic.
        """
        anew: set[str] = set()  # a set is allowed here, because its order is never used
        for topic in dict.fromkeys(name.topic for name in changed):
            offset = self._cache.image.topic_offsets.get(topic)
            if offset is None:
                self._topic_offsets.pop(topic, None)
            elif self._topic_offsets.setdefault(topic, offset) != offset:
                self._topic_offsets[topic] = offset
                anew.add(topic)
        return anew

    def _delete(self, name: TopicPartition) -> None:
        """Forget a partition of a deleted topic, and answer the requests that wait for it.

        Source: Kafka `ReplicaManager.stopPartitions` with deletePartition.
        """
        partition = self._partitions.pop(name, None)
        if partition is not None:
            self._fetchers.stop(name)
            self._flusher.forget(name)
            self._cleaner.forget(name)
            partition.delete()
            # `complete_delayed` answers the appends and fetches that wait for the partition.
            self._advanced[name] = partition
            self._grown[name] = None
        # If the topic was deleted while this broker was down, there is only the log on the disk.
        self._logs.pop(name, None)
        self._host.storage.delete(name)

    def _make_leader(self, partition: Partition, registration: PartitionRegistration) -> bool:
        """Make the replica lead, or give it a new ISR; return True in a new leader epoch."""
        change = partition.make_leader(
            leader_epoch=registration.leader_epoch,
            partition_epoch=registration.partition_epoch,
            replicas=registration.replicas,
            isr=registration.isr,
            now_us=self._host.now_us(),
        )
        self._trace(change.trace)
        if change.is_new_leader_epoch:
            self._fetchers.stop(partition.topic_partition)
        # Appends that wait must be checked even if the high watermark did not move, because their
        # outcome also depends on the size of the ISR.
        self._advanced[partition.topic_partition] = partition
        return change.is_new_leader_epoch

    def _make_follower(self, partition: Partition, registration: PartitionRegistration) -> bool:
        """Make the replica follow the partition's leader; return True in a new leader epoch."""
        change = partition.make_follower(
            leader_id=registration.leader,
            leader_epoch=registration.leader_epoch,
            partition_epoch=registration.partition_epoch,
            replicas=registration.replicas,
            isr=registration.isr,
        )
        self._trace(change.trace)
        if self._in_controlled_shutdown and self._identity.broker_id not in registration.isr:
            # The controller takes no stopping broker into an ISR, so there is no point in fetching.
            # Source: applyLocalFollowersDelta.
            self._fetchers.stop(partition.topic_partition)
        elif change.is_new_leader_epoch:
            if registration.leader == NO_BROKER:
                self._fetchers.stop(partition.topic_partition)
            else:
                self._fetchers.follow(partition)
        if change.is_new_leader_epoch:
            # If this replica led before, requests may wait for it. `complete_delayed` answers them
            # NOT_LEADER_OR_FOLLOWER.
            self._advanced[partition.topic_partition] = partition
            self._grown[partition.topic_partition] = None
        return change.is_new_leader_epoch

    def _get_or_create(self, name: TopicPartition) -> Partition:
        """Return this broker's replica; if there is none, make it from its log and its settings."""
        partition = self._partitions.get(name)
        if partition is None:
            # Either the log that `start` found on the disk, with the high watermark from the
            # checkpoint, or a new empty log.
            log = self._logs.pop(name, None) or PartitionLog(name, self._host.storage.log(name))
            self._flusher.configure(log)
            settings = self._topic_config(name.topic)
            log.is_compacted = settings.cleanup_policy == "compact"
            # A topic's own settings take precedence over the broker's. A setting that the topic
            # does not set is None.
            min_insync_replicas = settings.min_insync_replicas
            partition = Partition(
                name,
                self._identity.broker_id,
                log,
                ReplicaConfig(
                    min_insync_replicas=min_insync_replicas or self._config.min_insync_replicas,
                    replica_lag_time_max_ms=self._config.replica_lag_time_max_ms,
                    message_max_bytes=(
                        settings.max_message_bytes or self._config.message_max_bytes
                    ),
                    uses_log_append_time=(
                        settings.message_timestamp_type or self._config.log_message_timestamp_type
                    )
                    == "LogAppendTime",
                    segment_bytes=(
                        self._config.offsets_topic_segment_bytes
                        if name.topic == CONSUMER_OFFSETS
                        else self._config.log_segment_bytes
                    ),
                    min_insync_check=self._guards.min_insync_check,
                ),
            )
            partition.update_eligible_brokers(self._cache.eligible_brokers)
            self._partitions[name] = partition
        return partition

    # -- appends --

    def append_for_coordinator(self, partition: Partition, append: Append) -> AppendInfo:
        """Append a coordinator's batch; the caller then calls `complete_delayed`."""
        info = partition.append_records(
            append.records,
            required_acks=append.required_acks,
            now_us=self._host.now_us(),
            producer_id=append.producer_id,
            producer_epoch=append.producer_epoch,
            is_transactional=append.is_transactional,
            verification_guard=append.verification_guard,
            compression=self._compression_of(partition),
            codecs=CODECS,
        )
        self._appended(partition, info)
        return info

    def _compression_of(self, partition: Partition) -> int:
        """Return the codec of a coordinator's batches; transaction states are never compressed."""
        if partition.topic_partition.topic != CONSUMER_OFFSETS:
            return CompressionType.NONE
        return self._config.offsets_topic_compression_codec

    def append_marker(
        self,
        partition: Partition,
        marker: EndTransactionMarker,
        *,
        producer_id: int,
        producer_epoch: int,
    ) -> AppendInfo:
        """Append the end of a transaction.

        The caller calls `await_acknowledgement`, and then `complete_delayed`.
        """
        info = partition.append_marker(
            marker,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            timestamp_ms=self._host.wall_us() // 1_000,
            now_us=self._host.now_us(),
        )
        self._appended(partition, info)
        return info

    def append_batch(
        self, partition: Partition, batch: RecordBatch, *, required_acks: int
    ) -> AppendInfo:
        """Append a producer's batch; the caller then calls `complete_delayed`.

        If the batch is a duplicate, it may have been acknowledged already, and no later event would
        end a wait for that. So the caller must call `check_acknowledged` before it waits.
        """
        info = partition.append_batch(
            batch,
            required_acks=required_acks,
            now_us=self._host.now_us(),
            wall_ms=self._host.wall_us() // 1_000,
            codecs=CODECS,
        )
        if not info.is_duplicate:
            self._appended(partition, info)
        return info

    def await_acknowledgement(
        self, partition: Partition, info: AppendInfo, on_completed: AppendCallback
    ) -> DelayedAppend:
        """Call `on_completed` once an append with acks=all is acknowledged, or has failed."""
        return self._appends.park(partition, info.next_offset, on_completed)

    def give_up(self, delayed: DelayedAppend) -> None:
        """End the wait for an acknowledgement with REQUEST_TIMED_OUT; the record stays."""
        self._appends.expire(delayed)

    def complete_delayed(self) -> None:
        """End the waits of appends and fetches, until there is none left that can end.

        This is called when a request, an answer or a timer has been handled. If it were called
        earlier, an answer could show only a part of what the request has changed. The end of a wait
        may cause another append, which calls this method again. The inner call returns immediately,
        because the loop of the outer call goes on.
        """
        if self._is_completing:
            return
        self._is_completing = True
        while self._advanced or self._grown:
            advanced, self._advanced = self._advanced, {}
            grown, self._grown = self._grown, {}
            for name, partition in advanced.items():
                self._appends.check(partition)
                self._fetches.high_watermark_advanced(name)
            if grown:
                self._fetches.logs_grew()
            if self._log_moved is not None:
                # A partition that is in both dicts is reported once.
                self._tell_offsets_logs({**dict.fromkeys(grown), **advanced})
        self._is_completing = False

    def _tell_offsets_logs(self, moved: dict[TopicPartition, Partition | None]) -> None:
        """Call `_log_moved` for the partitions of `__consumer_offsets` in `moved`."""
        for name, known in moved.items():
            # If the log has only grown, `known` is None. A deleted partition is not in
            # `_partitions` any more, but `moved` has it, because `_delete` has put it into
            # `_advanced`.
            partition = known or self._partitions.get(name)
            if name.topic == CONSUMER_OFFSETS and partition is not None and self._log_moved:
                self._log_moved(partition)

    def _appended(self, partition: Partition, info: AppendInfo) -> None:
        """Note the effects of an append, unless it failed."""
        if info.error is ErrorCode.NONE:
            self._grown[partition.topic_partition] = None
            self._quiet.changed(partition.topic_partition)
            self._high_watermark_moved(partition, info.new_high_watermark, info.trace)

    # -- fetches --

    def fetch(self, request_id: RequestId, request: FetchRequest) -> None:
        """Answer a Fetch of a follower or a consumer: immediately, or when enough bytes have come.

        DEVIATION: there are no fetch sessions (KIP-227). A client that asks for a session gets
        session id 0 and whole answers, as from a broker whose cache of sessions is full.
        """
        if request.session_epoch not in (INITIAL_EPOCH, FINAL_EPOCH):
            self._host.reply(
                request_id, FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
            )
            return
        read = self._reader.read(request, self._host.now_us())
        if read.is_complete or request.max_wait_ms == 0:
            self._host.reply(request_id, read.response)
        else:
            self._fetches.park(request_id, request, read)
        # The Fetch of a follower may have moved the high watermark, so that appends are
        # acknowledged. As in Kafka, the answer to the Fetch comes first and has the old high
        # watermark.
        self.complete_delayed()

    def waiting_fetches(self) -> frozenset[RequestId]:
        """Return the Fetches that wait for bytes."""
        return self._fetches.waiting()

    def _fetched(self, partition: Partition, result: FetchResult) -> None:
        """Carry out what the Fetch of a follower caused: trace rows, perhaps a new ISR."""
        self._high_watermark_moved(partition, result.new_high_watermark, result.trace)
        if result.proposal is not None:
            self._isr_changes.submit(partition, result.proposal)

    def _follower_fetched(self, partition: Partition, result: FollowerFetchResult) -> None:
        """Carry out what an answer to a Fetch of this broker, a follower here, has caused.

        Nobody waits for the log of a follower, so its growth need not be noted in `_grown`.
        """
        if result.truncated_to is not None:
            self._cleaner.end_moved_back(partition.log)
        self._trace(result.trace)

    # -- ISR --

    def _isr_changed(
        self, partition: Partition, proposal: IsrProposal, result: AlterPartitionResult
    ) -> None:
        """Carry out what the controller's answer to a proposed ISR has caused."""
        self._quiet.changed(partition.topic_partition)
        self._high_watermark_moved(partition, result.new_high_watermark, result.trace)
        if result.committed_isr is not None:
            self._metrics.isr_changed(proposal)
            # The outcome of an append also depends on the size of the ISR (min.insync.replicas).
            self._advanced[partition.topic_partition] = partition
        self.complete_delayed()

    def _shrink_isrs(self) -> None:
        """Propose the removal of followers that lag from the ISRs of the led partitions."""
        now_us = self._host.now_us()
        for partition in self._partitions.values():
            proposal = partition.maybe_shrink_isr(now_us)
            if proposal is not None:
                self._host.log(
                    f"{partition.topic_partition}: wants the ISR {proposal.new_isr} "
                    f"instead of {partition.isr}"
                )
                self._isr_changes.submit(partition, proposal)
        self._host.after(self._shrink_us, self._shrink_isrs)

    # -- high watermarks --

    def _high_watermark_moved(
        self,
        partition: Partition,
        high_watermark: int | None,
        trace: tuple[TraceEvent, ...],
    ) -> None:
        """Write `trace`; note that the high watermark moved, unless `high_watermark` is None."""
        self._trace(trace)
        if high_watermark is not None:
            self._advanced[partition.topic_partition] = partition
            self._quiet.changed(partition.topic_partition)

    def _expire_producers(self) -> None:
        """Forget the producers that have not appended for producer.id.expiration.ms."""
        now_ms = self._host.wall_us() // 1_000
        for log in self._all_logs():
            log.producers.remove_expired(now_ms, self._config.producer_id_expiration_ms)
        self._host.after(self._expire_us, self._expire_producers)

    def _checkpoint(self) -> None:
        self._write_checkpoint()
        self._host.after(self._checkpoint_us, self._checkpoint)

    def _write_checkpoint(self) -> None:
        """Write the high watermarks to the disk if any of them has moved."""
        content = encode_offset_checkpoint(
            (log.topic_partition, log.high_watermark) for log in self._all_logs()
        )
        if content != self._checkpointed:
            self._checkpointed = content
            self._host.storage.write_checkpoint(REPLICATION_OFFSET_CHECKPOINT, content)

    # -- helpers --

    def _all_logs(self) -> list[PartitionLog]:
        """Return the logs of all partitions, and the logs that wait for their first metadata.

        A restarted broker may wait long for its metadata. If it dies during the wait, its next
        incarnation still needs the high watermarks of these logs in the checkpoint.
        """
        return [*self._logs.values(), *(p.log for p in self._partitions.values())]

    def _partition_logs(self) -> list[PartitionLog]:
        """Return the logs of the partitions whose metadata is known."""
        return [partition.log for partition in self._partitions.values()]

    def _topic_config(self, topic: str) -> TopicConfig:
        return self._cache.image.topic_config(topic)

    def _trace(self, events: tuple[TraceEvent, ...]) -> None:
        for event in events:
            self._host.trace(event)
