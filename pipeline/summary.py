"""Sum tables up: each fault's phases and gaps with percentiles, and its members.

Only aggregates reach the driver: a few rows per fault, whatever the size of the runs.
"""

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from pipeline.events import RunFiles
from pipeline.figures import (
    MEASURES,
    PERCENTS,
    Distribution,
    FaultSummary,
    RunSummary,
)
from pipeline.outcome_summary import (
    FaultKey,
    Tables,
    commit_errors,
    coordinators_at_once,
    owners_at_once,
    processing_of_groups,
    rebalances_after,
)


def summarize(
    tables: Tables, runs: Sequence[RunFiles], clock_errors_us: Mapping[str, int]
) -> tuple[RunSummary, ...]:
    """Sum the tables up, run by run, in the order of `runs`."""
    bad: dict[str, dict[str, int]] = {}
    for row in tables["bad_rows"].groupBy("run", "reason").count().collect():
        bad.setdefault(row["run"], {})[row["reason"]] = row["count"]
    known = {row["run"]: row for row in tables["runs"].collect()}
    faults = _faults(tables, clock_errors_us)
    coordinators = coordinators_at_once(tables)
    owners = owners_at_once(tables)
    processed = processing_of_groups(tables)
    errors = commit_errors(tables)
    return tuple(
        RunSummary(
            run=files.run,
            directory=files.directory,
            events=known[files.run]["events"] if files.run in known else 0,
            completed=files.run in known and known[files.run]["completed"],
            clock_error_us=clock_errors_us[files.run],
            bad_rows=tuple(sorted(bad.get(files.run, {}).items())),
            unreadable=files.unreadable,
            faults=tuple(faults.get(files.run, ())),
            coordinators=coordinators.get(files.run, ()),
            owners=owners.get(files.run, ()),
            processing=processed.get(files.run, ()),
            commit_errors=errors.get(files.run, ()),
        )
        for files in runs
    )


def _faults(tables: Tables, clock_errors_us: Mapping[str, int]) -> dict[str, list[FaultSummary]]:
    """Return each run's faults in time order."""
    measured = _distributions(tables, clock_errors_us)
    rebalanced = rebalances_after(tables)
    noticed = _noticed(tables["client_phases"])
    left = _left_after(tables["client_phases"])
    rows = _counts(tables).collect()
    summaries: dict[str, list[FaultSummary]] = {}
    for row in sorted(rows, key=lambda row: (row["run"], row["injected_us"], row["fault"])):
        key = (row["run"], row["fault"])
        found = measured.get(key, {})
        summary = FaultSummary(
            fault=row["fault"],
            kind=row["kind"],
            target=row["target"],
            node=row["node"],
            injected_us=row["injected_us"],
            healed_us=row["healed_us"],
            partitions_moved=row["moved"],
            members=row["members"],
            members_kept=row["kept"],
            members_kept_id=row["kept_id"],
            measures=tuple((m, found[m.name]) for m in MEASURES if m.name in found),
            noticed_by=noticed.get(key, ()),
            left_after=left.get(key, ()),
            told_by_old=row["told"],
            rebalances=rebalanced.get(key, ()),
        )
        summaries.setdefault(row["run"], []).append(summary)
    return summaries


_COUNTED = ("moved", "members", "kept", "kept_id", "told")


def _counts(tables: Tables) -> DataFrame:
    """One row per run and fault, with its partitions and members counted."""
    key = ["run", "fault"]
    kept_id = F.col("member_id") == F.col("member_id_after")
    kept = kept_id & (F.col("generation") == F.col("generation_after"))
    moved = tables["broker_phases"].groupBy(*key).agg(F.count("*").alias("moved"))
    members = (
        tables["client_phases"]
        .groupBy(*key)
        .agg(
            F.count("*").alias("members"),
            F.count_if(kept).alias("kept"),
            F.count_if(kept_id).alias("kept_id"),
            F.count_if(F.col("self_answers") > 0).alias("told"),
        )
    )
    return (
        tables["faults"]
        .join(moved, key, "left")
        .join(members, key, "left")
        .select(
            *key,
            "kind",
            "target",
            "node",
            "injected_us",
            "healed_us",
            *(F.coalesce(name, F.lit(0)).alias(name) for name in _COUNTED),
        )
    )


def _noticed(client_phases: DataFrame) -> dict[FaultKey, tuple[tuple[str, int], ...]]:
    """Count by what members noticed each fault, the most frequent first."""
    counts = (
        client_phases.where(F.col("noticed_by").isNotNull())
        .groupBy("run", "fault", "noticed_by")
        .count()
        .orderBy("run", "fault", F.desc("count"), "noticed_by")
    )
    found: dict[FaultKey, list[tuple[str, int]]] = {}
    for row in counts.collect():
        found.setdefault((row["run"], row["fault"]), []).append((row["noticed_by"], row["count"]))
    return {key: tuple(values) for key, values in found.items()}


def _left_after(client_phases: DataFrame) -> dict[FaultKey, tuple[tuple[int, int], ...]]:
    """Count members by how many commits had timed out when they left their coordinator."""
    counts = (
        client_phases.where(F.col("unknown_us").isNotNull() & (F.col("commit_timeouts") > 0))
        .groupBy("run", "fault", "commit_timeouts")
        .count()
        .orderBy("run", "fault", "commit_timeouts")
    )
    found: dict[FaultKey, list[tuple[int, int]]] = {}
    for row in counts.collect():
        entry = (row["commit_timeouts"], row["count"])
        found.setdefault((row["run"], row["fault"]), []).append(entry)
    return {key: tuple(values) for key, values in found.items()}


def _distributions(
    tables: Tables, clock_errors_us: Mapping[str, int]
) -> dict[FaultKey, dict[str, Distribution]]:
    """Return each fault's measures by name."""
    across = {measure.name for measure in MEASURES if measure.across_nodes}
    found: dict[FaultKey, dict[str, Distribution]] = {}
    for row in tables["figures"].collect():
        bound_us = clock_errors_us[row["run"]] if row["measure"] in across else 0
        measures = found.setdefault((row["run"], row["fault"]), {})
        measures[row["measure"]] = _distribution(row, bound_us)
    return found


def _distribution(row: Row, bound_us: int) -> Distribution:
    given = {percent: row[f"p{percent}"] for percent in PERCENTS}
    return Distribution(
        samples=row["samples"],
        missing=row["missing"],
        percentiles={percent: value for percent, value in given.items() if value is not None},
        maximum=row["max"],
        bound_us=bound_us,
    )
