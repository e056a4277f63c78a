"""Kafka's settings under Kafka's names, with Kafka's defaults and bounds.

A field `session_timeout_ms` is the setting `session.timeout.ms`: the structs rename `_` to `.`,
so an experiment file is validated, and its JSON Schema written, from these definitions alone.
The defaults are those of Apache Kafka KAFKA_VERSION, the version of the recordings: 4.0 has others
(linger.ms 5, group.coordinator.new.enable true). Source: BEHAVIOUR 8.1 and 8.2.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from protocol.metadata_version import LATEST_METADATA_VERSION, VERSION_PATTERN

KAFKA_VERSION = "3.9.1"
"""The version whose behaviour and defaults these are."""
PositiveMs = Annotated[int, Meta(ge=1)]
Ms = Annotated[int, Meta(ge=0)]
LONG_MAX = 9_223_372_036_854_775_807
"""Java's Long.MAX_VALUE: Kafka's default where something is never to happen."""


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
    """The shortest session that a member may ask for: less is answered INVALID_SESSION_TIMEOUT."""
    group_max_session_timeout_ms: PositiveMs = 1_800_000
    """The longest session that a member may ask for: more is answered INVALID_SESSION_TIMEOUT."""
    group_initial_rebalance_delay_ms: Ms = 3_000
    """How long the first rebalance of an empty group waits for more members."""
    group_max_size: Annotated[int, Meta(ge=1)] = 2_147_483_647
    """The most members that a group may have: more are answered GROUP_MAX_SIZE_REACHED."""
    group_coordinator_new_enable: Literal[False] = False
    """Which of Kafka's coordinators: false is the Scala one, the only one here so far."""
    inter_broker_protocol_version: Annotated[
        str,
        Meta(
            pattern=VERSION_PATTERN,
            description="a version of Kafka up to 3.9",
            examples=["3.9", "2.1-IV0"],
        ),
    ] = LATEST_METADATA_VERSION
    """As which version of Kafka brokers write groups and offsets; below 2.3 no member is static."""
    offset_metadata_max_bytes: Annotated[int, Meta(ge=0)] = 4_096
    """The longest metadata of a commit: more is answered OFFSET_METADATA_TOO_LARGE."""
    offsets_load_buffer_size: Annotated[int, Meta(ge=1)] = 5_242_880
    """How much of an offsets partition a load reads at once."""
    offsets_retention_minutes: Annotated[int, Meta(ge=1)] = 10_080
    """How long the offsets of an empty group are kept."""
    offsets_retention_check_interval_ms: PositiveMs = 600_000
    """How often expired offsets are looked for."""
    offsets_topic_num_partitions: Annotated[int, Meta(ge=1)] = 50
    """Partitions of `__consumer_offsets`; a group's is its id's hash modulo this."""
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
    """What coordinators compress their batches with: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."""
    offsets_topic_segment_bytes: Annotated[int, Meta(ge=1)] = 104_857_600
    """Bytes of a segment of `__consumer_offsets`; the cleaner leaves the last one alone."""
    offsets_commit_timeout_ms: PositiveMs = 5_000
    """How long a commit, or a group's assignment, waits for its replicas before it fails."""
    transaction_state_log_num_partitions: Annotated[int, Meta(ge=1)] = 50
    """Partitions of `__transaction_state`; a transactional id's is its hash modulo this."""
    transaction_state_log_replication_factor: Annotated[int, Meta(ge=1)] = 3
    """Replicas of each partition of `__transaction_state`."""
    transaction_state_log_min_isr: Annotated[int, Meta(ge=1)] = 2
    """min.insync.replicas of `__transaction_state`."""
    transaction_max_timeout_ms: PositiveMs = 900_000
    """The longest transaction.timeout.ms that a producer may ask for."""
    transaction_abort_timed_out_transaction_cleanup_interval_ms: PositiveMs = 10_000
    """How often transactions are looked for that take longer than transaction.timeout.ms."""
    transactional_id_expiration_ms: PositiveMs = 604_800_000
    """A transactional id that is not used for so long is forgotten."""
    transaction_remove_expired_transaction_cleanup_interval_ms: PositiveMs = 3_600_000
    """How often such ids are looked for."""
    min_insync_replicas: Annotated[int, Meta(ge=1)] = 1
    """Without so many in-sync replicas acks=all is refused; a topic may say otherwise."""
    default_replication_factor: Annotated[int, Meta(ge=1)] = 1
    """Replicas of a topic that is created without saying how many."""
    num_partitions: Annotated[int, Meta(ge=1)] = 1
    """Partitions of a topic that is created without saying how many."""
    auto_create_topics_enable: bool = True
    """Whether the Metadata request of a Kafka client creates topics that do not exist."""
    socket_request_max_bytes: Annotated[int, Meta(ge=1)] = 104_857_600
    """The largest request of a Kafka client; a larger one ends its connection."""
    connections_max_idle_ms: PositiveMs = 600_000
    """A connection of a Kafka client ends after so long without a byte."""
    max_connections: Annotated[int, Meta(ge=0)] = 2_147_483_647
    """The most connections of Kafka clients to a broker; others wait for a free place."""
    max_connections_per_ip: Annotated[int, Meta(ge=0)] = 2_147_483_647
    """The most connections from one address to a broker; others are closed."""
    unclean_leader_election_enable: bool = False
    """Whether a replica out of sync may be elected if no other is left: records are lost."""
    auto_leader_rebalance_enable: bool = True
    """Whether leadership goes back to the preferred leaders by itself."""
    leader_imbalance_check_interval_seconds: Annotated[int, Meta(ge=1)] = 300
    """How often that is looked at."""
    replica_lag_time_max_ms: PositiveMs = 30_000
    """A follower that has not caught up for so long leaves the in-sync replicas."""
    replica_fetch_wait_max_ms: Ms = 500
    """How long a leader holds a follower's fetch that finds nothing new."""
    replica_fetch_max_bytes: Annotated[int, Meta(ge=1)] = 1_048_576
    """How much of a partition a follower fetches at once."""
    replica_fetch_backoff_ms: Ms = 1_000
    """How long a follower waits after a fetch that failed."""
    replica_socket_timeout_ms: PositiveMs = 30_000
    """How long a follower waits for its leader's answer."""
    replica_high_watermark_checkpoint_interval_ms: PositiveMs = 5_000
    """How often high watermarks are written to the disk."""
    broker_heartbeat_interval_ms: PositiveMs = 2_000
    """How often a broker tells the controller that it lives."""
    broker_session_timeout_ms: PositiveMs = 9_000
    """So long after a broker's last heartbeat the controller fences it and elects others."""
    controller_quorum_fetch_timeout_ms: PositiveMs = 2_000
    """How long a broker waits for the answer to its fetch of the metadata log."""
    message_max_bytes: Annotated[int, Meta(ge=1)] = 1_048_588
    """The largest batch that a log takes; a topic may say otherwise."""
    log_message_timestamp_type: Literal["CreateTime", "LogAppendTime"] = "CreateTime"
    """Whose time records have: their producer's or their leader's; a topic may say otherwise."""
    producer_id_expiration_ms: Annotated[int, Meta(ge=1)] = 86_400_000
    """A producer that wrote nothing to a partition for so long is forgotten there."""
    producer_id_expiration_check_interval_ms: PositiveMs = 600_000
    """How often such producers are looked for."""
    log_flush_interval_messages: Annotated[int, Meta(ge=1)] = LONG_MAX
    """A log is flushed at the end of the append with which so many records are unflushed."""
    log_flush_interval_ms: Ms | None = None
    """A log is flushed when a check finds its last flush so long ago; not set: the next one."""
    log_flush_scheduler_interval_ms: PositiveMs = LONG_MAX
    """How often the logs are checked for that; by default never: the operating system flushes."""
    log_segment_bytes: Annotated[int, Meta(ge=14)] = 1_073_741_824
    """Bytes of a segment of any other log; a larger batch is not taken."""
    log_roll_hours: Annotated[int, Meta(ge=1)] = 168
    """A segment ends with the first append so long after its first record."""
    log_roll_ms: PositiveMs | None = None
    """The same in milliseconds; not set: log.roll.hours."""
    log_cleaner_enable: bool = True
    """Whether Kafka's own topics are compacted: of each key only the last record stays."""
    log_cleaner_backoff_ms: PositiveMs = 15_000
    """How often the cleaner looks for a log to clean when there was none."""
    log_cleaner_min_cleanable_ratio: Annotated[float, Meta(ge=0, le=1)] = 0.5
    """A log is cleaned when more than this share of it, without its last segment, is dirty."""
    log_cleaner_delete_retention_ms: Ms = 86_400_000
    """How long the cleaner leaves tombstones, and markers of transactions that left nothing."""
    log_cleaner_min_compaction_lag_ms: Ms = 0
    """Records that are younger are not cleaned."""


