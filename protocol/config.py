"""Kafka's settings under Kafka's names, with Kafka's defaults and bounds.

A field such as `session_timeout_ms` is the setting `session.timeout.ms`. An experiment file has the
name with dots. The types and bounds below are used to check an experiment file, and for the JSON
Schema of these files. The docstrings of the fields are the texts of the reference pages.

The defaults are the defaults of KAFKA_VERSION, with which the recordings in docs/kafka were made.
Kafka 4.0 has other defaults, for example linger.ms 5 and group.coordinator.new.enable true. An id
such as ZK-10 names a rule in docs/kafka/ZOOKEEPER_CONSUMER.md, which is about the old consumer that
used ZooKeeper.

Kafka has two group coordinators, an older one in Scala and a newer one in Java. This project
imitates the Scala coordinator. Each of the JavaSwitches replaces one behaviour by that of the Java
coordinator.
Source: docs/kafka/BEHAVIOUR.md 8.1 and 8.2.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from protocol.metadata_version import LATEST_METADATA_VERSION, VERSION_PATTERN

KAFKA_VERSION = "3.9.1"
"""Version of Kafka whose behaviour and defaults this project reproduces."""
PositiveMs = Annotated[int, Meta(ge=1)]
Ms = Annotated[int, Meta(ge=0)]
LONG_MAX = 9_223_372_036_854_775_807
"""Java's Long.MAX_VALUE: Kafka's default for a limit that is never reached."""


def kafka_name(field: str) -> str:
    """Return Kafka's name of the setting held by `field`."""
    return field.replace("_", ".")


