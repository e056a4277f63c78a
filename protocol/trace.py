"""The rows of the trace: one flat, typed row for each event of a run.

If something noteworthy happens in a node of the cluster, the node makes a `TraceEvent`, for example
"group g has become Stable". `stamp` adds when and where this happened: the time, the node, the
incarnation (the number of the node's process, from 0) and a sequence number. The result is a
`TraceRow`. A cluster may run in one process with simulated time, or in real processes. Both kinds
of runs write the same rows. The checks that follow a run read the rows, and so do the programs that
compute tables of results.
"""

from enum import StrEnum

import msgspec


class TraceKind(StrEnum):
    """Kind of event. `protocol.trace_schema` has the columns and the detail of each kind."""

    RUN_STAGE = "run_stage"
    FAULT_INJECTED = "fault_injected"
    FAULT_IN_FORCE = "fault_in_force"
    FAULT_MISSED = "fault_missed"
    FAULT_HEALED = "fault_healed"
    REQUEST_WAITING = "request_waiting"
    STEADY_STATE_MISSED = "steady_state_missed"
    OFFSETS_UNREADABLE = "offsets_unreadable"
    NODE_STARTED = "node_started"
    NODE_STOPPED = "node_stopped"
    NODE_KILLED = "node_killed"
    NODE_STOPPING = "node_stopping"
    NODE_PAUSED = "node_paused"
    NODE_RESUMED = "node_resumed"
    LOG_RECOVERED = "log_recovered"
    REQUEST_SENT = "request_sent"
    RESPONSE_RECEIVED = "response_received"
    REQUEST_FAILED = "request_failed"
    REQUEST_RECEIVED = "request_received"
    RESPONSE_SENT = "response_sent"
    RESPONSE_LOST = "response_lost"
    CONNECTION_REFUSED = "connection_refused"
    BROKER_REGISTERED = "broker_registered"
    BROKER_FENCED = "broker_fenced"
    BROKER_UNFENCED = "broker_unfenced"
    LEADER_ELECTED = "leader_elected"
    ISR_CHANGED = "isr_changed"
    TOPIC_DELETED = "topic_deleted"
    BECAME_LEADER = "became_leader"
    BECAME_FOLLOWER = "became_follower"
    LOG_TRUNCATED = "log_truncated"
    LOG_CLEANED = "log_cleaned"
    APPEND_STARTED = "append_started"
    APPEND_COMPLETED = "append_completed"
    HIGH_WATERMARK = "high_watermark"
    LOAD_SCHEDULED = "load_scheduled"
    LOAD_STARTED = "load_started"
    LOAD_COMPLETED = "load_completed"
    LOAD_FAILED = "load_failed"
    LOAD_IGNORED = "load_ignored"
    UNLOAD_SCHEDULED = "unload_scheduled"
    UNLOAD_COMPLETED = "unload_completed"
    UNLOAD_IGNORED = "unload_ignored"
    METRICS = "metrics"
    GROUP_LOADED = "group_loaded"
    GROUP_STATE = "group_state"
    REBALANCE_STARTED = "rebalance_started"
    GENERATION_STARTED = "generation_started"
    ASSIGNMENT_STORED = "assignment_stored"
    MEMBER_ADDED = "member_added"
    MEMBER_REMOVED = "member_removed"
    SESSION_RESTARTED = "session_restarted"
    COMMIT_STORED = "commit_stored"
    OFFSET_REMOVED = "offset_removed"
    PENDING_COMMIT_REMOVED = "pending_commit_removed"
    TXN_COMMIT_PENDING = "txn_commit_pending"
    TRANSACTION_COMPLETED = "transaction_completed"
    TRANSACTIONS_LOADED = "transactions_loaded"
    TRANSACTION_STATE = "transaction_state"
    COORDINATOR_UNKNOWN = "coordinator_unknown"
    COORDINATOR_FOUND = "coordinator_found"
    COORDINATOR_LOOKUP_FAILED = "coordinator_lookup_failed"
    MEMBER_STATE = "member_state"
    PARTITIONS_ASSIGNED = "partitions_assigned"
    PARTITIONS_REVOKED = "partitions_revoked"
    PARTITIONS_LOST = "partitions_lost"
    POSITION_RESET = "position_reset"
    RECORDS_CONSUMED = "records_consumed"
    OFFSETS_COMMITTED = "offsets_committed"
    COMMIT_FAILED = "commit_failed"
    ADMIN_COMMIT = "admin_commit"
    OFFSETS_FETCHED = "offsets_fetched"
    RECORDS_PRODUCED = "records_produced"
    PRODUCE_FAILED = "produce_failed"
    ZOOKEEPER_STATE = "zookeeper_state"
    ZOOKEEPER_TXN_APPLIED = "zookeeper_txn_applied"
    ZOOKEEPER_WATCH_FIRED = "zookeeper_watch_fired"
    ZOOKEEPER_SESSION_EXPIRED = "zookeeper_session_expired"
    ZOOKEEPER_EVENT_RECEIVED = "zookeeper_event_received"
    ZOOKEEPER_CLIENT_STATE = "zookeeper_client_state"
    ZOOKEEPER_ATTEMPT_STARTED = "zookeeper_attempt_started"
    ZOOKEEPER_VIEW = "zookeeper_view"
    ZOOKEEPER_CLAIM_CONFLICT = "zookeeper_claim_conflict"
    ZOOKEEPER_ATTEMPT_ENDED = "zookeeper_attempt_ended"
    ZOOKEEPER_GAVE_UP = "zookeeper_gave_up"
    ZOOKEEPER_OFFSET_COMMITTED = "zookeeper_offset_committed"
    VIOLATION = "violation"
    TASK_FAILED = "task_failed"


