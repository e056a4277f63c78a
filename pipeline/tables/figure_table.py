"""The table `figures`: the phases and gaps of every fault, with percentiles over its subjects.

A measure is one column of another table, such as `detect_us` of `broker_phases`; its subjects are
the rows of that table about one fault: partitions, members or groups. Measures belong to three
chains: `broker` (phases of offsets partitions), `client` (phases of members), and `gap` (times
without service).
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.summary.figures import MEASURES, PERCENTS, Measure, samples_needed


def figures(
    faults: DataFrame, broker_phases: DataFrame, client_phases: DataFrame, availability: DataFrame
) -> DataFrame:
    """Summarize each fault's phases, gaps and counts over their subjects.

    A percentile is a value that occurred (nearest rank).
    Input grain: `faults`; `broker_phases`; `client_phases`; `availability`. Output grain: one row
    per run, fault and measure of `figures.MEASURES` that has a subject. A subject is an offsets
    partition that moved, a member, or a subject of `availability`.
    Columns:
    - `run`, `fault`, `kind` (of the fault), `chain` (broker | client | gap), `measure`;
    - `is_time` (true: microseconds; false: a count);
    - `samples`: number of subjects that have a value, `missing`: number of those that have none;
    - `p50`, `p90`, `p99`, `max`: microseconds or counts, as `is_time` says;
    - `from_us`, `to_us`: the time that these values describe, in microseconds on the run's clock,
      from the earliest beginning to the latest end over the subjects. In the broker chain, a
      subject's time lasts from the fault to the active coordinator; in the client chain, from the
      fault to the member's acceptance; otherwise it is the gap itself. If that end did not come, or
      if a member had to join again, the end is the next fault or the run's end.

    Nulls: `kind` if the run did not record it; `p50` to `max` if there are no samples; `p90` of
    fewer than 10 samples and `p99` of fewer than 100, because so few samples say nothing about the
    rare values above these percentiles.
    """
    inputs = {
        "broker_phases": broker_phases,
        "client_phases": client_phases,
        "availability": availability,
    }
    percents = F.array(*(F.lit(percent / 100) for percent in PERCENTS))
    ends = F.broadcast(faults.select("run", "fault", "kind", F.col("until_us").alias("next_us")))
    # An open time lasts until the next fault. If it began after that fault, it has no length.
    to_us = F.coalesce("to_us", F.greatest("from_us", "next_us"))
    summed = (
        _long(inputs)
        .join(ends.drop("kind"), ["run", "fault"], "left")
        .groupBy("run", "fault", "chain", "measure", "is_time")
        .agg(
            F.count("value").alias("samples"),
            F.count_if(F.col("value").isNull()).alias("missing"),
            # In contrast to `percentile`, this returns values that occurred.
            F.percentile_approx("value", percents).alias("percentiles"),
            F.max("value").alias("max"),
            F.min("from_us").alias("from_us"),
            F.max(to_us).alias("to_us"),
        )
    )
    return summed.join(ends, ["run", "fault"], "left").select(
        "run",
        "fault",
        "kind",
        "chain",
        "measure",
        "is_time",
        "samples",
        "missing",
        *(_percentile(index).alias(f"p{percent}") for index, percent in enumerate(PERCENTS)),
        "max",
        "from_us",
        "to_us",
    )


def _percentile(index: int) -> Column:
    """Return the percentile at an index of PERCENTS; null if there are too few samples."""
    enough = F.col("samples") >= samples_needed(PERCENTS[index])
    return F.when(enough, F.col("percentiles")[index])


def _long(inputs: dict[str, DataFrame]) -> DataFrame:
    """One row per run, fault, measure and subject: turn the measured columns into rows."""
    parts = []
    for name, table in inputs.items():
        entries = F.array(*(_entry(measure) for measure in MEASURES if measure.table == name))
        rows = table.select("run", "fault", F.explode(entries).alias("entry"))
        parts.append(rows.where(F.col("entry").isNotNull()).select("run", "fault", "entry.*"))
    stacked, *others = parts
    for other in others:
        stacked = stacked.unionByName(other)
    return stacked


def _entry(measure: Measure) -> Column:
    """Return a row's contribution to a measure; null if its subject is of another kind."""
    entry = F.struct(
        F.lit(measure.chain).alias("chain"),
        F.lit(measure.name).alias("measure"),
        F.lit(measure.is_time).alias("is_time"),
        F.col(measure.column).cast("long").alias("value"),
        *_span(measure),
    )
    if measure.subject_kind is None:
        return entry
    return F.when(F.col("subject_kind") == measure.subject_kind, entry)


def _span(measure: Measure) -> tuple[Column, Column]:
    """Return beginning and end of the time that a row's values describe; null end: it is open."""
    match measure.chain:
        case "broker":
            begun, ended = F.col("fault_us"), F.col("active_us")
        case "client":
            # A member that had to join is served again only after its join.
            begun, ended = (
                F.col("fault_us"),
                F.when(F.col("join_us").isNull(), F.col("accepted_us")),
            )
        case "gap":
            begun, ended = F.col("before_us"), F.col("after_us")
    return begun.alias("from_us"), ended.alias("to_us")
