"""Table rows, as `docs/TABLES.md` describes them, and summaries made by hand.

By default the rows are about one fault, crash-0: at 10 s broker-2, the coordinator of the group
`readers`, crashes, and broker-0 takes over in leader epoch 1. The leader epoch counts the leaders
of a partition. Times are microseconds; `changes` replace or add columns.

The recovery from a fault has two chains of phases. The first chain is that of the brokers:

1. detect: the controller decides on a new leader;
2. publish: the new leader learns of the decision;
3. load wait: the new leader waits until it can begin the load;
4. load: the new leader reads the groups into memory.

The second chain is that of a member:

1. notice: the member notices that its coordinator is gone;
2. rediscover: a broker tells the member its new coordinator;
3. accept: the member has its first success at the new coordinator.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.summary.figures import MEASURES, PERCENTS, Distribution, FaultSummary, RunSummary
from pipeline.summary.outcomes import Rebalances

Row = dict[str, Any]
S = 1_000_000
"""Microseconds of a second."""
GROUP = "readers"
OFFSETS = "__consumer_offsets-2"


def broker_phase(*lengths_us: int | None, **changes: Any) -> Row:  # noqa: ANN401 - a column's
    """Return a row of `broker_phases`, from the lengths of detect, publish, load wait and load.

    The phases follow each other from 10 s on. A phase whose length is missing or None was not
    completed.
    """
    row: Row = {
        "fault": "crash-0",
        "partition": OFFSETS,
        "old_leader": "broker-2",
        "new_leader": "broker-0",
        "leader_epoch": 1,
        "groups": [GROUP],
        "records": 265,
    }
    steps = (
        ("detect_us", "decided_us"),
        ("publish_us", "applied_us"),
        ("load_wait_us", "load_started_us"),
        ("load_us", "active_us"),
    )
    return row | _chain(10 * S, lengths_us, steps) | changes


def client_phase(consumer: str, *lengths_us: int | None, **changes: Any) -> Row:  # noqa: ANN401
    """Return a row of `client_phases`, from the lengths of notice, rediscover and accept.

    The phases follow each other from 10 s on. A phase whose length is missing or None was not
    completed.
    """
    row: Row = {
        "fault": "crash-0",
        "group": GROUP,
        "consumer": consumer,
        "member_id": f"{consumer}-id",
        "member_id_after": f"{consumer}-id",
        "generation": 1,
        "generation_after": 1,
        "join_us": None,
        "sync_us": None,
        "longest_wait_us": None,
        "noticed_by": None if not lengths_us or lengths_us[0] is None else "DISCONNECTED",
        # 49 look-ups of the coordinator; all but the last named the broker that had crashed.
        "attempts": 49,
        "stale_answers": 48,
        "self_answers": 0,
        "commit_timeouts": 0,
        "late_heartbeats": 0,
    }
    steps = (
        ("notice_us", "unknown_us"),
        ("rediscover_us", "named_us"),
        ("accept_us", "accepted_us"),
    )
    return row | _chain(10 * S, lengths_us, steps) | changes


def _chain(
    fault_us: int, lengths_us: Sequence[int | None], steps: Sequence[tuple[str, str]]
) -> Row:
    """Return the durations of a chain's phases and the times of their ends.

    After the first phase without a length all are None.

    steps: the two columns of each phase, its duration and the time of its end.
    """
    row: Row = {"fault_us": fault_us}
    end_us: int | None = fault_us
    for place, (length_column, end_column) in enumerate(steps):
        length_us = lengths_us[place] if place < len(lengths_us) else None
        end_us = None if end_us is None or length_us is None else end_us + length_us
        row |= {length_column: None if end_us is None else length_us, end_column: end_us}
    return row


def gap(kind: str, subject: str, gap_us: int | None, **changes: Any) -> Row:  # noqa: ANN401
    """Return a row of `availability`: the time in which `subject` had no success.

    `kind` is group, member or partition. `gap_us` None: the subject had no success again before the
    run ended.
    """
    row: Row = {
        "fault": "crash-0",
        "subject_kind": kind,
        "group": GROUP,
        "subject": subject,
        "gap_us": gap_us,
        "before_us": 10 * S,
        "after_us": None if gap_us is None else 10 * S + gap_us,
    }
    return row | changes


def fault_row(**changes: Any) -> Row:  # noqa: ANN401
    """Return a row of `faults`: a broker's crash at 10 s, undone at 40 s."""
    row: Row = {
        "fault": "crash-0",
        "kind": "crash",
        "target": f"coordinator-of({GROUP})",
        "node": "broker-2",
        "injected_us": 10 * S,
        "healed_us": 40 * S,
        "groups": [GROUP],
        "partitions": [OFFSETS, "orders-2"],
        "nodes": ["broker-2"],
        "from_nodes": [],
        "to_nodes": [],
    }
    return row | changes


