"""The table `faults`: whom each fault of a run hit, when, and which groups it affected.

A run injects the faults of its plan one after another, and writes rows about each fault into its
trace:

- FAULT_INJECTED when the run injects the fault;
- FAULT_IN_FORCE when all nodes that the fault hits have it;
- FAULT_HEALED when the fault is undone;
- FAULT_MISSED if the fault hit nothing.

The table joins these rows to one row for each fault. In the trace, the column `cause` of such a row
is the fault's id in the plan, such as `crash-0`, and `peer` is the first node that the fault hit.
"""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from pipeline.engine.events import detail, of_kind
from protocol.trace import TraceKind
from protocol.trace_schema import FaultHealedDetail, FaultInjectedDetail

_FIELDS = ("fault", "target", "groups", "partitions", "nodes", "from", "to")
"""Fields of the detail of FAULT_INJECTED. `fault` is the kind of the fault, such as `crash`; `from`
and `to` are the nodes on the two sides of a cut.
"""
_UNKNOWN_FAULT = "fault"
"""The id of a fault whose rows have no `cause`. The rows of a fault are joined by its id, so the id
must not be null: in a join, a null is equal to nothing, not even to another null.
"""


def faults(events: DataFrame, runs: DataFrame) -> DataFrame:
    """List the faults that hit a node.

    `events` has one row per event; `runs` is the table. Output grain: one row per run and fault.
    Columns:
    - `run`, `fault` (its id in the plan), `kind` (such as crash);
    - `target`: the target as the plan names it, for example `coordinator-of(readers)`. The run
      finds out which node this is when it injects the fault;
    - `node`: the node that the fault hit, or the first of several nodes; `nodes`: all nodes that
      the fault hit;
    - `from_nodes`, `to_nodes`: the nodes at the two ends of the links that the fault hit;
    - `groups`, `partitions`: the blast radius, which is what the fault affects: the groups that
      lose their coordinator or a member, and the partitions that lose their leader or a reader;
    - moments in microseconds on the run's clock: `injected_us`, `in_force_us` (every affected node
      has the fault), `in_force_until_us` (the healing of the fault began), `healed_us` (the healing
      was complete), `until_us` (the next fault was injected, or the run ended). If two faults were
      injected at the same moment, the fault with the greater id is the next fault.

    Nulls: `in_force_us`, `in_force_until_us`, `healed_us` if the run broke off before that moment,
    or did not record it; `node`, `target` if the trace names none. If the trace lacks a list,
    `nodes` holds only `node`, and each other list is empty.
    """
    fault_id = F.coalesce("cause", F.lit(_UNKNOWN_FAULT))
    # If several injections have the same id, the first injection counts.
    in_time_order = Window.partitionBy("run", "fault").orderBy("time_us", "seq")
    injected = (
        of_kind(events, TraceKind.FAULT_INJECTED)
        .withColumn("fault", fault_id)
        .withColumn("nth_injection", F.row_number().over(in_time_order))
        .where(F.col("nth_injection") == 1)
        .withColumn("decoded", detail(*_FIELDS, of=FaultInjectedDetail))
    )
    # One row per fault: when it was in force, and when it was healed.
    is_healed_row = F.col("kind") == TraceKind.FAULT_HEALED.value
    force_and_healing = (
        of_kind(events, TraceKind.FAULT_IN_FORCE, TraceKind.FAULT_HEALED)
        .withColumn("decoded", detail("in_force_until_us", of=FaultHealedDetail))
        .groupBy("run", fault_id.alias("fault"))
        .agg(
            F.min(F.when(~is_healed_row, F.col("time_us"))).alias("in_force_us"),
            F.min(F.when(is_healed_row, F.col("decoded.in_force_until_us"))).alias(
                "in_force_until_us"
            ),
            F.min(F.when(is_healed_row, F.col("time_us"))).alias("healed_us"),
        )
    )
    missed = of_kind(events, TraceKind.FAULT_MISSED).select("run", fault_id.alias("fault"))
    faults_in_order = Window.partitionBy("run").orderBy("time_us", "fault")
    no_names = F.array().cast("array<string>")
    node = F.nullif("peer", F.lit(""))
    # If the detail does not list the nodes, the fault hit only the node in `peer`.
    just_the_node = F.when(node.isNotNull(), F.array(node)).otherwise(no_names)
    return (
        injected
        # The anti-join drops the faults that hit no node.
        .join(F.broadcast(missed), ["run", "fault"], "left_anti")
        .join(force_and_healing, ["run", "fault"], "left")
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
            F.coalesce(F.lead("time_us").over(faults_in_order), "end_us").alias("until_us"),
            F.coalesce("decoded.groups", no_names).alias("groups"),
            F.coalesce("decoded.partitions", no_names).alias("partitions"),
            F.coalesce("decoded.nodes", just_the_node).alias("nodes"),
            F.coalesce("decoded.from", no_names).alias("from_nodes"),
            F.coalesce("decoded.to", no_names).alias("to_nodes"),
        )
    )


def with_latest_fault(rows: DataFrame, faults: DataFrame, moment: str) -> DataFrame:
    """Add the column `fault` to rows: the latest fault of the run at or before a moment.

    Example: there were faults at 20 s and at 50 s. A rebalance that began at 37 s gets the fault at
    20 s.

    `rows` have the column `run`, and a column of moments, in microseconds on the run's clock;
    `moment` is the name of this column. `faults` is the table. Output grain: the same rows. Nulls:
    `fault` before the first fault of the run.
    """
    injected = faults.groupBy("run").agg(
        F.sort_array(F.collect_list(F.struct("injected_us", "fault"))).alias("injected")
    )
    # The list `injected` is in time order. Index -1 is its last element, and null if it is empty.
    so_far = F.filter("injected", lambda fault: fault["injected_us"] <= F.col(moment))
    latest = F.try_element_at(so_far, F.lit(-1)).getField("fault")
    return (
        rows.join(F.broadcast(injected), "run", "left").withColumn("fault", latest).drop("injected")
    )