class TopicConfig(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename=kafka_name
):
    """Settings of one topic; what is not set is the broker's."""

    min_insync_replicas: Annotated[int, Meta(ge=1)] | None = None
    """The topic's own min.insync.replicas."""
    unclean_leader_election_enable: bool | None = None
    """The topic's own unclean.leader.election.enable."""
    cleanup_policy: Literal["delete", "compact"] = "delete"
    """Whether old records are deleted, or all but the last of each key; the lab does neither with
    data topics."""
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
    """The brokers that it may ask first, as `broker-0`; none means all of them."""
    session_timeout_ms: PositiveMs = 45_000
    """The coordinator drops a member from which it has heard nothing for so long."""
    heartbeat_interval_ms: PositiveMs = 3_000
    """How often a member sends a heartbeat: a third of the session at most."""
    max_poll_interval_ms: PositiveMs = 300_000
    """A member whose application polls more seldom leaves; the rebalance timeout as well."""
    max_poll_records: Annotated[int, Meta(ge=1)] = 500
    """The most records that one poll returns."""
    request_timeout_ms: PositiveMs = 30_000
    """How long a request waits for its answer; then its connection is closed."""
    default_api_timeout_ms: PositiveMs = 60_000
    """How long a call of the application, such as commitSync, tries at most."""
    retry_backoff_ms: PositiveMs = 100
    """How long the first repetition of a failed request waits; it doubles each time."""
    retry_backoff_max_ms: PositiveMs = 1_000
    """The longest that a repetition waits."""
    reconnect_backoff_ms: PositiveMs = 50
    """How long it waits to connect again after a failure; it doubles each time."""
    reconnect_backoff_max_ms: PositiveMs = 1_000
    """The longest that it waits to connect again."""
    socket_connection_setup_timeout_ms: PositiveMs = 10_000
    """How long opening a connection may take; it doubles with each failure."""
    socket_connection_setup_timeout_max_ms: PositiveMs = 30_000
    """The longest that opening a connection may take."""
    metadata_max_age_ms: PositiveMs = 300_000
    """How old what it knows of topics and leaders may grow."""
    enable_auto_commit: bool = True
    """Whether the client commits what was polled; beside `commit_interval_ms`, say false."""
    auto_commit_interval_ms: PositiveMs = 5_000
    """How often it does."""
    auto_offset_reset: Literal["latest", "earliest", "none"] = "latest"
    """Where it begins without a committed offset; `none` makes that an error."""
    group_instance_id: str | None = None
    """Makes members static; `{index}` in it becomes each member's index."""
    partition_assignment_strategy: tuple[Literal["range"], ...] = ("range",)
    """The assignors that it offers, the preferred one first: range alone, so far."""
    # DEVIATION: Kafka's default is [RangeAssignor, CooperativeStickyAssignor]. With both, members
    # vote for range and rebalance eagerly, as here: the second only prepares a rolling upgrade.
    fetch_max_wait_ms: Ms = 500
    """How long a broker holds a fetch that finds less than fetch.min.bytes."""
    fetch_min_bytes: Annotated[int, Meta(ge=1)] = 1
    """How much a fetch waits for."""
    max_partition_fetch_bytes: Annotated[int, Meta(ge=1)] = 1_048_576
    """How much of a partition is fetched at once."""