MESSAGE_KINDS = frozenset(
    {
        TraceKind.REQUEST_SENT,
        TraceKind.RESPONSE_RECEIVED,
        TraceKind.REQUEST_RECEIVED,
        TraceKind.RESPONSE_SENT,
    }
)
"""Kinds of rows about single messages. No check of a run reads these rows, so a run may leave them
out to save time."""


class TraceEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event without its time and place, which `stamp` adds.

    A field is None if this kind of event does not have it.
    """

    kind: TraceKind
    peer: str | None = None
    group: str | None = None
    member: str | None = None
    partition: str | None = None
    generation: int | None = None
    leader_epoch: int | None = None
    offset: int | None = None
    api: str | None = None
    error: str | None = None
    correlation_id: int | None = None
    cause: str | None = None
    detail: dict[str, object] | None = None
    cause_text: str | None = None


class TraceRow(msgspec.Struct, frozen=True, array_like=True):
    """One row of the trace, built by `stamp`.

    - `time_us`: microseconds since the run began, on the run's clock.
    - `node_time_us`: microseconds on the node's own clock, which a fault may make faster or slower.
    - `seq`: number of the row among the rows of its node and incarnation, from 0. So no two rows
      of a run have the same `node`, `incarnation` and `seq`.
    - `partition`: a partition as Kafka prints it, such as `__consumer_offsets-3`.
    - `detail`: further facts as JSON.
    - `cause`: a value of an enum in `protocol.causes`, or a name of a thing, such as a fault's id.
    - `cause_text`: a sentence for people.
    """

    run: str
    time_us: int
    node_time_us: int
    seq: int
    node: str
    incarnation: int
    kind: str
    peer: str | None = None
    group: str | None = None
    member: str | None = None
    partition: str | None = None
    generation: int | None = None
    leader_epoch: int | None = None
    offset: int | None = None
    api: str | None = None
    error: str | None = None
    correlation_id: int | None = None
    cause: str | None = None
    detail: str | None = None
    cause_text: str | None = None

    @property
    def explanation(self) -> str | None:
        """The cause for people: `cause_text`, or `cause` if the row has no text."""
        return self.cause_text or self.cause


TRACE_COLUMNS: tuple[tuple[str, str], ...] = (
    ("run", "string"),
    ("time_us", "int64"),
    ("node_time_us", "int64"),
    ("seq", "int64"),
    ("node", "string"),
    ("incarnation", "int32"),
    ("kind", "string"),
    ("peer", "string"),
    ("group", "string"),
    ("member", "string"),
    ("partition", "string"),
    ("generation", "int32"),
    ("leader_epoch", "int32"),
    ("offset", "int64"),
    ("api", "string"),
    ("error", "string"),
    ("correlation_id", "int64"),
    ("cause", "string"),
    ("detail", "string"),
    ("cause_text", "string"),
)
"""Name and Parquet type of each column of a TraceRow, in order."""

_detail_encoder = msgspec.json.Encoder(order="deterministic")


def stamp(
    event: TraceEvent,
    *,
    run: str,
    time_us: int,
    node_time_us: int,
    seq: int,
    node: str,
    incarnation: int,
) -> TraceRow:
    """Return the row of `event`, which happened on `node` at `time_us`."""
    # This function runs for every row, so it must be fast. A call of TraceRow with keyword
    # arguments would take five times as long. `_value_` is the attribute that an enum's property
    # `value` returns, and is read faster.
    return TraceRow(
        run,
        time_us,
        node_time_us,
        seq,
        node,
        incarnation,
        event.kind._value_,
        event.peer,
        event.group,
        event.member,
        event.partition,
        event.generation,
        event.leader_epoch,
        event.offset,
        event.api,
        event.error,
        event.correlation_id,
        event.cause,
        None if event.detail is None else _detail_encoder.encode(event.detail).decode(),
        event.cause_text,
    )
