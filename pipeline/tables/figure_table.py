"""The table `figures`: each measured time or count of each fault, with its percentiles.

A measure is one column of another table, such as `detect_us` of `broker_phases`. After one fault
the column has many values, one for each partition, member or group, called the measure's subjects.
A row of `figures` has the percentiles of these values. A measure belongs to one of three chains:
`broker` (phases of partitions of `__consumer_offsets`), `client` (phases of members), and `gap`
(times without service).
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.summary.figures import MEASURES, PERCENTS, Measure, samples_needed


def figures(
    faults: DataFrame, broker_phases: DataFrame, client_phases: DataFrame, availability: DataFrame
) -> DataFrame:
    """Summarize each fault's phases, gaps and counts over their subjects.

    A percentile is always one of the measured values, not a value between two of them (nearest
    rank). The inputs are the tables of these names. Output grain: one row per run, fault and
    measure of `figures.MEASURES` that has a subject. A subject is an offsets partition that moved,
    a member, or a subject of `availability`.
    Columns:
    - `run`, `fault`, `kind` (of the fault), `chain` (broker | client | gap), `measure`;
    - `is_time` (true: microseconds; false: a count);
    - `samples`: number of subjects that have a value; `missing`: number of subjects without a
      value;
    - `p50`, `p90`, `p99`, `max`: microseconds or counts, as `is_time` says;
    - `from_us`, `to_us`: the time that these values describe, in microseconds on the run's clock.
      It lasts from the earliest beginning to the latest end of the subjects' times. In the broker
      chain, the time of a subject lasts from the fault until the coordinator is active; in the
      client chain, from the fault until the coordinator accepts the member; in the gap chain, it is
      the gap. If the end of this time did not come, or if a member had to join again, the time ends
      with the next fault or with the run.

    Nulls: `kind` if the run did not record it; `p50` to `max` if there are no samples; `p90` of
    fewer than 10 samples and `p99` of fewer than 100, because so few samples say nothing about the
    rare values above these percentiles.
    """
    inputs = {
        "broker_phases": broker_phases,
        "client_phases": client_phases,
        "availability": availability,
    }
    fractions = F.array(*(F.lit(percent / 100) for percent in PERCENTS))
    # `kind` is no key of the aggregation, so it is joined only after it.
    ends = F.broadcast(faults.select("run", "fault", "kind", F.col("until_us").alias("next_us")))
    # An open time lasts until the next fault. If it began after that fault, it has no length.
    to_us = F.coalesce("to_us", F.greatest("from_us", "next_us"))
    summed = (
        _one_row_per_value(inputs)
        .join(ends.drop("kind"), ["run", "fault"], "left")
        .groupBy("run", "fault", "chain", "measure", "is_time")
        .agg(
            F.count("value").alias("samples"),
            F.count_if(F.col("value").isNull()).alias("missing"),
            # In contrast to `percentile`, this returns values that occurred.
            F.percentile_approx("value", fractions).alias("percentiles"),
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


def _one_row_per_value(inputs: dict[str, DataFrame]) -> DataFrame:
    """Turn the measured columns into rows: one row per run, fault, measure and subject."""
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
    """Return a struct with the value of a measure in a row, and the time that the value describes.

    The result is null if the measure is about another kind of subject.
    """
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
    """Return the beginning and the end of the time that a row's values describe.

    The end is null if it did not come.
    """
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