class BrokerConfig(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename=kafka_name
):
    """Settings of brokers and controllers.

    Source: BEHAVIOUR 8.1.
    """

    group_min_session_timeout_ms: PositiveMs = 6_000
    """Shortest session timeout of a member; a shorter one is answered with
    INVALID_SESSION_TIMEOUT."""
    group_max_session_timeout_ms: PositiveMs = 1_800_000
    """Longest session timeout of a member; a longer one is answered with
    INVALID_SESSION_TIMEOUT."""
    group_initial_rebalance_delay_ms: Ms = 3_000
    """Time for which the first rebalance of an empty group waits for further members."""
    group_max_size: Annotated[int, Meta(ge=1)] = 2_147_483_647
    """Largest number of members of a group; a further member is answered with
    GROUP_MAX_SIZE_REACHED."""
    group_coordinator_new_enable: Literal[False] = False
    """Chooses Kafka's coordinator. False stands for the Scala coordinator; the Java coordinator is
    not implemented."""
    inter_broker_protocol_version: Annotated[
        str,
        Meta(
            pattern=VERSION_PATTERN,
            description="a version of Kafka up to 3.9",
            examples=["3.9", "2.1-IV0"],
        ),
    ] = LATEST_METADATA_VERSION
    """Version of Kafka in whose format brokers write groups and offsets; below 2.3 no member is
    static."""
    offset_metadata_max_bytes: Annotated[int, Meta(ge=0)] = 4_096
    """Largest metadata of a committed offset; larger metadata is answered with
    OFFSET_METADATA_TOO_LARGE."""
    offsets_load_buffer_size: Annotated[int, Meta(ge=1)] = 5_242_880
    """Bytes of an offsets partition that a load reads in one step."""
    offsets_retention_minutes: Annotated[int, Meta(ge=1)] = 10_080
    """Time for which the offsets of an empty group are kept."""
    offsets_retention_check_interval_ms: PositiveMs = 600_000
    """Interval of the check for expired offsets."""
    offsets_topic_num_partitions: Annotated[int, Meta(ge=1)] = 50
    """Number of partitions of `__consumer_offsets`; a group's partition is the hash of its id
    modulo this number."""
    offsets_topic_replication_factor: Annotated[int, Meta(ge=1)] = 3
    """Replicas of each partition of `__consumer_offsets`."""
    offsets_topic_compression_codec: Annotated[
        int,
        Meta(
            ge=0,
            le=4,
            description="Kafka's id of a codec: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd",
        ),
    ] = 0
    """Codec of the coordinators' batches: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."""
    offsets_topic_segment_bytes: Annotated[int, Meta(ge=1)] = 104_857_600
    """Size of a segment of `__consumer_offsets`; the cleaner does not clean the last segment."""
    offsets_commit_timeout_ms: PositiveMs = 5_000
    """Time after which a commit, or a group's assignment, fails if the replicas have not copied
    it."""
    transaction_state_log_num_partitions: Annotated[int, Meta(ge=1)] = 50
    """Number of partitions of `__transaction_state`; an id's partition is the hash of the id modulo
    this number."""
    transaction_state_log_replication_factor: Annotated[int, Meta(ge=1)] = 3
    """Replicas of each partition of `__transaction_state`."""
    transaction_state_log_min_isr: Annotated[int, Meta(ge=1)] = 2
    """min.insync.replicas of `__transaction_state`."""
    transaction_max_timeout_ms: PositiveMs = 900_000
    """Longest transaction.timeout.ms of a producer."""
    transaction_abort_timed_out_transaction_cleanup_interval_ms: PositiveMs = 10_000
    """Interval of the check for transactions that exceed transaction.timeout.ms."""
    transactional_id_expiration_ms: PositiveMs = 604_800_000
    """Time after which an unused transactional id is removed."""
    transaction_remove_expired_transaction_cleanup_interval_ms: PositiveMs = 3_600_000
    """Interval of the check for unused transactional ids."""
    min_insync_replicas: Annotated[int, Meta(ge=1)] = 1
    """In-sync replicas that a write with acks=all needs; a topic may override it."""
    default_replication_factor: Annotated[int, Meta(ge=1)] = 1
    """Replication factor of a topic whose creation names none."""
    num_partitions: Annotated[int, Meta(ge=1)] = 1
    """Number of partitions of a topic whose creation names none."""
    auto_create_topics_enable: bool = True
    """Lets the Metadata request of a Kafka client create missing topics."""
    socket_request_max_bytes: Annotated[int, Meta(ge=1)] = 104_857_600
    """Largest request of a Kafka client; a larger one closes its connection."""
    connections_max_idle_ms: PositiveMs = 600_000
    """Time without bytes after which a broker closes the connection of a Kafka client."""
    max_connections: Annotated[int, Meta(ge=0)] = 2_147_483_647
    """Largest number of Kafka clients' connections to a broker; further connections wait."""
    max_connections_per_ip: Annotated[int, Meta(ge=0)] = 2_147_483_647
    """Largest number of connections from one address to a broker; further connections are
    closed."""
    unclean_leader_election_enable: bool = False
    """Lets a replica that is not in sync become the leader if no in-sync replica is left; records
    are lost then."""
    auto_leader_rebalance_enable: bool = True
    """Lets the controller move leaderships back to the preferred leaders."""
    leader_imbalance_check_interval_seconds: Annotated[int, Meta(ge=1)] = 300
    """Interval of the check for partitions whose preferred leader does not lead."""
    replica_lag_time_max_ms: PositiveMs = 30_000
    """Time after which a follower that has not caught up is removed from the in-sync replicas."""
    replica_fetch_wait_max_ms: Ms = 500
    """Longest time for which a leader holds a follower's fetch without new records."""
    replica_fetch_max_bytes: Annotated[int, Meta(ge=1)] = 1_048_576
    """Bytes of a partition that a follower fetches in one request."""
    replica_fetch_backoff_ms: Ms = 1_000
    """Pause of a follower after a failed fetch."""
    replica_socket_timeout_ms: PositiveMs = 30_000
    """Timeout of a follower's request to its leader."""
    replica_high_watermark_checkpoint_interval_ms: PositiveMs = 5_000
    """Interval in which high watermarks are written to the disk."""
    broker_heartbeat_interval_ms: PositiveMs = 2_000
    """Interval of a broker's heartbeats to the controller."""
    broker_session_timeout_ms: PositiveMs = 9_000
    """Time after a broker's last heartbeat at which the controller fences it and elects other
    leaders."""
    controller_quorum_fetch_timeout_ms: PositiveMs = 2_000
    """Timeout of a broker's fetch of the metadata log."""
    message_max_bytes: Annotated[int, Meta(ge=1)] = 1_048_588
    """Largest batch that is appended to a log; a topic may override it."""
    log_message_timestamp_type: Literal["CreateTime", "LogAppendTime"] = "CreateTime"
    """Timestamp of records: the producer's or the leader's time; a topic may override it."""
    producer_id_expiration_ms: Annotated[int, Meta(ge=1)] = 86_400_000
    """Time without writes after which a partition removes its state of a producer."""
    producer_id_expiration_check_interval_ms: PositiveMs = 600_000
    """Interval of the check for producers without writes."""
    log_flush_interval_messages: Annotated[int, Meta(ge=1)] = LONG_MAX
    """Number of records that are not flushed, at which an append flushes its log."""
    log_flush_interval_ms: Ms | None = None
    """A log is flushed if its last flush is longer ago than this. If it is not set,
    log.flush.scheduler.interval.ms applies."""
    log_flush_scheduler_interval_ms: PositiveMs = LONG_MAX
    """Interval of the check for logs that must be flushed. By default there is no such check, and
    the operating system writes the data to the disk at some time."""
    log_segment_bytes: Annotated[int, Meta(ge=14)] = 1_073_741_824
    """Size of a segment of any log but `__consumer_offsets`; a larger batch is refused."""
    log_roll_hours: Annotated[int, Meta(ge=1)] = 168
    """An append begins a new segment if the first record of the present one is older than this."""
    log_roll_ms: PositiveMs | None = None
    """The time of log.roll.hours in milliseconds. If it is not set, log.roll.hours applies."""
    log_cleaner_enable: bool = True
    """Enables the compaction of Kafka's own topics, which keeps only the last record of each
    key."""
    log_cleaner_backoff_ms: PositiveMs = 15_000
    """Pause of the cleaner after it has found no log to clean."""
    log_cleaner_min_cleanable_ratio: Annotated[float, Meta(ge=0, le=1)] = 0.5
    """Share of a log that must be new since its last cleaning before it is cleaned again. The last
    segment does not count."""
    log_cleaner_delete_retention_ms: Ms = 86_400_000
    """Time for which the cleaner keeps tombstones, and markers of transactions without records."""
    log_cleaner_min_compaction_lag_ms: Ms = 0
    """Age that a record must reach before it is cleaned."""


