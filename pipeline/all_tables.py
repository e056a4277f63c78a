"""The steps of an analysis with Spark: which functions compute the tables, and from what.

STEPS has an entry for each step: a function (transform), and then the names of the inputs of this
function. The inputs are the results of other steps. If the result does not have the name of the
function, the entry begins with the result's name. A result is of one of three kinds:

- a `table` is written into the directory of every run, under the name of the function;
- a `shared` result is kept for the steps that read it;
- a `view` is not kept: each reader computes it again, because that costs less than keeping it.

Most rows of a trace tell the tables nothing. The others, a third of a trace, are called telling
rows. Most tables read `events`, which are the telling rows without the bad rows. A few tables count
all events or all requests, and read `all_events`.

To add a table: write its transform in a module of its own, add an entry here, and add a section to
docs/TABLES.md. `table_graph` finds the order of computing from the inputs.
"""

from pipeline.engine.events import bad_rows, good_events
from pipeline.engine.runs import runs
from pipeline.engine.step import shared, table, view
from pipeline.intermediate.groups import groups
from pipeline.intermediate.lives import impairments
from pipeline.intermediate.repeats import processed_by_both, repeated_records
from pipeline.intermediate.telling_rows import telling_rows
from pipeline.intermediate.zookeeper import zookeeper_consumers, zookeeper_txns
from pipeline.tables.availability import availability
from pipeline.tables.broker_phases import broker_phases
from pipeline.tables.client_phases import client_phases
from pipeline.tables.commits import commits
from pipeline.tables.coordinator_requests import coordinator_requests
from pipeline.tables.coordinator_tenures import coordinator_tenures, tenure_spans
from pipeline.tables.failovers import group_failovers
from pipeline.tables.faults import faults
from pipeline.tables.felt import felt_groups, felt_partitions
from pipeline.tables.figure_table import figures
from pipeline.tables.group_states import group_states
from pipeline.tables.members import member_names
from pipeline.tables.messages import messages
from pipeline.tables.metrics import metrics
from pipeline.tables.ownership import ownership, ownership_intervals, ownership_spans
from pipeline.tables.ownership_overlaps import ownership_overlaps
from pipeline.tables.processing import processing
from pipeline.tables.rebalances import rebalances
from pipeline.tables.tenure_overlaps import tenure_overlaps
from pipeline.tables.verdicts import verdicts
from pipeline.tables.zookeeper.attempts import zookeeper_attempts
from pipeline.tables.zookeeper.offset_rewinds import offset_rewinds
from pipeline.tables.zookeeper.operations import zookeeper_operations
from pipeline.tables.zookeeper.sessions import zookeeper_sessions
from pipeline.tables.zookeeper.watches import zookeeper_watches

ROWS = "rows"
"""An input that is not a step: all rows of the traces, bad ones included (`events.read_events`)."""
DOCUMENTS = "documents"
"""An input that is not a step: the JSON files of the runs (`run_documents.read_documents`)."""

STEPS = (
    shared("telling_rows", telling_rows, ROWS, filtered_by="kind"),
    table(bad_rows, "telling_rows"),
    view("events", good_events, "telling_rows"),
    view("all_events", good_events, ROWS),
    table(verdicts, DOCUMENTS),
    table(runs, "all_events"),
    table(groups, "events"),
    table(metrics, "events"),
    table(faults, "events", "runs"),
    shared("impairments", impairments, "events", "faults", "runs"),
    table(group_states, "events", "groups", "runs"),
    shared("tenure_spans", tenure_spans, "events", "runs"),
    table(coordinator_tenures, "events", "tenure_spans", "impairments"),
    table(broker_phases, "events", "faults", "groups"),
    table(
        tenure_overlaps, "events", "coordinator_tenures", "groups", "broker_phases", "impairments"
    ),
    shared(
        "failovers", group_failovers, "faults", "groups", "broker_phases", "coordinator_tenures"
    ),
    table(client_phases, "events", "failovers"),
    table(availability, "events", "runs", "coordinator_tenures", "failovers"),
    table(figures, "faults", "broker_phases", "client_phases", "availability"),
    shared("member_names", member_names, "events"),
    table(rebalances, "events", "faults", "groups", "coordinator_tenures", "member_names"),
    table(messages, "events", "faults", "broker_phases", "client_phases", "rebalances"),
    shared("ownership_intervals", ownership_intervals, "events"),
    shared("ownership_spans", ownership_spans, "events", "ownership_intervals", "runs"),
    table(ownership, "ownership_spans", "groups", "coordinator_tenures", "impairments"),
    shared("repeated_records", repeated_records, "events"),
    shared("processed_by_both", processed_by_both, "ownership", "runs", "repeated_records"),
    table(ownership_overlaps, "processed_by_both", "faults"),
    table(processing, "events", "repeated_records", "processed_by_both"),
    table(commits, "events", "faults"),
    table(coordinator_requests, "all_events"),
    shared("zookeeper_txns", zookeeper_txns, "events"),
    shared("zookeeper_consumers", zookeeper_consumers, "events"),
    table(offset_rewinds, "events", "zookeeper_txns", "member_names"),
    table(zookeeper_sessions, "events", "zookeeper_txns", "zookeeper_consumers"),
    table(zookeeper_watches, "events", "zookeeper_txns", "zookeeper_consumers"),
    table(zookeeper_attempts, "events"),
    table(zookeeper_operations, "all_events", "zookeeper_consumers"),
    table(felt_partitions, "events", "runs", "faults", "ownership", "processing"),
    table(
        felt_groups,
        "events",
        "runs",
        "faults",
        "groups",
        "ownership",
        "rebalances",
        "impairments",
        "felt_partitions",
    ),
)
"""All steps. Each step stands after the steps whose results it reads.

`filtered_by` is the column by which most readers of a shared result filter its rows. The rows are
sorted by this column. So these readers can skip rows that they do not need.
"""

TABLE_NAMES = tuple(step.name for step in STEPS if step.result == "table")
"""Names of all tables. docs/TABLES.md describes each of them."""