class ProducerConfig(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename=kafka_name
):
    """Settings of a producer."""

    bootstrap_servers: tuple[str, ...] = ()
    """The brokers that it may ask first, as `broker-0`; none means all of them."""
    acks: Literal["all", "1", "0"] = "all"
    """Who has a record before it is acknowledged: all in-sync replicas, the leader, nobody."""
    # DEVIATION: Kafka's default is true. Of experiments the duplicates are part, and of recorded
    # digests, in which a producer has no id.
    enable_idempotence: bool = False
    """Whether brokers recognise a batch that is sent again; with acks=all only."""
    linger_ms: Ms = 0
    """How long records are gathered into a batch; 0: what waits while others are in flight is."""
    request_timeout_ms: PositiveMs = 30_000
    """How long a request waits for its answer; then its connection is closed."""
    delivery_timeout_ms: PositiveMs = 120_000
    """How long a record is tried: at least linger.ms + request.timeout.ms."""
    retry_backoff_ms: PositiveMs = 100
    """How long the first repetition of a failed request waits; it doubles each time."""
    retry_backoff_max_ms: PositiveMs = 1_000
    """The longest that a repetition waits."""
    reconnect_backoff_ms: PositiveMs = 50
    """How long it waits to connect again after a failure; it doubles each time."""
    reconnect_backoff_max_ms: PositiveMs = 1_000
    """The longest that it waits to connect again."""
    socket_connection_setup_timeout_ms: PositiveMs = 10_000
    """How long opening a connection may take."""
    metadata_max_age_ms: PositiveMs = 300_000
    """How old what it knows of topics and leaders may grow."""