class TopicConfig(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename=kafka_name
):
    """Settings of one topic. If a setting has no value, the broker's setting applies."""

    min_insync_replicas: Annotated[int, Meta(ge=1)] | None = None
    """The topic's own min.insync.replicas."""
    unclean_leader_election_enable: bool | None = None
    """The topic's own unclean.leader.election.enable."""
    cleanup_policy: Literal["delete", "compact"] = "delete"
    """Retention of old records: deleted by age, or all but the last of each key. The lab does
    neither for data topics."""
    max_message_bytes: Annotated[int, Meta(ge=1)] | None = None
    """The topic's own message.max.bytes."""
    message_timestamp_type: Literal["CreateTime", "LogAppendTime"] | None = None
    """The topic's own log.message.timestamp.type."""
    flush_messages: Annotated[int, Meta(ge=1)] | None = None
    """The topic's own log.flush.interval.messages."""
    flush_ms: Ms | None = None
    """The topic's own log.flush.interval.ms."""


class ConsumerConfig(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename=kafka_name
):
    """Settings of a consumer.

    Source: BEHAVIOUR 8.2.
    """

    bootstrap_servers: tuple[str, ...] = ()
    """Brokers for the first request, such as `broker-0`; empty: all brokers."""
    session_timeout_ms: PositiveMs = 45_000
    """Time without requests of a member after which the coordinator removes the member."""
    heartbeat_interval_ms: PositiveMs = 3_000
    """Interval of a member's heartbeats; at most a third of session.timeout.ms."""
    max_poll_interval_ms: PositiveMs = 300_000
    """Longest time between two polls, after which the member leaves its group. It is also the time
    that a rebalance waits for the member."""
    max_poll_records: Annotated[int, Meta(ge=1)] = 500
    """Largest number of records that one poll returns."""
    request_timeout_ms: PositiveMs = 30_000
    """Timeout of a request, after which its connection is closed."""
    default_api_timeout_ms: PositiveMs = 60_000
    """Longest duration of an application's call, such as commitSync, with all retries."""
    retry_backoff_ms: PositiveMs = 100
    """Pause before the first retry of a failed request; it doubles with each retry."""
    retry_backoff_max_ms: PositiveMs = 1_000
    """Longest pause before a retry."""
    reconnect_backoff_ms: PositiveMs = 50
    """Pause before reconnecting after a failure; it doubles with each failure."""
    reconnect_backoff_max_ms: PositiveMs = 1_000
    """Longest pause before reconnecting."""
    socket_connection_setup_timeout_ms: PositiveMs = 10_000
    """Timeout for opening a connection; it doubles with each failure."""
    socket_connection_setup_timeout_max_ms: PositiveMs = 30_000
    """Longest timeout for opening a connection."""
    metadata_max_age_ms: PositiveMs = 300_000
    """Age at which the client's metadata of topics and leaders is fetched again."""
    enable_auto_commit: bool = True
    """Lets the client commit polled records automatically; must be false with
    `commit_interval_ms`."""
    auto_commit_interval_ms: PositiveMs = 5_000
    """Interval of automatic commits."""
    auto_offset_reset: Literal["latest", "earliest", "none"] = "latest"
    """Position of a consumer without a committed offset; `none` makes that an error."""
    group_instance_id: str | None = None
    """Makes members static; `{index}` is replaced by each member's index."""
    partition_assignment_strategy: tuple[Literal["range", "roundrobin"], ...] = ("range",)
    """Assignors that a member supports, the preferred one first. Members vote for one that all
    support; a member that supports none of its group's assignors is refused, and stops."""
    # DEVIATION: Kafka's default is [RangeAssignor, CooperativeStickyAssignor]. With this default,
    # members vote for range and rebalance eagerly, as here. Kafka lists the second assignor only to
    # permit a later rolling upgrade to it.
    fetch_max_wait_ms: Ms = 500
    """Longest time for which a broker holds a fetch with less than fetch.min.bytes."""
    fetch_min_bytes: Annotated[int, Meta(ge=1)] = 1
    """Bytes for which a broker holds a fetch, up to fetch.max.wait.ms."""
    max_partition_fetch_bytes: Annotated[int, Meta(ge=1)] = 1_048_576
    """Bytes of a partition that are fetched in one request."""


