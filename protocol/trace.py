"""The trace schema: one flat, typed row for everything that a run lets be seen.

Every event of both runtimes, of the checkers' input and of Spark's tables has these columns.
Cores and nodes make a `TraceEvent`; the Host stamps it into a `TraceRow`.
"""

from enum import StrEnum

import msgspec


class TraceKind(StrEnum):
    """What happened. The comment of each kind says which columns it fills, beside the stamp."""

    # -- the run (node "driver") --
    RUN_STAGE = "run_stage"  # detail: stage (starting|steady|faults|healing|liveness|
    #   verifying|stopping)
    FAULT_INJECTED = "fault_injected"  # peer: node hit; cause: fault id; written just before
    #   the act; detail: fault, target, groups: [...], partitions: [...] (blast radius),
    #   members_survive (no member is hit or out of reach)
    FAULT_IN_FORCE = "fault_in_force"  # peer, cause, detail: fault; from here every node that is
    #   concerned has it: later than FAULT_INJECTED where it had to be told to several
    FAULT_MISSED = "fault_missed"  # cause; nobody was hit, whether or not FAULT_INJECTED stands
    #   before it; detail: fault, target, reason
    FAULT_HEALED = "fault_healed"  # peer, cause; written when it was undone; detail: fault,
    #   in_force_until_us (before the undoing began)
    # -- a node's life --
    NODE_STARTED = "node_started"  # detail: pid (Ray), role
    NODE_STOPPED = "node_stopped"  # an orderly stop by the run
    NODE_KILLED = "node_killed"  # by the runtime, with the fault; node: "driver", peer: the victim;
    #   cause: power loss, where it was one
    NODE_STOPPING = "node_stopping"  # asked for a controlled shutdown; node: "driver", peer
    NODE_PAUSED = "node_paused"  # node: "driver", peer: who was stopped (SIGSTOP)
    NODE_RESUMED = "node_resumed"  # node: "driver", peer
    LOG_RECOVERED = "log_recovered"  # a broker that started found less than was written:
    #   partition, offset: log end; cause: torn tail|power loss; detail: cut_bytes, cut_batches
    # -- messages on connections --
    REQUEST_SENT = "request_sent"  # peer, api, correlation_id, group, member, generation;
    #   cause: purpose of the connection
    RESPONSE_RECEIVED = "response_received"  # the same, and error
    REQUEST_FAILED = "request_failed"  # the same; error: DISCONNECTED | TIMED_OUT
    REQUEST_RECEIVED = "request_received"  # on the server: peer (client), api, correlation_id
    RESPONSE_SENT = "response_sent"  # on the server: peer (client), api, correlation_id, error
    CONNECTION_REFUSED = "connection_refused"  # on the server: detail: reason
    # -- controller --
    BROKER_REGISTERED = "broker_registered"  # peer: broker; detail: broker_epoch
    BROKER_FENCED = "broker_fenced"  # peer: broker; detail: reason, silent_ms
    BROKER_UNFENCED = "broker_unfenced"  # peer: broker
    LEADER_ELECTED = "leader_elected"  # partition, leader_epoch, peer: leader ("" for none);
    #   detail: isr, reason, unclean (true, if the leader was not in the ISR)
    ISR_CHANGED = "isr_changed"  # partition, leader_epoch; detail: isr, partition_epoch
    TOPIC_DELETED = "topic_deleted"  # detail: topic, partitions (how many it had)
    # -- broker: leadership and log --
    BECAME_LEADER = "became_leader"  # partition, leader_epoch, offset: log end (applied a delta)
    BECAME_FOLLOWER = "became_follower"  # partition, leader_epoch, peer: leader
    LOG_TRUNCATED = "log_truncated"  # partition, leader_epoch, offset: new end; detail: from_offset
    LOG_CLEANED = "log_cleaned"  # partition, offset: everything below is clean; detail: records,
    #   bytes (what is left there), removed_records, removed_bytes
    APPEND_STARTED = "append_started"  # partition, leader_epoch (of the log), offset: base;
    #   correlation_id: append id; detail: records, epoch_start_offset
    APPEND_COMPLETED = "append_completed"  # the same; error; offset: base; detail also: isr (who
    #   was in sync or being added when it was acknowledged, as its leader believed)
    HIGH_WATERMARK = "high_watermark"  # partition, leader_epoch, offset (offsets partitions only)
    # -- broker: coordinator tasks --
    LOAD_SCHEDULED = "load_scheduled"  # partition, leader_epoch
    LOAD_STARTED = "load_started"  # partition, leader_epoch; detail: wait_us
    LOAD_COMPLETED = "load_completed"  # partition, leader_epoch; offset: end; detail: records,
    #   bytes, groups, ignored (records of unknown kinds, if any): active from here; cause: why it
    #   stopped early, if it did
    LOAD_FAILED = "load_failed"  # the same, without groups; cause: why; not active (java switch
    #   failed_load_refuses)
    LOAD_IGNORED = "load_ignored"  # partition, leader_epoch; cause: why; detail: known_epoch
    UNLOAD_SCHEDULED = "unload_scheduled"  # partition, leader_epoch
    UNLOAD_COMPLETED = "unload_completed"  # partition, leader_epoch; detail: groups
    UNLOAD_IGNORED = "unload_ignored"  # partition, leader_epoch; cause: why
    METRICS = "metrics"  # detail: what metrics are now, by Kafka's names: one row of a broker's
    #   coordinator, one of its replicas; one of a controller
    # -- coordinator --
    GROUP_LOADED = "group_loaded"  # group, partition, generation; detail: state, members, offsets
    GROUP_STATE = "group_state"  # group, generation, cause: why; detail: from, to
    REBALANCE_STARTED = "rebalance_started"  # group, member, generation (the old one), cause;
    #   error: why the assignment was not stored; detail: client_reason (what the member said),
    #   silent_members (who owed a SyncGroup)
    GENERATION_STARTED = "generation_started"  # group, generation;
    #   detail: members, leader, protocol
    ASSIGNMENT_STORED = "assignment_stored"  # group, generation
    MEMBER_ADDED = "member_added"  # group, member, generation; detail: client_id, instance
    MEMBER_REMOVED = "member_removed"  # group, member, generation, cause: session expiry|leave|...
    SESSION_RESTARTED = "session_restarted"  # group, member, generation, api: the request of the
    #   member that was received, or that is answered now; detail: session_timeout_ms: how long the
    #   member has from here
    COMMIT_STORED = "commit_stored"  # group, member, partition (the consumed one), offset,
    #   generation, leader_epoch of the offsets partition is in APPEND_*; correlation_id: append id;
    #   for an offset that a transaction committed it comes with the marker: detail: producer_id;
    #   no correlation_id; member and generation unless the group was loaded meanwhile
    OFFSET_REMOVED = "offset_removed"  # group, partition (the consumed one), cause
    TXN_COMMIT_PENDING = "txn_commit_pending"  # the columns of COMMIT_STORED; the log has what a
    #   transaction commits, and it waits for its marker; detail: producer_id
    TRANSACTION_COMPLETED = "transaction_completed"  # group; its offsets count, or are forgotten,
    #   from here; detail: producer_id, committed, offsets
    # -- transaction coordinator --
    TRANSACTIONS_LOADED = "transactions_loaded"  # partition (of __transaction_state), leader_epoch,
    #   offset: end; detail: records, transactional_ids
    TRANSACTION_STATE = "transaction_state"  # partition (of __transaction_state), leader_epoch,
    #   cause: why; detail: transactional_id, producer_id, producer_epoch, from, to
    # -- consumer --
    COORDINATOR_UNKNOWN = "coordinator_unknown"  # group, member, peer: the old one, cause
    COORDINATOR_FOUND = "coordinator_found"  # group, member, peer: the coordinator named;
    #   cause: the broker that answered
    COORDINATOR_LOOKUP_FAILED = "coordinator_lookup_failed"  # group, member, error, peer: asked
    MEMBER_STATE = "member_state"  # group, member, generation, cause; detail: from, to
    PARTITIONS_ASSIGNED = "partitions_assigned"  # group, member, generation, peer: the coordinator
    #   that assigned; detail: partitions
    PARTITIONS_REVOKED = "partitions_revoked"  # group, member, generation; detail: partitions
    PARTITIONS_LOST = "partitions_lost"  # group, member, generation; detail: partitions
    POSITION_RESET = "position_reset"  # group, member, partition, offset;
    #   the cause says where from: committed, earliest or latest
    RECORDS_CONSUMED = "records_consumed"  # group, member, partition, offset: first;
    #   detail: count, last
    OFFSETS_COMMITTED = "offsets_committed"  # group, member, generation, partition, offset,
    #   peer: coordinator that acknowledged: one row a partition
    COMMIT_FAILED = "commit_failed"  # group, member, generation, partition, offset, error
    ADMIN_COMMIT = "admin_commit"  # an administrator's commit: group, partition, offset, peer: who
    #   was asked, error: Kafka's, or TIMED_OUT and DISCONNECTED: it may have been carried out
    OFFSETS_FETCHED = "offsets_fetched"  # group, member, partition, offset (-1 none), peer
    # -- producer --
    RECORDS_PRODUCED = "records_produced"  # partition, offset: base; detail: count
    PRODUCE_FAILED = "produce_failed"  # partition, error; detail: count
    # -- checkers --
    VIOLATION = "violation"  # group, partition, cause: checker; detail: summary, found_at_us;
    #   written at the run's next look at the cluster
    # -- broken tool --
    TASK_FAILED = "task_failed"  # a node's task died: our bug; detail: exception


MESSAGE_KINDS = frozenset(
    {
        TraceKind.REQUEST_SENT,
        TraceKind.RESPONSE_RECEIVED,
        TraceKind.REQUEST_RECEIVED,
        TraceKind.RESPONSE_SENT,
    }
)
"""The kinds that only the trace wants: with the trace off they are not even made."""


class TraceEvent(msgspec.Struct, frozen=True, kw_only=True):
    """What a core or node saw, before the Host stamps it. None where a column has no meaning."""

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
    """One row of the trace. Made by `stamp`, by position: by keyword it takes five times as long.

    Units: `time_us` is on the run's undrifted clock, microseconds since the run began;
    `node_time_us` on the node's own monotonic clock.
    Shape: (`node`, `incarnation`, `seq`) is unique; `seq` counts from 0 in each incarnation.
    `partition` is printed as Kafka prints it (`__consumer_offsets-3`); `detail` is small JSON.
    `cause` is a closed value (`protocol.causes`) or a name, `cause_text` a sentence for people.
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
        """The cause for people: `cause_text` where there is one, else `cause`."""
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
    """Return the row of `event` as seen by `node` at `time_us`."""
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