def rebalance(**changes: Any) -> Row:  # noqa: ANN401
    """Return a row of `rebalances`: the coordinator removed c-0, which sent no heartbeat in time.

    The rebalance began 45 s after the crash. Its join phase, in which the other members rejoined,
    took a second; its sync phase, in which they got their partitions, took 900 us.
    """
    row: Row = {
        "group": GROUP,
        "broker": "broker-0",
        "leader_epoch": 1,
        "generation": 1,
        "new_generation": 2,
        "reason": "session expiry",
        "member": "c-0-id",
        "consumer": "c-0",
        "cause": "member c-0-id expired: no heartbeat",
        "client_reason": None,
        "removed": ["c-0"],
        "removed_because": ["session expiry"],
        "added": [],
        "store_error": None,
        "fault": "crash-0",
        "started_us": 55 * S,
        "joined_us": 56 * S,
        "stable_us": 56 * S + 900,
        "join_us": S,
        "sync_us": 900,
        "length_us": S + 900,
    }
    return row | changes


def rebalances_of(**changes: Any) -> Rebalances:  # noqa: ANN401
    """Return the summary of the rebalance that `rebalance` returns as a row."""
    values: dict[str, Any] = {
        "group": GROUP,
        "broker": "broker-0",
        "leader_epoch": 1,
        "reason": "session expiry",
        "count": 1,
        "consumers": ("c-0",),
        "removed": ("c-0",),
        "removed_because": ("session expiry",),
        "added": (),
        "generations": (1, 2),
        "not_stored": 0,
        "store_errors": (),
        "first_us": 55 * S,
        "last_us": 55 * S,
        "after_us": 45 * S,
        "longest_us": S + 900,
    }
    return Rebalances(**values | changes)


def distribution(values: Sequence[int | None], *, bound_us: int = 0) -> Distribution:
    """Return the distribution of values. None stands for a value that could not be measured.

    bound_us: the largest error of a value, which comes from the difference between clocks.
    """
    known = sorted(value for value in values if value is not None)
    return Distribution(
        samples=len(known),
        missing=len(values) - len(known),
        # The percentile is the value at the nearest rank, rounded up: -(-a // b) rounds up.
        percentiles={
            percent: known[-(-len(known) * percent // 100) - 1] for percent in PERCENTS if known
        },
        maximum=known[-1] if known else None,
        bound_us=bound_us,
    )


def fault_summary(
    tables: Mapping[str, Sequence[Row]] | None = None,
    values: Mapping[str, Sequence[int | None]] | None = None,
    *,
    bound_us: int = 0,
    **changes: Any,  # noqa: ANN401 - any field of FaultSummary
) -> FaultSummary:
    """Return the summary of a crash.

    tables: rows of tables, from which the values of the measures are taken.
    values: further values, by the names of their measures.
    bound_us: the error between the clocks of two nodes, for measures that span two nodes.
    """
    fault = changes.get("fault", "crash-0")
    values_of_measure: dict[str, list[int | None]] = {
        name: list(given_values) for name, given_values in (values or {}).items()
    }
    for measure in MEASURES:
        for row in (tables or {}).get(measure.table, ()):
            # A measure without a subject kind takes the rows of all kinds.
            if row["fault"] == fault and measure.subject_kind in {None, row.get("subject_kind")}:
                values_of_measure.setdefault(measure.name, []).append(row.get(measure.column))
    # One row for each member, and one for each partition that got another leader.
    members = [row for row in (tables or {}).get("client_phases", ()) if row["fault"] == fault]
    moved = [row for row in (tables or {}).get("broker_phases", ()) if row["fault"] == fault]
    fields: dict[str, Any] = {
        "fault": fault,
        "kind": "crash",
        "target": f"coordinator-of({GROUP})",
        "node": "broker-2",
        "injected_us": 10 * S,
        "healed_us": 40 * S,
        "partitions_moved": len(moved),
        "members": len(members),
        "members_kept": len(members),
        "members_kept_id": len(members),
        "measures": tuple(
            (
                measure,
                distribution(
                    values_of_measure[measure.name],
                    bound_us=bound_us if measure.across_nodes else 0,
                ),
            )
            for measure in MEASURES
            if measure.name in values_of_measure
        ),
    }
    return FaultSummary(**fields | changes)


def summary_of(name: str, *faults: FaultSummary, **changes: Any) -> RunSummary:  # noqa: ANN401
    """Return the summary of a complete run."""
    fields: dict[str, Any] = {
        "run": name,
        "directory": Path("runs") / name,
        "events": 1_000,
        "completed": True,
        "clock_error_us": 0,
        "bad_rows": (),
        "unreadable": (),
        "faults": faults,
    }
    return RunSummary(**fields | changes)
