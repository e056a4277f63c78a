"""The table `client_phases`: the client chain of a failover, per member.

The client chain is three phases that follow one another:

1. notice: from the fault until the member marks its coordinator unknown;
2. rediscover: until an answer names the newest coordinator;
3. accept: until the member's first success at this coordinator.

An exchange is a request with its answer. In rows of COORDINATOR_FOUND, `peer` is the named broker
and `cause` the asked one. Numbers such as BEHAVIOUR 2.0 name sections of docs/kafka/BEHAVIOUR.md.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pipeline.engine.events import of_kind
from pipeline.intermediate.exchanges import exchanges
from pipeline.intermediate.groups import MEMBER_KINDS
from protocol.api import Api
from protocol.trace import TraceKind

_KEY = ("run", "fault", "group", "node")
_MEMBERSHIP = tuple(kind for kind in MEMBER_KINDS if kind is not TraceKind.RECORDS_CONSUMED)
"""Kinds of rows that prove membership. RECORDS_CONSUMED would prove it, too, but such a row always
follows one of these kinds, and there are far more of them.
"""
_SIGNAL_KINDS = (
    TraceKind.COORDINATOR_UNKNOWN,
    TraceKind.COORDINATOR_FOUND,
    TraceKind.COORDINATOR_LOOKUP_FAILED,
    *_MEMBERSHIP,
)
_MOMENTS = ("unknown", "named", "accepted")
_ANSWERED_AT_ONCE = [Api.HEARTBEAT.label, Api.OFFSET_COMMIT.label]
"""APIs that wait for no other member, while JoinGroup and SyncGroup wait for the whole group."""
_ANSWER = "answer"
"""The `kind` of rows made of an exchange; other rows have the kind of their event."""
_TIMED_APIS = [Api.JOIN_GROUP.label, Api.SYNC_GROUP.label]
"""APIs timed from their first request on, even if that request was never answered."""


def client_phases(events: DataFrame, failovers: DataFrame) -> DataFrame:
    """Follow each member from the fault to its first answer from the new coordinator.

    A member is identified by its consumer's node, because member ids may change on the way. The
    steps of a member are in the order in which it wrote them, even if they have the same moment.
    Input grain: one row per event; one row per fault and group. Output grain: one row per run,
    fault, affected group and consumer that had been in the group before the fault.
    Columns:
    - `run`, `fault`, `group`, `consumer` (node);
    - `member_id`, `generation` before the fault, `member_id_after`, `generation_after`;
    - `fault_us`: the fault was injected;
    - `unknown_us`: the member first marked its coordinator unknown;
    - `named_us`: an answer first named the coordinator of the newest epoch;
    - `accepted_us`: the member's first success at this coordinator after its load: an acknowledged
      commit or a group request (a heartbeat sent before the load ended does not count);
    - `notice_us`, `rediscover_us`, `accept_us`: the lengths of the phases, each from one of these
      four moments to the next;
    - `join_us`, `sync_us`: microseconds from the first JoinGroup or SyncGroup sent after the fault
      to the first that succeeded;
    - `longest_wait_us`: the longest time that a heartbeat or commit to the old coordinator waited
      for its answer or failure; only those count that ended after the fault and were sent before
      `unknown_us`;
    - `noticed_by`: the reason for marking the coordinator unknown (an error's name, or a sentence);
    - `attempts`: FindCoordinator answers and failures from unknown to named;
    - `stale_answers`: of `attempts`, the answers that named another broker, or the right broker
      before its election;
    - `self_answers`: of the stale answers, those in which the answering broker named itself;
    - `commit_timeouts`: commits that the old coordinator answered REQUEST_TIMED_OUT after the
      fault;
    - `late_heartbeats`: heartbeats that the old coordinator answered with success after the new one
      was active.

    Moments are microseconds on the run's clock, lengths are microseconds.
    Nulls:
    - a moment that did not come, and the phases that it bounds (no `notice_us`: the member never
      marked its coordinator unknown; no `join_us`: the member did not have to join);
    - `longest_wait_us` if no request waited;
    - `noticed_by`, `attempts`, `stale_answers`, `self_answers` without `unknown_us`;
    - `late_heartbeats` unless the coordinator moved to another broker;
    - `..._after` without an event after the fault.
    """
    affected = F.broadcast(failovers.where("affected"))
    member = Window.partitionBy(*_KEY)
    signals = _signals(events).join(affected, ["run", "group"])
    # `unknown`, `named` and `accepted` are the steps that end the three phases.
    # One shuffle suffices: every window and every aggregation below is over the same key.
    steps = (
        signals.where(F.col("at_us") < F.col("until_us"))
        .withColumn("unknown", F.min(_step(_is_unknown())).over(member))
        .withColumn("named", F.min(_step(_names_newest())).over(member))
        .withColumn("accepted", F.min(_step(_is_accepted())).over(member))
        .withColumns({f"{name}_us": F.col(f"{name}.at_us") for name in _MOMENTS})
    )
    members = steps.groupBy(*_KEY).agg(
        *(F.first(f"{name}_us").alias(f"{name}_us") for name in ("fault", *_MOMENTS)),
        F.min(_when(_is_membership())).alias("member_since_us"),
        F.count(_when(_is_lookup())).alias("lookups"),
        F.count(_when(_is_lookup() & _names_another())).alias("stale"),
        F.count(_when(_is_lookup() & _names_another() & _names_itself())).alias("self_named"),
        F.min_by("cause", _step(_is_unknown())).alias("noticed_by"),
        F.max(F.when(_is_wait_for_old(), F.col("at_us") - F.col("sent_us"))).alias(
            "longest_wait_us"
        ),
        F.count_if(_is_commit_timeout()).alias("commit_timeouts"),
        F.count_if(_is_late_heartbeat()).alias("late_heartbeats"),
        F.first(_moved_away()).alias("moved_away"),
        _latest("member", before=True).alias("member_id"),
        _latest("member", before=False).alias("member_id_after"),
        _latest("generation", before=True).alias("generation"),
        _latest("generation", before=False).alias("generation_after"),
        _first_success(Api.JOIN_GROUP).alias("join_us"),
        _first_success(Api.SYNC_GROUP).alias("sync_us"),
    )
    looked = F.col("unknown_us").isNotNull()
    return members.where(F.col("member_since_us") < F.col("fault_us")).select(
        "run",
        "fault",
        "group",
        F.col("node").alias("consumer"),
        "member_id",
        "member_id_after",
        "generation",
        "generation_after",
        "fault_us",
        "unknown_us",
        "named_us",
        "accepted_us",
        (F.col("unknown_us") - F.col("fault_us")).alias("notice_us"),
        (F.col("named_us") - F.col("unknown_us")).alias("rediscover_us"),
        (F.col("accepted_us") - F.col("named_us")).alias("accept_us"),
        "join_us",
        "sync_us",
        "longest_wait_us",
        "noticed_by",
        F.when(looked, F.col("lookups")).alias("attempts"),
        F.when(looked, F.col("stale")).alias("stale_answers"),
        F.when(looked, F.col("self_named")).alias("self_answers"),
        "commit_timeouts",
        F.when(F.col("moved_away"), F.col("late_heartbeats")).alias("late_heartbeats"),
    )


def _signals(events: DataFrame) -> DataFrame:
    """One row per event of a consumer and per answer that the consumer got.

    `sent_us` of an answer is the moment at which the consumer sent the request; otherwise null.
    """
    # The only requests kept are JoinGroup and SyncGroup, because their times begin with a request.
    asked = F.col("kind") == TraceKind.REQUEST_SENT.value
    timed = F.col("api").isin(_TIMED_APIS)
    written = of_kind(events, *_SIGNAL_KINDS, TraceKind.REQUEST_SENT).where(
        F.col("group").isNotNull() & (~asked | timed)
    )
    from_events = written.select(
        "run",
        "group",
        "node",
        "kind",
        "peer",
        F.when(~asked, F.nullif("member", F.lit(""))).alias("member"),
        F.when(~asked, F.col("generation")).alias("generation"),
        F.when(asked, F.col("api")).alias("api"),
        F.lit(None).cast("string").alias("error"),
        "cause",
        F.lit(None).cast("long").alias("sent_us"),
        F.col("time_us").alias("at_us"),
        F.struct(F.col("time_us").alias("at_us"), "incarnation", "seq").alias("step"),
    )
    answers = exchanges(events).select(
        "run",
        "group",
        "node",
        F.lit(_ANSWER).alias("kind"),
        "peer",
        F.nullif("member", F.lit("")).alias("member"),
        "generation",
        "api",
        "error",
        F.lit(None).cast("string").alias("cause"),
        "sent_us",
        F.col("answered_us").alias("at_us"),
        F.struct(F.col("answered_us").alias("at_us"), "incarnation", "seq").alias("step"),
    )
    return from_events.unionByName(answers)


def _when(condition: Column) -> Column:
    """Return the moment of a row that meets the condition, else null."""
    return F.when(condition, F.col("at_us"))


def _step(condition: Column) -> Column:
    """Return the moment and the place of a step: several steps may have one moment."""
    return F.when(condition, F.col("step"))


def _is(kind: TraceKind) -> Column:
    return F.col("kind") == kind.value


def _is_membership() -> Column:
    """Return whether a row proves that the consumer was a member of the group."""
    return F.col("kind").isin([kind.value for kind in _MEMBERSHIP])


def _is_unknown() -> Column:
    """Return whether the member marked its coordinator unknown after the fault."""
    return _is(TraceKind.COORDINATOR_UNKNOWN) & (F.col("at_us") >= F.col("fault_us"))


def _names_another() -> Column:
    """Return whether a row is a stale COORDINATOR_FOUND (see `_names_coordinator`)."""
    return _is(TraceKind.COORDINATOR_FOUND) & ~_names_coordinator()


def _names_coordinator() -> Column:
    """Return whether a COORDINATOR_FOUND names the coordinator of the newest epoch.

    If the old leader was elected again, only answers after its election count, because earlier
    answers meant its old epoch. If another broker was elected, the moment of the answer is not
    compared. No answer could name this broker before, and the clocks of two machines may differ.
    """
    same = F.col("coordinator").eqNullSafe(F.col("old_leader"))
    in_term = ~same | F.col("decided_us").isNull() | (F.col("at_us") >= F.col("decided_us"))
    return F.col("peer").eqNullSafe(F.col("coordinator")) & in_term


def _names_newest() -> Column:
    """Return whether an answer after the mark names the coordinator of the newest epoch."""
    names_coordinator = _is(TraceKind.COORDINATOR_FOUND) & _names_coordinator()
    return names_coordinator & (F.col("step") > F.col("unknown"))


def _is_accepted() -> Column:
    """Return whether a row is a success at the new coordinator after its load.

    Source: BEHAVIOUR 2.0: a loading broker answers every heartbeat with NONE, unchecked.
    """
    loaded_us = F.when(F.col("moved"), F.col("active_us")).otherwise(F.col("fault_us"))
    committed = _is(TraceKind.OFFSETS_COMMITTED)
    unchecked = (F.col("api") == Api.HEARTBEAT.label) & ~(F.col("sent_us") >= loaded_us)
    answered = (F.col("kind") == _ANSWER) & (F.col("error") == "NONE") & ~unchecked
    return (
        (committed | answered)
        & F.col("peer").eqNullSafe(F.col("coordinator"))
        & (F.col("at_us") >= loaded_us)
        & (F.col("step") > F.col("named"))
    )


def _is_lookup() -> Column:
    """Return whether a row ends a FindCoordinator between the steps `unknown` and `named`."""
    lookup = _is(TraceKind.COORDINATOR_FOUND) | _is(TraceKind.COORDINATOR_LOOKUP_FAILED)
    until_named = F.col("named").isNull() | (F.col("step") <= F.col("named"))
    return lookup & (F.col("step") > F.col("unknown")) & until_named


def _names_itself() -> Column:
    """Return whether a COORDINATOR_FOUND names the broker that answered."""
    return F.col("cause").eqNullSafe(F.col("peer"))


def _from_old() -> Column:
    """Return whether a row is an answer of the old coordinator after the fault, or its failure."""
    answered = (F.col("kind") == _ANSWER) & (F.col("at_us") >= F.col("fault_us"))
    return answered & F.col("peer").eqNullSafe(F.col("old_leader"))


def _is_wait_for_old() -> Column:
    """Return whether a row ends a request to the old coordinator that waited across the fault.

    Only requests in _ANSWERED_AT_ONCE are considered.
    """
    # The member sent the request before it marked the coordinator unknown.
    believed = F.col("unknown_us").isNull() | (F.col("sent_us") <= F.col("unknown_us"))
    return _from_old() & F.col("api").isin(_ANSWERED_AT_ONCE) & believed


def _is_commit_timeout() -> Column:
    """Return whether the old coordinator answered a commit REQUEST_TIMED_OUT after the fault."""
    commit = F.col("api") == Api.OFFSET_COMMIT.label
    return _from_old() & commit & (F.col("error") == "REQUEST_TIMED_OUT")


def _is_late_heartbeat() -> Column:
    """Return whether the old coordinator accepted a heartbeat when the new one was active."""
    heartbeat = F.col("api") == Api.HEARTBEAT.label
    late = F.col("at_us") >= F.col("active_us")
    return _from_old() & heartbeat & (F.col("error") == "NONE") & late & _moved_away()


def _moved_away() -> Column:
    """Return whether another broker than the old leader coordinates the group since the fault."""
    return F.col("moved") & ~F.col("coordinator").eqNullSafe(F.col("old_leader"))


def _latest(column: str, *, before: bool) -> Column:
    """Return the latest known value before the fault, or after it.

    Generation -1 counts as unknown.
    """
    side = (F.col("at_us") < F.col("fault_us")) == F.lit(before)
    known = F.col(column).isNotNull() & side
    if column == "generation":
        known &= F.col(column) >= 0
    return F.max_by(F.when(known, F.col(column)), _step(known))


def _first_success(api: Api) -> Column:
    """Return microseconds from the first request of `api` after the fault to its first success."""
    of_api = F.col("api") == api.label
    asked = of_api & _is(TraceKind.REQUEST_SENT) & (F.col("at_us") >= F.col("fault_us"))
    succeeded = of_api & (F.col("error") == "NONE") & (F.col("sent_us") >= F.col("fault_us"))
    return F.min(_when(succeeded)) - F.min(_when(asked))
