"""Rows of tables, as `docs/TABLES.md` describes them, and summaries of runs, for tests of reports.

By default the rows are about one fault, crash-0. At 10 s broker-2 crashes, which coordinates the
group `readers`. Then broker-0 takes over as coordinator, in leader epoch 1. Times are microseconds.
With `changes` a test replaces columns or adds columns.

The recovery from a fault is divided into phases that follow each other. The brokers have these:

1. detect: the controller decides on a new leader;
2. publish: the new leader learns of the decision;
3. load wait: the new leader waits until it can begin the load;
4. load: the new leader reads the groups into memory.

A member has these:

1. notice: the member notices that its coordinator is gone;
2. rediscover: the member learns from a broker which broker is the new coordinator;
3. accept: a request of the member has success at the new coordinator.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.summary.figures import MEASURES, PERCENTS, Distribution, FaultSummary, RunSummary
from pipeline.summary.outcomes import Rebalances

Row = dict[str, Any]
S = 1_000_000
"""One second in microseconds."""
GROUP = "readers"
OFFSETS = "__consumer_offsets-2"


def broker_phase(*lengths_us: int | None, **changes: Any) -> Row:  # noqa: ANN401 - of any type
    """Return a row of `broker_phases`, given the lengths of the four phases in their order.

    The first phase begins at 10 s. A phase that was never completed has the length None; at the
    end, such lengths may be left out.
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
    # For each phase the columns with its length and with the time of its end.
    columns = (
        ("detect_us", "decided_us"),
        ("publish_us", "applied_us"),
        ("load_wait_us", "load_started_us"),
        ("load_us", "active_us"),
    )
    return row | _phase_cells(10 * S, lengths_us, columns) | changes


def client_phase(consumer: str, *lengths_us: int | None, **changes: Any) -> Row:  # noqa: ANN401
    """Return a row of `client_phases`, given the lengths of the three phases in their order.

    The first phase begins at 10 s. A phase that was never completed has the length None; at the
    end, such lengths may be left out.
    """
    has_noticed = bool(lengths_us) and lengths_us[0] is not None
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
        "noticed_by": "DISCONNECTED" if has_noticed else None,
        # The member asked 49 times for its coordinator. All answers but the last answer named the
        # broker that had crashed.
        "attempts": 49,
        "stale_answers": 48,
        "self_answers": 0,
        "commit_timeouts": 0,
        "late_heartbeats": 0,
    }
    # The columns of the three phases, as in `broker_phase`.
    columns = (
        ("notice_us", "unknown_us"),
        ("rediscover_us", "named_us"),
        ("accept_us", "accepted_us"),
    )
    return row | _phase_cells(10 * S, lengths_us, columns) | changes


def _phase_cells(
    fault_us: int, lengths_us: Sequence[int | None], columns: Sequence[tuple[str, str]]
) -> Row:
    """Return the cells of phases that follow each other from `fault_us` on.

    `columns` has a pair for each phase: the column with the phase's length, and the column with the
    time of its end. A phase cannot be completed if the phase before was not completed. So if a
    phase has no length, the cells of this phase and of all later phases are None.
    """
    row: Row = {"fault_us": fault_us}
    end_us: int | None = fault_us
    for index, (length_column, end_column) in enumerate(columns):
        length_us = lengths_us[index] if index < len(lengths_us) else None
        if end_us is None or length_us is None:
            length_us = None
            end_us = None
        else:
            end_us += length_us
        row |= {length_column: length_us, end_column: end_us}
    return row


def gap(kind: str, subject: str, gap_us: int | None, **changes: Any) -> Row:  # noqa: ANN401
    """Return a row of `availability`: how long a group, member or partition had no success.

    `kind` says which of the three it is, and `subject` is its name. `gap_us` is None if the subject
    had no success any more before the run ended.
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
    """Return a row of `faults`: broker-2 crashes at 10 s, and is started again at 40 s."""
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

    The rebalance began 45 s after the crash. A second later the other members had joined again, and
    after 900 us more they had their partitions.
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
    """Return the figures of equal rebalances; by default of one, the rebalance of `rebalance`."""
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

    The clocks of two nodes differ, so a value may be wrong by up to `bound_us`.
    """
    measured = sorted(value for value in values if value is not None)
    percentiles: dict[int, int] = {}
    if measured:
        for percent in PERCENTS:
            # The nearest-rank percentile. For example, the 95th percentile of 10 values has rank
            # 9.5, which is rounded up to 10.
            rank = math.ceil(len(measured) * percent / 100)
            percentiles[percent] = measured[rank - 1]
    return Distribution(
        samples=len(measured),
        missing=len(values) - len(measured),
        percentiles=percentiles,
        maximum=measured[-1] if measured else None,
        bound_us=bound_us,
    )


def fault_summary(
    tables: Mapping[str, Sequence[Row]] | None = None,
    values: Mapping[str, Sequence[int | None]] | None = None,
    *,
    bound_us: int = 0,
    **changes: Any,  # noqa: ANN401 - any field of FaultSummary
) -> FaultSummary:
    """Return the summary of a crash. Its measures are computed from rows of tables.

    tables: the rows by the name of their table.
    values: values that are in no row, by the name of their measure.
    bound_us: the difference between the clocks of two nodes. A measure has this error if it
        compares times of two nodes.
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
    # `client_phases` has one row for each member, `broker_phases` one for each partition that got
    # another leader.
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
    """Return the summary of a run that was not interrupted."""
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
