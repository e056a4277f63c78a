"""The table `client_phases`: where the time went until a member was served again.

When a fault moves a group's coordinator, each member has to find the new coordinator. Until the
member is served again, three phases follow one another (the client chain):

1. notice: from the fault until the member gives its coordinator up (marks it unknown).
2. rediscover: until an answer to FindCoordinator names the newest coordinator. The newest
   coordinator is the leader with the highest leader epoch before the next fault.
3. accept: until the member's first success at the newest coordinator. The member may have to send a
   JoinGroup and a SyncGroup first.

BEHAVIOUR 2.0 is a section of docs/kafka/BEHAVIOUR.md.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pipeline.engine.events import of_kind
from pipeline.intermediate.exchanges import exchanges
from pipeline.intermediate.groups import MEMBER_KINDS
from protocol.api import Api
from protocol.trace import TraceKind

_KEY = ("run", "fault", "group", "node")
"""The columns that name a fault and a member. All windows and aggregations of this module group the
rows by these columns. So Spark has to shuffle (redistribute) the rows only once.
"""
_MEMBERSHIP = tuple(kind for kind in MEMBER_KINDS if kind is not TraceKind.RECORDS_CONSUMED)
"""Kinds of rows that only a member of a group writes. RECORDS_CONSUMED is left out, because there
are far more rows of this kind, and a member always writes a row of another of these kinds first.
"""
_SIGNAL_KINDS = (
    TraceKind.COORDINATOR_UNKNOWN,
    TraceKind.COORDINATOR_FOUND,
    TraceKind.COORDINATOR_LOOKUP_FAILED,
    *_MEMBERSHIP,
)
"""Kinds of rows from which the phases are computed, beside the rows about requests and answers.