class ZooKeeperConsumerConfig(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename=kafka_name
):
    """Settings of the high-level consumer of Kafka 0.8.2 to 1.1, which lived on ZooKeeper.

    Source: Kafka 1.1 `kafka.consumer.ConsumerConfig`; section 12 of the rules.
    """

    consumer_id: str | None = None
    """Makes the consumer's id `[group]_[this]`; `{index}` in it becomes each member's index."""
    zookeeper_session_timeout_ms: PositiveMs = 6_000
    """Session timeout that it asks for; servers clamp it to 2 to 20 ticks."""
    zookeeper_sync_time_ms: PositiveMs = 2_000
    """How far a follower may be behind; its only use is as the default of rebalance.backoff.ms."""
    rebalance_backoff_ms: PositiveMs | None = None
    """How long it sleeps after an attempt that failed; not set: zookeeper.sync.time.ms."""
    rebalance_max_retries: Annotated[int, Meta(ge=1)] = 4
    """Attempts before a rebalance fails with ConsumerRebalanceFailedException."""
    partition_assignment_strategy: Literal["range", "roundrobin"] = "range"
    """How each consumer computes the assignment, for itself alone."""
    auto_commit_enable: bool = True
    """Whether consumed offsets are committed: periodically, in every rebalance, at shutdown."""
    auto_commit_interval_ms: PositiveMs = 60_000
    """Interval of automatic commits."""
    auto_offset_reset: Literal["largest", "smallest"] = "largest"
    """Where it begins without a stored offset, or with one out of range."""
    offsets_storage: Literal["zookeeper", "kafka"] = "zookeeper"
    """Where offsets are stored."""
    dual_commit_enabled: bool | None = None
    """Whether offsets are stored in both; not set: if offsets.storage is kafka."""
    offsets_channel_backoff_ms: PositiveMs = 1_000
    """How long it waits before it asks the offset manager again."""
    offsets_channel_socket_timeout_ms: PositiveMs = 10_000
    """How long the offset manager may take to answer."""
    offsets_commit_max_retries: Annotated[int, Meta(ge=0)] = 5
    """Repetitions of a periodic commit to Kafka that failed."""
    fetch_message_max_bytes: Annotated[int, Meta(ge=1)] = 1_048_576
    """Most bytes of one partition that a fetch asks for."""
    fetch_min_bytes: Annotated[int, Meta(ge=1)] = 1
    """Bytes that a broker waits for."""
    fetch_wait_max_ms: Ms = 100
    """How long a broker waits for them."""
    queued_max_message_chunks: Annotated[int, Meta(ge=1)] = 2
    """Chunks that wait for a stream; then fetchers wait too."""
    refresh_leader_backoff_ms: PositiveMs = 200
    """How long it waits before it looks for leaders again."""
    socket_timeout_ms: PositiveMs = 30_000
    """How long a broker may take to answer a fetch."""

    @property
    def backoff_ms(self) -> int:
        """What it sleeps after an attempt that failed."""
        return self.rebalance_backoff_ms or self.zookeeper_sync_time_ms

    @property
    def commits_to_both(self) -> bool:
        """Whether offsets are stored in Kafka and in ZooKeeper (ZK-64)."""
        is_kafka = self.offsets_storage == "kafka"
        return is_kafka and self.dual_commit_enabled is not False


