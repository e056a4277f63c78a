"""The table `faults`: kind, target, times and blast radius of each fault.

The blast radius of a fault is the groups and partitions that it affects. A fault is in force while
all nodes that it hit have it, and healed when it is undone. In the trace's rows about a fault,
`cause` is the fault's id in the plan, and `peer` the node that it hit.
"""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from pipeline.engine.events import detail, of_kind
from protocol.trace import TraceKind
from protocol.trace_schema import FaultHealedDetail, FaultInjectedDetail

_FIELDS = ("fault", "target", "groups", "partitions", "nodes", "from", "to")
"""Fields of the detail of FAULT_INJECTED."""


def faults(events: DataFrame, runs: DataFrame) -> DataFrame:
    """List the faults, except those that hit no node.

    Input grain: one row per event; `runs`. Output grain: one row per run and fault (id).
    Columns:
    - `run`, `fault` (its id in the plan), `kind` (such as crash), `target` (the role that the plan
      names as the target, for example a group's coordinator, resolved to a node);
    - `node`: the node that the fault hit, or the first of several; `nodes`: all of them;
    - `from_nodes`, `to_nodes`: the ends of the links that the fault hit;
    - `groups`, `partitions`: the blast radius as the run recorded it;
    - moments in microseconds on the run's clock: `injected_us`, `in_force_us` (every affected node
      has the fault), `in_force_until_us` (its healing began), `healed_us` (its healing was
      complete), `until_us` (the next fault, or the run's end). Of faults at the same moment, the
      next one is the next by id.

    Nulls: `in_force_us`, `in_force_until_us`, `healed_us` if the run broke off before that, or did
    not record it; `node`, `target` if the fault has none. Lists are empty if nothing was recorded;
    `nodes` then holds `node`.
    """
    # Only the first injection of each fault id is listed.
    first = Window.partitionBy("run", "fault").orderBy("time_us", "seq")
    injected = (
        of_kind(events, TraceKind.FAULT_INJECTED)
        .withColumn("fault", F.coalesce("cause", F.lit("fault")))
        .withColumn("nth", F.row_number().over(first))
        .where(F.col("nth") == 1)
        .withColumn("decoded", detail(*_FIELDS, of=FaultInjectedDetail))
    )
    is_healed_row = F.col("kind") == TraceKind.FAULT_HEALED.value
    # What became of each fault after its injection.
    later = (
        of_kind(events, TraceKind.FAULT_IN_FORCE, TraceKind.FAULT_HEALED)
        .withColumn("decoded", detail("in_force_until_us", of=FaultHealedDetail))
        .withColumn("until_us", F.col("decoded.in_force_until_us"))
        .groupBy("run", F.coalesce("cause", F.lit("fault")).alias("fault"))
        .agg(
            F.min(F.when(~is_healed_row, F.col("time_us"))).alias("in_force_us"),
            F.min(F.when(is_healed_row, F.col("until_us"))).alias("in_force_until_us"),
            F.min(F.when(is_healed_row, F.col("time_us"))).alias("healed_us"),
        )
    )
    # Faults that hit no node. The anti-join below leaves them out.
    missed = of_kind(events, TraceKind.FAULT_MISSED).select(
        "run", F.coalesce("cause", F.lit("fault")).alias("fault")
    )
    in_order = Window.partitionBy("run").orderBy("time_us", "fault")
    none = F.array().cast("array<string>")
    node = F.nullif("peer", F.lit(""))
    # `nodes` of a fault whose detail lists none.
    just_the_node = F.when(node.isNotNull(), F.array(node)).otherwise(none)
    return (
        injected.join(F.broadcast(missed), ["run", "fault"], "left_anti")
        .join(later, ["run", "fault"], "left")
        .join(F.broadcast(runs.select("run", "end_us")), "run", "left")
        .select(
            "run",
            "fault",
            F.col("decoded.fault").alias("kind"),
            F.col("decoded.target").alias("target"),
            F.coalesce(node, F.col("decoded.nodes")[0]).alias("node"),
            F.col("time_us").alias("injected_us"),
            "in_force_us",
            "in_force_until_us",
            "healed_us",
            F.coalesce(F.lead("time_us").over(in_order), "end_us").alias("until_us"),
            F.coalesce("decoded.groups", none).alias("groups"),
            F.coalesce("decoded.partitions", none).alias("partitions"),
            F.coalesce("decoded.nodes", just_the_node).alias("nodes"),
            F.coalesce("decoded.from", none).alias("from_nodes"),
            F.coalesce("decoded.to", none).alias("to_nodes"),
        )
    )


def with_latest_fault(rows: DataFrame, faults: DataFrame, moment: str) -> DataFrame:
    """Add the column `fault` to rows: the latest fault of the run at or before a moment.

    Input grain: any rows with `run`, and with a column of moments whose name is `moment`
    (microseconds on the run's clock); `faults`. Output grain: the same rows. Nulls: `fault` before
    the first fault.
    """
    injected = faults.groupBy("run").agg(
        F.sort_array(F.collect_list(F.struct("injected_us", "fault"))).alias("injected")
    )
    # `injected` has the run's faults in time order, so the last one up to the moment is the latest.
    so_far = F.filter("injected", lambda fault: fault["injected_us"] <= F.col(moment))
    # For an empty list, `try_element_at` is null.
    latest = F.try_element_at(so_far, F.lit(-1)).getField("fault")
    return (
        rows.join(F.broadcast(injected), "run", "left").withColumn("fault", latest).drop("injected")
    )
