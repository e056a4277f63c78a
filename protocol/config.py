"""Kafka's settings under Kafka's names, with Kafka's defaults and bounds.

A field `session_timeout_ms` is the setting `session.timeout.ms`: the structs rename `_` to `.`,
so an experiment file is validated, and its JSON Schema written, from these definitions alone.
Source: BEHAVIOUR 8.1 and 8.2.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

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
    """Settings of brokers and controllers (BEHAVIOUR 8.1)."""

    group_min_session_timeout_ms: PositiveMs = 6_000
    group_max_session_timeout_ms: PositiveMs = 1_800_000
    group_initial_rebalance_delay_ms: Ms = 3_000
    group_max_size: Annotated[int, Meta(ge=1)] = 2_147_483_647
    group_coordinator_new_enable: Literal[False] = False
    offset_metadata_max_bytes: Annotated[int, Meta(ge=0)] = 4_096
    offsets_load_buffer_size: Annotated[int, Meta(ge=1)] = 5_242_880
    offsets_retention_minutes: Annotated[int, Meta(ge=1)] = 10_080
    offsets_retention_check_interval_ms: PositiveMs = 600_000
    offsets_topic_num_partitions: Annotated[int, Meta(ge=1)] = 50
    offsets_topic_replication_factor: Annotated[int, Meta(ge=1)] = 3
    offsets_commit_timeout_ms: PositiveMs = 5_000
    min_insync_replicas: Annotated[int, Meta(ge=1)] = 1
    default_replication_factor: Annotated[int, Meta(ge=1)] = 1
    unclean_leader_election_enable: bool = False
    auto_leader_rebalance_enable: bool = True
    leader_imbalance_check_interval_seconds: Annotated[int, Meta(ge=1)] = 300
    replica_lag_time_max_ms: PositiveMs = 30_000
    replica_fetch_wait_max_ms: Ms = 500
    replica_fetch_max_bytes: Annotated[int, Meta(ge=1)] = 1_048_576
    replica_fetch_backoff_ms: Ms = 1_000
    replica_socket_timeout_ms: PositiveMs = 30_000
    replica_high_watermark_checkpoint_interval_ms: PositiveMs = 5_000
    broker_heartbeat_interval_ms: PositiveMs = 2_000
    broker_session_timeout_ms: PositiveMs = 9_000
    controller_quorum_fetch_timeout_ms: PositiveMs = 2_000
    message_max_bytes: Annotated[int, Meta(ge=1)] = 1_048_588
    log_flush_interval_messages: Annotated[int, Meta(ge=1)] = LONG_MAX
    """A log is flushed at the end of the append with which so many records are unflushed."""
    log_flush_interval_ms: Ms | None = None
    """A log is flushed when a check finds its last flush so long ago; None takes the next one."""
    log_flush_scheduler_interval_ms: PositiveMs = LONG_MAX
    """How often the logs are checked for that; by default never: the operating system flushes."""


class TopicConfig(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename=kafka_name
):
    """Settings of one topic; None takes the broker's."""

    min_insync_replicas: Annotated[int, Meta(ge=1)] | None = None
    unclean_leader_election_enable: bool | None = None
    cleanup_policy: Literal["delete", "compact"] = "delete"
    flush_messages: Annotated[int, Meta(ge=1)] | None = None
    """The topic's own log.flush.interval.messages."""
    flush_ms: Ms | None = None
    """The topic's own log.flush.interval.ms."""


class ConsumerConfig(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename=kafka_name
):
    """Settings of a consumer (BEHAVIOUR 8.2). `bootstrap_servers` empty means every broker."""

    bootstrap_servers: tuple[str, ...] = ()
    session_timeout_ms: PositiveMs = 45_000
    heartbeat_interval_ms: PositiveMs = 3_000
    max_poll_interval_ms: PositiveMs = 300_000
    max_poll_records: Annotated[int, Meta(ge=1)] = 500
    request_timeout_ms: PositiveMs = 30_000
    default_api_timeout_ms: PositiveMs = 60_000
    retry_backoff_ms: PositiveMs = 100
    retry_backoff_max_ms: PositiveMs = 1_000
    reconnect_backoff_ms: PositiveMs = 50
    reconnect_backoff_max_ms: PositiveMs = 1_000
    socket_connection_setup_timeout_ms: PositiveMs = 10_000
    socket_connection_setup_timeout_max_ms: PositiveMs = 30_000
    metadata_max_age_ms: PositiveMs = 300_000
    enable_auto_commit: bool = True
    auto_commit_interval_ms: PositiveMs = 5_000
    auto_offset_reset: Literal["latest", "earliest", "none"] = "latest"
    group_instance_id: str | None = None
    partition_assignment_strategy: tuple[Literal["range"], ...] = ("range",)
    fetch_max_wait_ms: Ms = 500
    fetch_min_bytes: Annotated[int, Meta(ge=1)] = 1
    max_partition_fetch_bytes: Annotated[int, Meta(ge=1)] = 1_048_576


class ProducerConfig(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename=kafka_name
):
    """Settings of a producer."""

    bootstrap_servers: tuple[str, ...] = ()
    acks: Literal["all", "1", "0"] = "all"
    linger_ms: Ms = 5
    request_timeout_ms: PositiveMs = 30_000
    delivery_timeout_ms: PositiveMs = 120_000
    retry_backoff_ms: PositiveMs = 100
    retry_backoff_max_ms: PositiveMs = 1_000
    reconnect_backoff_ms: PositiveMs = 50
    reconnect_backoff_max_ms: PositiveMs = 1_000
    socket_connection_setup_timeout_ms: PositiveMs = 10_000
    metadata_max_age_ms: PositiveMs = 300_000


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
