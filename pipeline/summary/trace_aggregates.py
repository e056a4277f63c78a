"""The aggregates of one run's tables, computed in plain Python.

An aggregate is a table of few rows, from which a summary is made. `summary.spark_aggregates`
computes the same aggregates with Spark. `summary.summary` reads the aggregates of both modules. A
leader epoch is the number of the leadership by which a broker is the coordinator of groups.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pipeline.in_memory.broker_phases import broker_phases_of
from pipeline.in_memory.client_phases import client_phases_of
from pipeline.in_memory.commits import commits_of
from pipeline.in_memory.faults import faults_of
from pipeline.in_memory.felt import felt_groups_of, felt_partitions_of
from pipeline.in_memory.figures import figures_of
from pipeline.in_memory.ownership_overlaps import ownership_overlaps_of
from pipeline.in_memory.processing import processing_of
from pipeline.in_memory.rebalances import rebalances_of
from pipeline.in_memory.runs import runs_of
from pipeline.in_memory.tenure_overlaps import tenure_overlaps_of
from pipeline.in_memory.trace import TableRow, Trace
from pipeline.summary.felt import FELT_MEASURES, PERCENTS
from pipeline.summary.figures import samples_needed
from pipeline.summary.outcome_summary import LINEAGES, ONE_BY_ONE_MAX

_KIND = ("fault", "group", "broker", "leader_epoch", "reason")
"""Columns that are equal for all rebalances of a kind."""


def bad_row_counts_of(bad_rows: Iterable[TableRow]) -> list[TableRow]:
    """Return one row per reason for which rows were unusable, with their number."""
    return [
        {"reason": reason, "count": len(rows)}
        for (reason,), rows in _grouped(bad_rows, "reason").items()
    ]


def _moved_partitions(trace: Trace) -> list[TableRow]:
    """Count the partitions that each fault moved to another broker."""
    by_fault = _grouped(broker_phases_of(trace), "fault")
    return [{"fault": fault, "moved": len(rows)} for (fault,), rows in by_fault.items()]


def _member_counts(trace: Trace) -> list[TableRow]:
    """Count the members of each fault by the way in which they noticed the fault.

    A member notices the fault when it gives its coordinator up, possibly after commits that timed
    out. For each way, the aggregate also counts the members that kept their member id, and those
    that kept it and their generation (the number of the group's rebalance), too.
    """
    counts_by_kind: dict[tuple[object, ...], TableRow] = {}
    for row in client_phases_of(trace):
        has_left_coordinator = row["unknown_us"] is not None
        kind = {
            "fault": row["fault"],
            "noticed_by": row["noticed_by"],
            "timeouts": row["commit_timeouts"] if has_left_coordinator else None,
        }
        zeros = {"members": 0, "kept": 0, "kept_id": 0, "told": 0}
        counts = counts_by_kind.setdefault(tuple(kind.values()), kind | zeros)

        # An id or generation that is unknown (None) is not kept, as in Spark, where a comparison
        # with null is not true.
        kept_id = _is_equal_and_known(row["member_id"], row["member_id_after"])
        kept_generation = _is_equal_and_known(row["generation"], row["generation_after"])

        counts["members"] += 1
        counts["kept_id"] += kept_id
        counts["kept"] += kept_id and kept_generation
        # Count the member if the old coordinator told it that it still was the coordinator.
        counts["told"] += (row["self_answers"] or 0) > 0
    return list(counts_by_kind.values())


def _is_equal_and_known(before: object, after: object) -> bool:
    # If both are equal and `before` is known, so is `after`.
    return before is not None and before == after


def _rebalances_by_kind(trace: Trace) -> list[TableRow]:
    """Return a row for each kind of rebalances, or for each rebalance if a kind has few."""
    after_faults = [row for row in rebalances_of(trace) if row["fault"] is not None]
    aggregates = []
    for kind, same_kind in _grouped(after_faults, *_KIND).items():
        # If the kind has few rebalances, each gets a row of its own. Only rebalances that began at
        # the same moment share a row.
        are_few = len(same_kind) <= ONE_BY_ONE_MAX
        parts = _grouped(same_kind, "started_us").values() if are_few else [same_kind]
        for rows in parts:
            errors = _known(rows, "store_error")
            started = [row["started_us"] for row in rows]
            aggregates.append(
                dict(zip(_KIND, kind, strict=True))
                | {
                    "count": len(rows),
                    "consumers": sorted(set(_known(rows, "consumer"))),
                    "removed": _union(rows, "removed"),
                    "removed_because": _union(rows, "removed_because"),
                    "added": _union(rows, "added"),
                    "first_generation": min(_known(rows, "generation"), default=None),
                    "last_generation": max(_known(rows, "new_generation"), default=None),
                    "not_stored": len(errors),
                    "store_errors": sorted(set(errors)),
                    "first_us": min(started),
                    "last_us": max(started),
                    "longest_us": max(_known(rows, "length_us"), default=None),
                }
            )
    return aggregates


def _coordinator_pairs(trace: Trace) -> list[TableRow]:
    """Return a row for each time in which two coordinators served the same groups."""
    return [row for row in tenure_overlaps_of(trace) if row["groups"]]


def _owner_sets(trace: Trace) -> list[TableRow]:
    """Sum up the times in which two members owned a partition, by group, fault and lineages.

    The lineage of an owner is the coordinator that assigned the partition, with its leader epoch.
    """
    aggregates = []
    columns = ("group", "fault", *LINEAGES)
    for key, rows in _grouped(ownership_overlaps_of(trace), *columns).items():
        ends = [row["to_us"] for row in rows]
        aggregates.append(
            dict(zip(columns, key, strict=True))
            | {
                "partitions": len({row["partition"] for row in rows}),
                "first_consumers": sorted({row["first_consumer"] for row in rows}),
                "second_consumers": sorted({row["second_consumer"] for row in rows}),
                "from_us": min(row["from_us"] for row in rows),
                # If a partition still had two owners when the run ended, `to_us` is None.
                "to_us": None if None in ends else max(ends),
                "longest_us": max(row["length_us"] for row in rows),
                "records_both": sum(row["records_both"] for row in rows),
                "healed_us": max(_known(rows, "healed_us"), default=None),
            }
        )
    return aggregates


def _processed(trace: Trace) -> list[TableRow]:
    """Count the records that each group processed, and how many of them it had processed before."""
    return [
        {
            "group": group,
            "records": sum(row["records"] for row in rows),
            "repeated": sum(row["repeated"] for row in rows),
        }
        for (group,), rows in _grouped(processing_of(trace), "group").items()
    ]


def _commit_errors(trace: Trace) -> list[TableRow]:
    """Count, for each error of commits after a fault, these commits and their members."""
    failed = [
        row for row in commits_of(trace) if row["fault"] is not None and row["error"] != "NONE"
    ]
    return [
        {
            "error": error,
            "commits": sum(row["commits"] for row in rows),
            "members": len({row["consumer"] for row in rows}),
        }
        for (error,), rows in _grouped(failed, "error").items()
    ]


def _felt_spreads(trace: Trace) -> list[TableRow]:
    """Compute the distribution of each felt measure over the partitions of each group.

    A felt measure is an effect of faults that users of a group notice. Rows with the group None are
    about the partitions of all groups together.
    """
    aggregates = []
    partitions = felt_partitions_of(trace)
    of_groups: list[tuple[str | None, list[TableRow]]] = [
        (group, rows) for (group,), rows in _grouped(partitions, "group").items()
    ]
    if partitions:  # without partitions there is no row, as in Spark's aggregate
        of_groups.append((None, partitions))
    for group, rows in of_groups:
        for measure in FELT_MEASURES:
            values = sorted(_known(rows, measure.column))
            aggregates.append(
                {
                    "group": group,
                    "measure": measure.name,
                    "samples": len(values),
                    "missing": len(rows) - len(values),
                    **{f"p{percent}": _nearest_rank(values, percent) for percent in PERCENTS},
                    "max": max(values, default=None),
                    "total": sum(values) if values else None,
                }
            )
    return aggregates


def _nearest_rank(values: Sequence[int], percent: int) -> int | None:
    """Return a percentile of sorted values by nearest rank, None if there are too few values."""
    rank = -(-len(values) * percent // 100)  # -(-a // b) rounds up
    return values[rank - 1] if len(values) >= samples_needed(percent) else None


AGGREGATES: dict[str, Callable[[Trace], list[TableRow]]] = {
    "known_runs": runs_of,
    "known_faults": faults_of,
    "known_figures": figures_of,
    "moved_partitions": _moved_partitions,
    "member_counts": _member_counts,
    "rebalances_by_kind": _rebalances_by_kind,
    "coordinator_pairs": _coordinator_pairs,
    "owner_sets": _owner_sets,
    "processed": _processed,
    "commit_errors": _commit_errors,
    "felt_spreads": _felt_spreads,
    "felt_counts": felt_groups_of,
}
"""The function that computes each aggregate. The names are those of the steps that compute the same
aggregates with Spark.
"""


_Key = tuple[Any, ...]  # Any: each column has its own type


def _grouped(rows: Iterable[TableRow], *columns: str) -> dict[_Key, list[TableRow]]:
    """Group rows by their values of `columns`, in the order of first occurrence."""
    groups: dict[_Key, list[TableRow]] = {}
    for row in rows:
        groups.setdefault(tuple(row[column] for column in columns), []).append(row)
    return groups


def _known(rows: Sequence[TableRow], column: str) -> list[Any]:  # Any: the column's type
    """Return the values of a column that are not None."""
    return [row[column] for row in rows if row[column] is not None]


def _union(rows: Sequence[TableRow], column: str) -> list[str]:
    """Return the distinct elements of a column of lists, sorted."""
    return sorted({element for row in rows for element in row[column]})