class ProducerConfig(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename=kafka_name
):
    """Settings of a producer."""

    bootstrap_servers: tuple[str, ...] = ()
    """Brokers for the first request, such as `broker-0`; empty: all brokers."""
    acks: Literal["all", "1", "0"] = "all"
    """Replicas that have a record before it is acknowledged: all in sync, the leader, or none."""
    # DEVIATION: Kafka's default is true. With false, experiments show duplicates. Another reason is
    # that the recorded digests of this project come from runs whose producers have no id.
    enable_idempotence: bool = False
    """Lets brokers recognise a batch that is sent again; requires acks=all."""
    linger_ms: Ms = 0
    """Time for which records are collected into a batch. With 0 they are collected only while an
    earlier batch is in flight."""
    request_timeout_ms: PositiveMs = 30_000
    """Timeout of a request, after which its connection is closed."""
    delivery_timeout_ms: PositiveMs = 120_000
    """Longest time from a record's send to its acknowledgement, with all retries. It must be at
    least linger.ms + request.timeout.ms."""
    retry_backoff_ms: PositiveMs = 100
    """Pause before the first retry of a failed request; it doubles with each retry."""
    retry_backoff_max_ms: PositiveMs = 1_000
    """Longest pause before a retry."""
    reconnect_backoff_ms: PositiveMs = 50
    """Pause before reconnecting after a failure; it doubles with each failure."""
    reconnect_backoff_max_ms: PositiveMs = 1_000
    """Longest pause before reconnecting."""
    socket_connection_setup_timeout_ms: PositiveMs = 10_000
    """Timeout for opening a connection."""
    metadata_max_age_ms: PositiveMs = 300_000
    """Age at which the client's metadata of topics and leaders is fetched again."""