In a row COORDINATOR_FOUND, `cause` is the broker that was asked, and `peer` is the broker that the
answer named.
"""
_MOMENTS = ("unknown", "named", "accepted")
"""The moments that end the three phases: the member marks its coordinator unknown, an answer names
the newest coordinator, and the newest coordinator accepts the member.
"""
_ANSWERED_AT_ONCE = [Api.HEARTBEAT.label, Api.OFFSET_COMMIT.label]
"""APIs that a coordinator answers at once. A long wait for such an answer shows that the
coordinator is silent. Answers to JoinGroup and SyncGroup are different: they can take long, because
the coordinator waits for other members.
"""
_ANSWER = "answer"
"""The value of `kind` in rows about a request and its answer (`exchanges`). All other rows have the
kind of their event.
"""
_TIMED_APIS = [Api.JOIN_GROUP.label, Api.SYNC_GROUP.label]
"""APIs whose duration is a column (`join_us`, `sync_us`). The time counts from the first request,
even if this request was never answered.
"""


def client_phases(events: DataFrame, failovers: DataFrame) -> DataFrame:
    """Follow each member from the fault to its first success at the new coordinator.

    The column `consumer` names a member by its node, because the member id can change on the way.
    The rows of a member count in the order in which the member wrote them, even if they have the
    same time.

    `events` has one row per event, `failovers` one row per fault and group
    (`failovers.group_failovers`). Output grain: one row per run, fault, affected group and consumer
    that was a member of the group before the fault.
    Columns:
    - `run`, `fault`, `group`, `consumer` (node);
    - `member_id`, `generation`: before the fault; `member_id_after`, `generation_after`: after it;
    - `fault_us`: the fault was injected;
    - `unknown_us`: the member first marked its coordinator unknown;
    - `named_us`: an answer first named the newest coordinator;
    - `accepted_us`: the member's first success at this coordinator after its load. A success is an
      acknowledged commit or a group request that was answered without an error. A heartbeat that
      the member sent before the load ended does not count;
    - `notice_us`, `rediscover_us`, `accept_us`: the lengths of the phases, each from one of these
      four moments to the next;
    - `join_us`: microseconds from the first JoinGroup that the member sent after the fault to the
      first successful answer to a JoinGroup; `sync_us`: the same for SyncGroup;
    - `longest_wait_us`: the longest time that a heartbeat or commit to the old coordinator waited
      for its answer or failure. Only requests count that the member sent before `unknown_us`, and
      whose wait ended after the fault;
    - `noticed_by`: the reason for marking the coordinator unknown (an error's name, or a sentence);
    - `attempts`: FindCoordinator answers and failures in the phase rediscover;
    - `stale_answers`: number of these answers that named another broker than the newest
      coordinator, or that named the right broker before it was elected;
    - `self_answers`: number of stale answers in which the answering broker named itself;
    - `commit_timeouts`: commits that the old coordinator answered with REQUEST_TIMED_OUT after the
      fault;
    - `late_heartbeats`: heartbeats that the old coordinator answered with success when the new
      coordinator was already active.

    Moments are microseconds on the run's clock, lengths are microseconds.
    Nulls:
    - a moment that did not come, and the phases that begin or end with it (without `notice_us`, the
      member never marked its coordinator unknown; without `join_us`, it did not have to join);
    - `longest_wait_us` if no request waited;
    - `noticed_by`, `attempts`, `stale_answers`, `self_answers` if `unknown_us` is null;
    - `late_heartbeats` unless the coordinator moved to another broker;
    - `member_id_after`, `generation_after` if the member has no event after the fault.
    """
    affected = F.broadcast(failovers.where("affected"))
    member = Window.partitionBy(*_KEY)
    signals = _signals(events).join(affected, ["run", "group"])
    # A step is the place of a row in the order of a member's rows. The columns `unknown`, `named`
    # and `accepted` get the steps of the three rows that end the member's phases. A phase begins
    # where the phase before it ends. So the order of the three `withColumn` matters:
    # `_ends_rediscover` reads the column `unknown`, and `_ends_accept` reads the column `named`.
    with_moments = (
        signals.where(F.col("at_us") < F.col("until_us"))
        .withColumn("unknown", F.min(_step_if(_ends_notice())).over(member))
        .withColumn("named", F.min(_step_if(_ends_rediscover())).over(member))
        .withColumn("accepted", F.min(_step_if(_ends_accept())).over(member))
        .withColumns({f"{name}_us": F.col(f"{name}.at_us") for name in _MOMENTS})
    )
    members = with_moments.groupBy(*_KEY).agg(
        # The columns `fault_us`, `unknown_us`, `named_us` and `accepted_us` have the same value in
        # all rows of a member, so `first` may take it from any row.
        *(F.first(f"{name}_us").alias(f"{name}_us") for name in ("fault", *_MOMENTS)),
        F.min(_moment_if(_is_membership())).alias("member_since_us"),
        F.count(_moment_if(_is_lookup())).alias("lookups"),
        F.count(_moment_if(_is_lookup() & _names_another())).alias("stale"),
        F.count(_moment_if(_is_lookup() & _names_another() & _names_itself())).alias("self_named"),
        F.min_by("cause", _step_if(_ends_notice())).alias("noticed_by"),
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
        _time_to_first_success(Api.JOIN_GROUP).alias("join_us"),
        _time_to_first_success(Api.SYNC_GROUP).alias("sync_us"),
    )
    has_lost_coordinator = F.col("unknown_us").isNotNull()
    # A consumer that was not yet a member at the fault had no coordinator to lose.
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
        F.when(has_lost_coordinator, F.col("lookups")).alias("attempts"),
        F.when(has_lost_coordinator, F.col("stale")).alias("stale_answers"),
        F.when(has_lost_coordinator, F.col("self_named")).alias("self_answers"),
        "commit_timeouts",
        F.when(F.col("moved_away"), F.col("late_heartbeats")).alias("late_heartbeats"),
    )


def _signals(events: DataFrame) -> DataFrame:
    """One row per event of a consumer that matters here, and per answer that the consumer got.

    `sent_us` is when the request of an answer was sent; it is null in other rows. `step` is the
    place of the row in the order of the member's rows.
    """
    # Rows REQUEST_SENT are needed only for JoinGroup and SyncGroup, because `join_us` and `sync_us`
    # begin with these requests.
    is_request = F.col("kind") == TraceKind.REQUEST_SENT.value
    is_timed = F.col("api").isin(_TIMED_APIS)
    written = of_kind(events, *_SIGNAL_KINDS, TraceKind.REQUEST_SENT).where(
        F.col("group").isNotNull() & (~is_request | is_timed)
    )
    from_events = written.select(
        "run",
        "group",
        "node",
        "kind",
        "peer",
        F.when(~is_request, F.nullif("member", F.lit(""))).alias("member"),
        F.when(~is_request, F.col("generation")).alias("generation"),
        F.when(is_request, F.col("api")).alias("api"),
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


def _moment_if(condition: Column) -> Column:
    """Return the moment of a row that meets the condition, else null."""
    return F.when(condition, F.col("at_us"))


def _step_if(condition: Column) -> Column:
    """Return the step of a row that meets the condition, else null.

    A step is the place of a row in the order of a member's rows. Rows are in time order. Rows of
    the same time are in the order in which the member wrote them.
    """
    return F.when(condition, F.col("step"))


def _is(kind: TraceKind) -> Column:
    """Return whether a row is of a kind."""
    return F.col("kind") == kind.value


def _is_membership() -> Column:
    """Return whether a row proves that the consumer was a member of the group."""
    return F.col("kind").isin([kind.value for kind in _MEMBERSHIP])


def _ends_notice() -> Column:
    """Return whether the member marked its coordinator unknown in this row, after the fault."""
    return _is(TraceKind.COORDINATOR_UNKNOWN) & (F.col("at_us") >= F.col("fault_us"))


def _names_another() -> Column:
    """Return whether an answer was stale: it named a broker that is not the newest coordinator."""
    return _is(TraceKind.COORDINATOR_FOUND) & ~_names_newest()


def _names_newest() -> Column:
    """Return whether a COORDINATOR_FOUND names the newest coordinator.

    There are two cases:

    - The old leader was elected again. Only answers after this election count. Earlier answers
      named the same broker, but meant its old epoch.
    - Another broker was elected. Every answer that names this broker counts, because no answer
      could name it before the election. The times are not compared in this case: the clocks of two
      machines differ, so the comparison could be wrong.
    """
    elected_again = F.col("coordinator").eqNullSafe(F.col("old_leader"))
    # Without an election, `decided_us` is null, and every answer is about the present epoch.
    before_election = elected_again & (F.col("at_us") < F.col("decided_us"))
    is_current = ~F.coalesce(before_election, F.lit(False))
    return F.col("peer").eqNullSafe(F.col("coordinator")) & is_current


def _ends_rediscover() -> Column:
    """Return whether a row ends the phase rediscover: an answer names the newest coordinator."""
    names_newest = _is(TraceKind.COORDINATOR_FOUND) & _names_newest()
    return names_newest & (F.col("step") > F.col("unknown"))


def _ends_accept() -> Column:
    """Return whether a row ends the phase accept: a success at the newest coordinator.

    A coordinator that still loads its groups answers every heartbeat with NONE, although it does
    not know the member yet. So a heartbeat counts only if the member sent it after the load.
    Source: BEHAVIOUR 2.0.
    """
    # A coordinator that did not move has nothing to load, so every success after the fault counts.
    loaded_us = F.when(F.col("moved"), F.col("active_us")).otherwise(F.col("fault_us"))
    committed = _is(TraceKind.OFFSETS_COMMITTED)
    is_heartbeat = F.col("api") == Api.HEARTBEAT.label
    sent_too_early = is_heartbeat & (F.col("sent_us") < loaded_us)
    answered = (F.col("kind") == _ANSWER) & (F.col("error") == "NONE") & ~sent_too_early
    # The newest coordinator (`coordinator`) answered, it was loaded, and the member knew its name.
    return (
        (committed | answered)
        & F.col("peer").eqNullSafe(F.col("coordinator"))
        & (F.col("at_us") >= loaded_us)
        & (F.col("step") > F.col("named"))
    )


def _is_lookup() -> Column:
    """Return whether a row ends a FindCoordinator in the phase rediscover."""
    lookup = _is(TraceKind.COORDINATOR_FOUND) | _is(TraceKind.COORDINATOR_LOOKUP_FAILED)
    until_named = F.col("named").isNull() | (F.col("step") <= F.col("named"))
    return lookup & (F.col("step") > F.col("unknown")) & until_named


def _names_itself() -> Column:
    """Return whether in a COORDINATOR_FOUND, the broker that was asked named itself."""
    return F.col("cause").eqNullSafe(F.col("peer"))


def _is_exchange_with_old() -> Column:
    """Return whether a request to the old coordinator was answered or failed after the fault."""
    answered = (F.col("kind") == _ANSWER) & (F.col("at_us") >= F.col("fault_us"))
    return answered & F.col("peer").eqNullSafe(F.col("old_leader"))


def _is_wait_for_old() -> Column:
    """Return whether a heartbeat or commit to the old coordinator waited until this row.

    The wait counts only if the member sent the request before it gave the old coordinator up.
    """
    not_given_up = F.col("unknown_us").isNull() | (F.col("sent_us") <= F.col("unknown_us"))
    return _is_exchange_with_old() & F.col("api").isin(_ANSWERED_AT_ONCE) & not_given_up


def _is_commit_timeout() -> Column:
    """Return whether the old coordinator answered a commit REQUEST_TIMED_OUT after the fault."""
    commit = F.col("api") == Api.OFFSET_COMMIT.label
    return _is_exchange_with_old() & commit & (F.col("error") == "REQUEST_TIMED_OUT")


def _is_late_heartbeat() -> Column:
    """Return whether the old coordinator answered a heartbeat with success too late.

    The answer was too late if another broker was already the active coordinator.
    """
    heartbeat = F.col("api") == Api.HEARTBEAT.label
    late = F.col("at_us") >= F.col("active_us")
    return _is_exchange_with_old() & heartbeat & (F.col("error") == "NONE") & late & _moved_away()


def _moved_away() -> Column:
    """Return whether the fault moved the coordinator to another broker."""
    return F.col("moved") & ~F.col("coordinator").eqNullSafe(F.col("old_leader"))


def _latest(column: str, *, before: bool) -> Column:
    """Return the last known value of a column before the fault, or after the fault.

    The generation -1, which a member has before its first generation, counts as not known.
    """
    is_before_fault = F.col("at_us") < F.col("fault_us")
    known = F.col(column).isNotNull() & (is_before_fault if before else ~is_before_fault)
    if column == "generation":
        known &= F.col(column) >= 0
    return F.max_by(F.when(known, F.col(column)), _step_if(known))


def _time_to_first_success(api: Api) -> Column:
    """Return the time from the first request of an API after the fault to the API's first success.

    If the first JoinGroup fails, for example, the time includes the retries.
    """
    of_api = F.col("api") == api.label
    asked = of_api & _is(TraceKind.REQUEST_SENT) & (F.col("at_us") >= F.col("fault_us"))
    succeeded = of_api & (F.col("error") == "NONE") & (F.col("sent_us") >= F.col("fault_us"))
    return F.min(_moment_if(succeeded)) - F.min(_moment_if(asked))
