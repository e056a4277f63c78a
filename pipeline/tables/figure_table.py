"""The table `figures`: each fault in a few numbers.

After a crash, for example, the table `broker_phases` has the phase `detect` of each offsets
partition that moved. The table `figures` has one row about this measure, with its median, p90, p99
and maximum over the partitions. These partitions are the subjects of the measure. A measure belongs
to one of three groups of measures, which are called chains: `broker` (phases of offsets
partitions), `client` (phases of members), and `gap` (times in which a member, data partition or
group was not served).
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.summary.figures import MEASURES, PERCENTS, Measure, samples_needed


def figures(
    faults: DataFrame, broker_phases: DataFrame, client_phases: DataFrame, availability: DataFrame
) -> DataFrame:
    """Sum up the phases, gaps and counts of each fault over their subjects.

    A percentile is always one of the measured values, and not a value between two of them (nearest
    rank). The inputs are the tables of these names. Output grain: one row per run, fault and
    measure of `figures.MEASURES` that has a subject.
    Columns:
    - `run`, `fault`, `kind` (of the fault), `chain` (broker | client | gap), `measure`;
    - `is_time` (true: microseconds; false: a count);
    - `samples`: number of subjects that have a value; `missing`: number of subjects without a
      value;
    - `p50`, `p90`, `p99`, `max`: microseconds or counts, as `is_time` says;
    - `from_us`, `to_us`: the time in which the values were measured, in microseconds on the run's
      clock, from the earliest beginning to the latest end over all subjects. The time of one
      subject depends on the chain:
      - `broker`: from the fault until the coordinator was active;
      - `client`: from the fault until the coordinator accepted the member;
      - `gap`: the gap itself.
      If this end did not come, or if a member had to join again, the time of the subject ends with
      the next fault or the run's end.

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
    # `next_us` is when the next fault was injected, or when the run ended.
    ends = F.broadcast(faults.select("run", "fault", "kind", F.col("until_us").alias("next_us")))
    # If the end did not come (null), the time of the subject ends at `next_us`. A gap may even have
    # begun after the next fault. Then it ends where it began, and not before.
    to_us = F.coalesce("to_us", F.greatest("from_us", "next_us"))
    summed = (
        _one_row_per_value(inputs)
        .join(ends.drop("kind"), ["run", "fault"], "left")
        .groupBy("run", "fault", "chain", "measure", "is_time")
        .agg(
            F.count("value").alias("samples"),
            F.count_if(F.col("value").isNull()).alias("missing"),
            # `percentile_approx` returns values that occurred. Spark's `percentile` would
            # interpolate between values.
            F.percentile_approx("value", fractions).alias("percentiles"),
            F.max("value").alias("max"),
            F.min("from_us").alias("from_us"),
            F.max(to_us).alias("to_us"),
        )
    )
    # The aggregation has lost `kind`, so it is joined again.
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
    """Return the percentile PERCENTS[index]; null if there are too few samples for it."""
    has_enough_samples = F.col("samples") >= samples_needed(PERCENTS[index])
    return F.when(has_enough_samples, F.col("percentiles")[index])


def _one_row_per_value(inputs: dict[str, DataFrame]) -> DataFrame:
    """Turn columns into rows: one row per run, fault, subject and measure, with the measured value.

    A row of `broker_phases`, for example, has the columns `detect_us`, `publish_us`, `load_wait_us`
    and `load_us`. It becomes four rows, one for each of these measures.
    """
    rows_of_tables = []
    for name, table in inputs.items():
        values = F.array(*(_value(measure) for measure in MEASURES if measure.table == name))
        rows = table.select("run", "fault", F.explode(values).alias("measured"))
        rows_of_tables.append(
            rows.where(F.col("measured").isNotNull()).select("run", "fault", "measured.*")
        )
    all_rows, *others = rows_of_tables
    for other in others:
        all_rows = all_rows.unionByName(other)
    return all_rows


def _value(measure: Measure) -> Column:
    """Return a struct with the value of a measure in a row, and the time in which it was measured.

    The struct is null if the row is about another kind of subject than the measure.
    """
    value = F.struct(
        F.lit(measure.chain).alias("chain"),
        F.lit(measure.name).alias("measure"),
        F.lit(measure.is_time).alias("is_time"),
        F.col(measure.column).cast("long").alias("value"),
        *_span(measure),
    )
    if measure.subject_kind is None:
        return value
    return F.when(F.col("subject_kind") == measure.subject_kind, value)


def _span(measure: Measure) -> tuple[Column, Column]:
    """Return the beginning and the end of the time in which a row's values were measured.

    The end is null if it did not come.
    """
    match measure.chain:
        case "broker":
            from_us, to_us = F.col("fault_us"), F.col("active_us")
        case "client":
            from_us = F.col("fault_us")
            # A member that had to join is not served again before the join is complete. The moment
            # at which it was complete is not in the table, so this end is unknown (null).
            to_us = F.when(F.col("join_us").isNull(), F.col("accepted_us"))
        case "gap":
            from_us, to_us = F.col("before_us"), F.col("after_us")
    return from_us.alias("from_us"), to_us.alias("to_us")