class ZooKeeperConfig(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"
):
    """Settings of ZooKeeper's servers, with the values of its sample file.

    Source: ZooKeeper 3.4 `zoo_sample.cfg`, `QuorumPeerConfig`.
    """

    tick_time: PositiveMs = 2_000
    """A tick, in milliseconds: sessions end at whole ticks."""
    init_limit: Annotated[int, Meta(ge=1)] = 10
    """Ticks that a follower may take to begin to follow."""
    sync_limit: Annotated[int, Meta(ge=1)] = 5
    """Ticks that a follower and its leader may hear nothing of each other."""
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
    """Single things that Kafka's Java coordinator does otherwise than the Scala one; all off.

    With all of them off the coordinator is the Scala one (group.coordinator.new.enable false).
    """

    failed_load_refuses: bool = False
    """On: a partition whose load failed, or ended because its leader was replaced, is answered
    NOT_COORDINATOR until a newer leader epoch loads it. Off: it is served without what was not
    read, and offsets that nobody read are answered with -1."""
    append_errors: bool = False
    """On: a commit or a SyncGroup whose append fails is answered as by the Java coordinator:
    COORDINATOR_NOT_AVAILABLE after offsets.commit.timeout.ms, UNKNOWN_SERVER_ERROR for what is too
    large. Off: REQUEST_TIMED_OUT and INVALID_COMMIT_OFFSET_SIZE to a commit,
    REBALANCE_IN_PROGRESS to a SyncGroup that timed out."""
    heartbeats_wait_for_writes: bool = False
    """On: a heartbeat is answered when all is committed that its partition of `__consumer_offsets`
    had in the log when it came; COORDINATOR_NOT_AVAILABLE after offsets.commit.timeout.ms,
    NOT_COORDINATOR if the leadership is lost meanwhile. The session is kept alive at once, and an
    error is told at once. Off: it is answered from memory, also by a leader that is cut off."""
    commits_apply_on_append: bool = False
    """On: a commit is appended also below min.insync.replicas, and counts as soon as the high
    watermark passes it, even if that is after its timeout (COORDINATOR_NOT_AVAILABLE; other errors
    as with `append_errors`); a fetch of stable offsets reads what was written last and waits until
    it is committed, or is answered NOT_COORDINATOR after offsets.commit.timeout.ms; other fetches
    read what is committed. Off: a commit that timed out is forgotten until the next load, and a
    fetch of stable offsets is answered UNSTABLE_OFFSET_COMMIT while one is on its way."""


class Guards(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Switches, on by default, so that an experiment can show what each guard prevents."""

    leader_epoch_guard: bool = True
    """Off: loads and unloads of `__consumer_offsets` are not checked against the known epoch."""
    high_watermark_gate: bool = True
    """Off: an append is acknowledged when the local log has it."""
    generation_check: bool = True
    """Off: a commit or heartbeat of any generation of a known member is accepted."""
    min_insync_check: bool = True
    """Off: acks=all is taken, and the high watermark advances, below min.insync.replicas."""
