"""The rebalances of a run so far: the table's story, row by row, and what cut one short."""

from coordlab.commands.groups.rebalance_log import Rebalance, RebalanceLog
from pipeline.in_memory.rebalances import rebalances_of
from pipeline.in_memory.trace import TableRow, Trace
from pipeline.intermediate.rebalance_reasons import REASONS
from protocol.trace import TraceEvent, TraceKind, TraceRow, stamp
from tests.support.random_worlds.random_trace import random_run

SEEDS = range(40)
_NAMED = ("group", "generation", "new_generation", "reason", "cause", "client_reason")
_TIMED = ("store_error", "started_us", "joined_us", "stable_us", "join_us", "sync_us", "length_us")


def log_of(rows: list[TraceRow]) -> RebalanceLog:
    log = RebalanceLog()
    log.observe_all(rows)
    return log


def as_table_row(found: Rebalance, names: dict[tuple[str, str], str]) -> TableRow:
    """Return what the table has too; consumers in the place of member ids."""

    def named(members: tuple[str, ...]) -> list[str]:
        return sorted({names.get((found.group, member), member) for member in members})

    columns = {name: getattr(found, name) for name in (*_NAMED, *_TIMED, "member")}
    return columns | {
        "broker": found.coordinator,
        "cause": found.cause or None,
        "added": named(found.added),
        "removed": named(found.removed),
        "removed_because": sorted(found.removed_because),
    }


def test_rebalances_so_far_are_those_of_the_table_in_random_runs() -> None:
    """Held against the plain Python that Spark's table is held against, row by row."""
    reasons = set()
    for seed in SEEDS:
        trace = Trace(random_run(seed))
        log = log_of(trace.rows)
        names = trace.consumers()
        found = [
            as_table_row(each, names) for group in log.groups() for each in log.of_group(group)
        ]
        expected = [
            {
                name: (row[name] or None) if name == "member" else row[name]
                for name in (*_NAMED, *_TIMED, "member", "broker", "added", "removed")
            }
            | {"removed_because": row["removed_because"]}
            for row in rebalances_of(trace)
        ]
        assert sorted(map(repr_of, found)) == sorted(map(repr_of, expected)), seed
        reasons |= {row["reason"] for row in found}
    assert reasons == {word for _, word in REASONS}


def repr_of(row: TableRow) -> str:
    return repr(sorted(row.items()))


class Story:
    """Rows of one group on one broker, a second apart."""

    def __init__(self) -> None:
        self.rows: list[TraceRow] = []

    def tell(self, kind: TraceKind, *, node: str = "broker-1", **columns: object) -> "Story":
        event = TraceEvent(kind=kind, **columns)  # type: ignore[arg-type]  # a test's own words
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

    def begin(self, cause: str = "member m joined; client reason: not provided") -> "Story":
        return self.tell(
            TraceKind.REBALANCE_STARTED, group="g", member="m", generation=0, cause=cause
        )

    def only(self) -> Rebalance:
        (found,) = log_of(self.rows).of_group("g")
        return found


def test_rebalance_that_is_on_its_way_has_no_end_yet() -> None:
    """Neither a new generation nor anything that cut it short."""
    found = Story().begin().only()
    assert (found.new_generation, found.length_us, found.cut_short_by) == (None, None, None)


def test_rebalance_is_cut_short_by_the_last_member_that_goes() -> None:
    """The group is Empty then: there is no generation to wait for."""
    story = Story().begin("member m expired: no heartbeat")
    story.tell(
        TraceKind.GROUP_STATE,
        group="g",
        generation=1,
        cause="no member is left",
        detail={"from": "PreparingRebalance", "to": "Empty"},
    )
    found = story.only()
    assert found.reason == "session expiry"
    assert (found.cut_short_us, found.cut_short_by) == (2_000_000, "no member is left")


def test_rebalance_is_cut_short_by_the_death_of_its_coordinator() -> None:
    """The row is the driver's; a broker that coordinates other groups has nothing to do with it."""
    story = Story().begin()
    story.tell(TraceKind.NODE_KILLED, node="driver", peer="broker-0")
    assert story.only().cut_short_by is None
    story.tell(TraceKind.NODE_KILLED, node="driver", peer="broker-1")
    found = story.only()
    assert (found.cut_short_us, found.cut_short_by) == (3_000_000, "broker-1 was killed")


def test_rebalance_that_is_over_is_not_cut_short_any_more() -> None:
    """What comes later is another story."""
    story = Story().begin()
    story.tell(TraceKind.GENERATION_STARTED, group="g", generation=1)
    story.tell(TraceKind.ASSIGNMENT_STORED, group="g", generation=1)
    story.tell(TraceKind.NODE_KILLED, node="driver", peer="broker-1")
    found = story.only()
    assert (found.length_us, found.cut_short_by) == (2_000_000, None)


def test_next_rebalance_cuts_short_the_one_before() -> None:
    """By its own cause; and the client behind a member id is remembered."""
    story = Story().begin()
    story.tell(
        TraceKind.MEMBER_ADDED, group="g", member="n", generation=0, detail={"client_id": "c"}
    )
    story.begin("member n left; client reason: the consumer is being closed")
    log = log_of(story.rows)
    first, second = log.of_group("g")
    assert first.cut_short_by == "member n left; client reason: the consumer is being closed"
    assert first.added == ("n",)
    assert second.client_reason == "the consumer is being closed"
    assert log.client_ids == {"n": "c"}
