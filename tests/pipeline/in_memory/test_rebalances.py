"""RebalanceLog: the rebalances of a run so far, for a view that shows them while the run goes on.

After the run, the table `rebalances` has the same rebalances. A rebalance normally ends when the
coordinator stores the new assignment. But a rebalance may be cut short, because the next rebalance
begins, the last member leaves, or the coordinator dies. The log says which of these happened.
"""

from pipeline.in_memory.rebalances import Rebalance, RebalanceLog, rebalances_of
from pipeline.in_memory.trace import Trace
from protocol.causes import GroupStateCause, RebalanceCause
from protocol.trace import TraceEvent, TraceKind, TraceRow, stamp
from tests.support.random_worlds.random_trace import random_run

SEEDS = range(40)
"""Enough seeds to reach every cause of a rebalance."""


def log_of(rows: list[TraceRow]) -> RebalanceLog:
    """Return a log that has read the rows."""
    log = RebalanceLog()
    log.observe_all(rows)
    return log


def test_rebalances_of_random_runs_equal_those_of_the_table() -> None:
    """The log reads one row after the other, in the order of time, as during a run."""
    columns = ("group", "reason", "cause", "client_reason", "store_error", "length_us")
    reasons = set()
    for seed in SEEDS:
        trace = Trace(random_run(seed))
        log = log_of(trace.rows)
        logged = [rebalance for group in log.groups() for rebalance in log.of_group(group)]
        rows_of_log = [[getattr(rebalance, name) for name in columns] for rebalance in logged]
        rows_of_table = [[row[name] for name in columns] for row in rebalances_of(trace)]
        assert rows_of_log == rows_of_table, seed
        reasons |= {rebalance.reason for rebalance in logged}
    assert reasons == set(RebalanceCause)  # the seeds reach every cause


class Story:
    """The trace of a group `g` on broker-1: its rows are one second apart, from 1 s on.

    For example, `Story().begin().only_rebalance()` is a rebalance that begins at 1 s.
    """

    def __init__(self) -> None:
        self.rows: list[TraceRow] = []

    def add(self, kind: TraceKind, *, node: str = "broker-1", **columns: object) -> "Story":
        """Add a row of broker-1, or of `node`, one second after the row before; return the story.

        `columns` are the other columns of the row.
        """
        event = TraceEvent(kind=kind, **columns)  # type: ignore[arg-type]  # columns of any type
        time_us = (len(self.rows) + 1) * 1_000_000
        self.rows.append(
            stamp(
                event,
                run="r",
                time_us=time_us,
                node_time_us=time_us,
                seq=len(self.rows),
                node=node,
                incarnation=0,
            )
        )
        return self

    def begin(
        self, cause: RebalanceCause = RebalanceCause.JOIN, client_reason: str | None = None
    ) -> "Story":
        """Add the row with which a rebalance begins, caused by member `m`.

        `client_reason` is the reason that the client of `m` sent to the coordinator.
        """
        return self.add(
            TraceKind.REBALANCE_STARTED,
            group="g",
            member="m",
            generation=0,
            cause=cause,
            cause_text=f"{cause} of m",
            detail=None if client_reason is None else {"client_reason": client_reason},
        )

    def only_rebalance(self) -> Rebalance:
        """Return the only rebalance that a log finds in the rows."""
        (rebalance,) = log_of(self.rows).of_group("g")
        return rebalance


def test_rebalance_in_progress_has_no_end() -> None:
    """A rebalance in progress has no new generation, no length, and nothing cut it short."""
    rebalance = Story().begin().only_rebalance()
    assert rebalance.new_generation is None
    assert rebalance.length_us is None
    assert rebalance.cut_short_by is None


def test_rebalance_is_cut_short_by_the_departure_of_the_last_member() -> None:
    """The group is then Empty, and no generation follows."""
    story = Story().begin(RebalanceCause.SESSION_EXPIRY)
    story.add(
        TraceKind.GROUP_STATE,
        group="g",
        generation=1,
        cause=GroupStateCause.NO_MEMBER_LEFT,
        detail={"from": "PreparingRebalance", "to": "Empty"},
    )
    rebalance = story.only_rebalance()
    assert rebalance.reason == "session expiry"
    assert (rebalance.cut_short_us, rebalance.cut_short_by) == (2_000_000, "no member is left")


def test_rebalance_is_cut_short_by_the_death_of_its_coordinator() -> None:
    """Only the death of broker-1, the group's coordinator, counts; broker-0's death does not."""
    story = Story().begin()
    story.add(TraceKind.NODE_KILLED, node="driver", peer="broker-0")
    assert story.only_rebalance().cut_short_by is None
    story.add(TraceKind.NODE_KILLED, node="driver", peer="broker-1")
    rebalance = story.only_rebalance()
    assert (rebalance.cut_short_us, rebalance.cut_short_by) == (3_000_000, "broker-1 was killed")


def test_completed_rebalance_is_not_cut_short_later() -> None:
    """The rebalance ends when its assignment is stored, at 3 s. The broker dies later, at 4 s."""
    story = Story().begin()
    story.add(TraceKind.GENERATION_STARTED, group="g", generation=1)
    story.add(TraceKind.ASSIGNMENT_STORED, group="g", generation=1)
    story.add(TraceKind.NODE_KILLED, node="driver", peer="broker-1")
    rebalance = story.only_rebalance()
    assert (rebalance.length_us, rebalance.cut_short_by) == (2_000_000, None)


def test_next_rebalance_cuts_short_the_one_before() -> None:
    """While a rebalance is in progress, member `m` leaves. Its departure begins a second rebalance.

    So the cause of the second rebalance is also what cut the first rebalance short. Member `n`
    joined before `m` left, so `n` was added in the first rebalance.
    """
    story = Story().begin()
    story.add(
        TraceKind.MEMBER_ADDED, group="g", member="n", generation=0, detail={"client_id": "c"}
    )
    story.begin(RebalanceCause.LEAVE, client_reason="the consumer is being closed")
    log = log_of(story.rows)
    first, second = log.of_group("g")
    assert first.cut_short_by == "leave of m"
    assert first.added == ("n",)
    assert second.client_reason == "the consumer is being closed"
    assert log.client_ids == {"n": "c"}