class ZooKeeperConsumerConfig(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename=kafka_name
):
    """Settings of the high-level consumer of Kafka 0.8.2 to 1.1, which used ZooKeeper.

    Source: Kafka 1.1 `kafka.consumer.ConsumerConfig`; docs/kafka/ZOOKEEPER_CONSUMER.md 12.
    """

    consumer_id: str | None = None
    """Second part of the consumer's id `[group]_[consumer.id]`; `{index}` is replaced by a member's
    index."""
    zookeeper_session_timeout_ms: PositiveMs = 6_000
    """Session timeout that the client requests; servers limit it to 2 to 20 ticks."""
    zookeeper_sync_time_ms: PositiveMs = 2_000
    """Lag of a ZooKeeper follower; used only as the default of rebalance.backoff.ms."""
    rebalance_backoff_ms: PositiveMs | None = None
    """Pause after a failed attempt of a rebalance; not set: zookeeper.sync.time.ms."""
    rebalance_max_retries: Annotated[int, Meta(ge=1)] = 4
    """Attempts before a rebalance fails with ConsumerRebalanceFailedException."""
    partition_assignment_strategy: Literal["range", "roundrobin"] = "range"
    """Algorithm by which each consumer computes its own share."""
    auto_commit_enable: bool = True
    """Commits consumed offsets: periodically, in every rebalance, and at shutdown."""
    auto_commit_interval_ms: PositiveMs = 60_000
    """Interval of automatic commits."""
    auto_offset_reset: Literal["largest", "smallest"] = "largest"
    """Position of a consumer without a stored offset, or with a stored offset that is out of
    range."""
    offsets_storage: Literal["zookeeper", "kafka"] = "zookeeper"
    """Store of the committed offsets."""
    dual_commit_enabled: bool | None = None
    """Stores offsets in Kafka and in ZooKeeper; not set: true if offsets.storage is kafka."""
    offsets_channel_backoff_ms: PositiveMs = 1_000
    """Pause before a retry of a request to the offset manager."""
    offsets_channel_socket_timeout_ms: PositiveMs = 10_000
    """Timeout of a request to the offset manager."""
    offsets_commit_max_retries: Annotated[int, Meta(ge=0)] = 5
    """Retries of a failed periodic commit to Kafka."""
    fetch_message_max_bytes: Annotated[int, Meta(ge=1)] = 1_048_576
    """Bytes of a partition that are fetched in one request."""
    fetch_min_bytes: Annotated[int, Meta(ge=1)] = 1
    """Bytes for which a broker holds a fetch, up to fetch.wait.max.ms."""
    fetch_wait_max_ms: Ms = 100
    """Longest time for which a broker holds a fetch with less than fetch.min.bytes."""
    queued_max_message_chunks: Annotated[int, Meta(ge=1)] = 2
    """Number of chunks of records that may wait for a stream. When there are that many, the
    fetchers wait."""
    refresh_leader_backoff_ms: PositiveMs = 200
    """Pause before the next search for leaders."""
    socket_timeout_ms: PositiveMs = 30_000
    """Timeout of a fetch."""

    @property
    def backoff_ms(self) -> int:
        """Pause after a failed attempt of a rebalance."""
        return self.rebalance_backoff_ms or self.zookeeper_sync_time_ms

    @property
    def commits_to_both(self) -> bool:
        """True if offsets are stored in Kafka and in ZooKeeper (ZK-64)."""
        is_kafka = self.offsets_storage == "kafka"
        # None means that the setting is not set. The default is true if offsets.storage is kafka.
        return is_kafka and self.dual_commit_enabled is not False


