"""The aggregates of one run, computed in plain Python from its trace in memory.

An aggregate is a small table from which the summary of a run is made, such as the number of records
that each group processed. `spark_aggregates` computes the same aggregates with Spark, for many runs
at once. The module `summary` makes summaries from the aggregates of both modules. Each function
that AGGREGATES lists takes the trace of a run, and returns the rows of one aggregate.
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
"""Rebalances are of the same kind if they have the same values in these columns."""


def bad_row_counts_of(bad_rows: Iterable[TableRow]) -> list[TableRow]:
    """Count the rows of the trace that could not be used, by reason."""
    return [
        {"reason": reason, "count": len(rows)}
        for (reason,), rows in _grouped(bad_rows, "reason").items()
    ]


def _moved_partitions(trace: Trace) -> list[TableRow]:
    """Count the offsets partitions that each fault moved to another broker."""
    by_fault = _grouped(broker_phases_of(trace), "fault")
    return [{"fault": fault, "moved": len(rows)} for (fault,), rows in by_fault.items()]


def _member_counts(trace: Trace) -> list[TableRow]:
    """Count the members that noticed a fault in the same way.

    A member notices a fault when it gives its coordinator up. Two members noticed it in the same
    way if they had the same reason, and if the same number of their commits had timed out before.

    For example, a row is about the 4 members that gave the coordinator up by NOT_COORDINATOR after
    0 timed-out commits. In this row, a `kept_id` of 3 says that 3 of the 4 members kept their
    member id.
    """
    counts_by_way: dict[tuple[object, ...], TableRow] = {}
    for row in client_phases_of(trace):
        has_left_coordinator = row["unknown_us"] is not None
        way = {
            "fault": row["fault"],
            "noticed_by": row["noticed_by"],
            "timeouts": row["commit_timeouts"] if has_left_coordinator else None,
        }
        # The row of this way. A new row has the columns of the way, and counts of 0.
        zeros = {"members": 0, "kept": 0, "kept_id": 0, "told": 0}
        counts = counts_by_way.setdefault(tuple(way.values()), way | zeros)

        kept_id = _is_kept(row["member_id"], row["member_id_after"])
        kept_generation = _is_kept(row["generation"], row["generation_after"])
        # The member asked the old coordinator for its coordinator, and the old coordinator named
        # itself. `self_answers` is None for a member that did not give its coordinator up.
        told_by_old = row["self_answers"] is not None and row["self_answers"] > 0

        # True counts as 1, and False as 0.
        counts["members"] += 1
        counts["kept_id"] += kept_id
        counts["kept"] += kept_id and kept_generation
        counts["told"] += told_by_old
    return list(counts_by_way.values())


def _is_kept(before: object, after: object) -> bool:
    """Return whether a member id or generation is the same after a fault.

    Two unknown values (None) are not the same, as in Spark, where null does not equal null.
    """
    return before is not None and before == after


def _rebalances_by_kind(trace: Trace) -> list[TableRow]:
    """Return a row for each rebalance, or one for all rebalances of a kind if these are many."""
    after_faults = [row for row in rebalances_of(trace) if row["fault"] is not None]
    aggregates = []
    for kind, same_kind in _grouped(after_faults, *_KIND).items():
        # If there are few rebalances, each gets a row. They are told apart by the moment at which
        # they began, so two rebalances that began at the same moment share a row.
        are_few = len(same_kind) <= ONE_BY_ONE_MAX
        rows_together = _grouped(same_kind, "started_us").values() if are_few else [same_kind]
        for rows in rows_together:
            store_errors = _known(rows, "store_error")
            started_us = [row["started_us"] for row in rows]
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
                    "not_stored": len(store_errors),
                    "store_errors": sorted(set(store_errors)),
                    "first_us": min(started_us),
                    "last_us": max(started_us),
                    "longest_us": max(_known(rows, "length_us"), default=None),
                }
            )
    return aggregates


def _coordinator_pairs(trace: Trace) -> list[TableRow]:
    """Return a row for each time in which groups had two coordinators.

    Two brokers can also lead an offsets partition that stores no group. Such a time does not count.
    """
    return [row for row in tenure_overlaps_of(trace) if row["groups"]]


def _owner_sets(trace: Trace) -> list[TableRow]:
    """Sum up the times in which two members owned the same partition.

    Times of the same group after the same fault share a row if the same coordinators had assigned
    the partitions: broker-0 to the first owners, for example, and broker-1 to the second owners.
    """
    aggregates = []
    same_in_a_row = ("group", "fault", *LINEAGES)
    for key, rows in _grouped(ownership_overlaps_of(trace), *same_in_a_row).items():
        ends_us = [row["to_us"] for row in rows]
        aggregates.append(
            dict(zip(same_in_a_row, key, strict=True))
            | {
                "partitions": len({row["partition"] for row in rows}),
                "first_consumers": sorted({row["first_consumer"] for row in rows}),
                "second_consumers": sorted({row["second_consumer"] for row in rows}),
                "from_us": min(row["from_us"] for row in rows),
                # If a partition still had two owners when the run ended, `to_us` is None.
                "to_us": None if None in ends_us else max(ends_us),
                "longest_us": max(row["length_us"] for row in rows),
                "records_both": sum(row["records_both"] for row in rows),
                "healed_us": max(_known(rows, "healed_us"), default=None),
            }
        )
    return aggregates


def _processed(trace: Trace) -> list[TableRow]:
    """Count the records that each group processed, and how many of them it processed again."""
    return [
        {
            "group": group,
            "records": sum(row["records"] for row in rows),
            "repeated": sum(row["repeated"] for row in rows),
        }
        for (group,), rows in _grouped(processing_of(trace), "group").items()
    ]


def _commit_errors(trace: Trace) -> list[TableRow]:
    """Count the commits that failed with each error after the first fault, and who sent them."""
    # `fault` is None for commits before the first fault. The error `NONE` means success.
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

    The felt measures are effects of faults that the users of a group notice, such as the time in
    which a partition has no owner. Rows in which the group is None are about the partitions of all
    groups together.
    """
    aggregates = []
    all_partitions = felt_partitions_of(trace)
    partitions_by_group: dict[str | None, list[TableRow]] = {
        group: rows for (group,), rows in _grouped(all_partitions, "group").items()
    }
    if all_partitions:  # Spark's aggregate has no row either if there are no partitions
        partitions_by_group[None] = all_partitions
    for group, rows in partitions_by_group.items():
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
    """Return a percentile of sorted values; None if there are too few values for it.

    A percentile is always one of the values (nearest rank). Of 12 values, for example, the 90th
    percentile is the 11th value, because 90 % of 12 is 10.8, which is rounded up.
    """
    if len(values) < samples_needed(percent):
        return None
    rank = -(-len(values) * percent // 100)  # -(-a // b) is a / b, rounded up
    return values[rank - 1]


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
"""The function that computes each aggregate, by the name of the aggregate. The aggregates of Spark
have the same names.
"""


_Values = tuple[Any, ...]  # a value of each column; its type depends on the column


def _grouped(rows: Iterable[TableRow], *columns: str) -> dict[_Values, list[TableRow]]:
    """Group rows by their values of `columns`. The groups are in the order of their first rows."""
    groups: dict[_Values, list[TableRow]] = {}
    for row in rows:
        groups.setdefault(tuple(row[column] for column in columns), []).append(row)
    return groups


def _known(rows: Sequence[TableRow], column: str) -> list[Any]:  # Any: the column's type
    """Return the values of a column that are not None."""
    return [row[column] for row in rows if row[column] is not None]


def _union(rows: Sequence[TableRow], column: str) -> list[str]:
    """Return the distinct elements of a column of lists, sorted."""
    return sorted({element for row in rows for element in row[column]})