class ZooKeeperConfig(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"
):
    """Settings of ZooKeeper's servers, with the values of its sample file.

    Source: ZooKeeper 3.4 `zoo_sample.cfg`, `QuorumPeerConfig`.
    """

    tick_time: PositiveMs = 2_000
    """Length of a tick, in milliseconds; sessions end at whole ticks."""
    init_limit: Annotated[int, Meta(ge=1)] = 10
    """Ticks in which a follower must be up to date."""
    sync_limit: Annotated[int, Meta(ge=1)] = 5
    """Longest silence between a follower and its leader, in ticks."""
    min_session_timeout: PositiveMs | None = None
    """Shortest session timeout in milliseconds; not set: 2 ticks."""
    max_session_timeout: PositiveMs | None = None
    """Longest session timeout in milliseconds; not set: 20 ticks."""

    def negotiated_timeout_ms(self, wanted_ms: int) -> int:
        """Return a session's timeout: 2 to 20 ticks, unless the settings say otherwise (ZK-10)."""
        shortest = self.min_session_timeout or 2 * self.tick_time
        longest = self.max_session_timeout or 20 * self.tick_time
        return max(shortest, min(wanted_ms, longest))


class JavaSwitches(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Single differences of Kafka's Java coordinator from its Scala coordinator, off by default.

    With all of them off, this project's coordinator behaves as the Scala coordinator
    (group.coordinator.new.enable=false).
    """

    failed_load_refuses: bool = False
    """On: if a load failed, or ended because the leader was replaced, requests for the partition
    are answered with NOT_COORDINATOR until a newer leader epoch loads it. Off: the partition is
    served without the records that were not read; offsets in these are answered with -1."""
    append_errors: bool = False
    """On: a commit or a SyncGroup whose append fails is answered with COORDINATOR_NOT_AVAILABLE
    (after offsets.commit.timeout.ms) or with UNKNOWN_SERVER_ERROR (a record that is too large).
    Off: a commit is answered with REQUEST_TIMED_OUT or INVALID_COMMIT_OFFSET_SIZE, a SyncGroup that
    timed out with REBALANCE_IN_PROGRESS."""
    heartbeats_wait_for_writes: bool = False
    """On: the answer to a heartbeat waits until the high watermark has reached the end that the log
    of its `__consumer_offsets` partition had when the heartbeat came. The answer is
    COORDINATOR_NOT_AVAILABLE if this takes longer than offsets.commit.timeout.ms, and
    NOT_COORDINATOR if the leadership is lost meanwhile. The session is restarted without this wait,
    and a refusal is answered without it. Off: a heartbeat is answered from memory, even by a leader
    that is cut off."""
    commits_apply_on_append: bool = False
    """On: a commit is appended even below min.insync.replicas, and counts once the high watermark
    has passed it, even after its timeout. The timeout is answered with COORDINATOR_NOT_AVAILABLE,
    other errors as with `append_errors`. A fetch of stable offsets reads the last written offset;
    its answer waits until that offset is committed, and is NOT_COORDINATOR after
    offsets.commit.timeout.ms. Other fetches read committed offsets. Off: a commit that timed out is
    ignored until the next load. While a commit is being written, a fetch of stable offsets is
    answered with UNSTABLE_OFFSET_COMMIT."""


class Guards(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Guards of Kafka, all on; an experiment switches one off to show what the guard prevents."""

    leader_epoch_guard: bool = True
    """Off: loads and unloads of `__consumer_offsets` are not checked against the known epoch."""
    high_watermark_gate: bool = True
    """Off: an append is acknowledged once the leader's own log has it."""
    generation_check: bool = True
    """Off: a commit or heartbeat of a known member is accepted, whatever generation it names."""
    min_insync_check: bool = True
    """Off: acks=all is accepted, and the high watermark advances, below min.insync.replicas."""
