"""What is computed, by which transform, from what: one entry a table.

To add a table: its transform in a module of its own, its entry here, its section in docs/TABLES.md.
The order of computing follows from the inputs; `table_graph` finds it.
"""

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import DataFrame

from pipeline.availability import availability
from pipeline.broker_phases import broker_phases
from pipeline.client_phases import client_phases
from pipeline.commits import commits
from pipeline.coordinator_tenures import coordinator_tenures
from pipeline.events import bad_rows, good_events
from pipeline.failovers import group_failovers
from pipeline.faults import faults
from pipeline.figure_table import figures
from pipeline.group_states import group_states
from pipeline.groups import groups
from pipeline.lives import impairments
from pipeline.members import member_names
from pipeline.messages import messages
from pipeline.ownership import ownership
from pipeline.ownership_overlaps import ownership_overlaps
from pipeline.processing import processing
from pipeline.rebalances import rebalances
from pipeline.repeats import processed_by_both, repeated_records
from pipeline.runs import runs
from pipeline.tenure_overlaps import tenure_overlaps
from pipeline.verdicts import verdicts

ROWS = "rows"
"""A source: every event, bad rows included (`events.read_events`)."""
DOCUMENTS = "documents"
"""A source: the JSON files beside the events as text (`run_documents.read_documents`)."""
SOURCES = (ROWS, DOCUMENTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A DataFrame that is computed from others.

    Shape: `transform` takes the DataFrames named by `inputs`, by position. `written`: it is
    a table. `shared`: no table, but several are made of it: small runs keep it in memory.
    """

    name: str
    transform: Callable[..., DataFrame]
    inputs: tuple[str, ...]
    written: bool
    shared: bool


def _table(transform: Callable[..., DataFrame], *inputs: str) -> Step:
    """Return the entry of a table that is called as its transform."""
    name = transform.__name__
    return Step(name=name, transform=transform, inputs=inputs, written=True, shared=False)


def _step(
    name: str, transform: Callable[..., DataFrame], *inputs: str, shared: bool = True
) -> Step:
    """Return the entry of what stands between tables."""
    return Step(name=name, transform=transform, inputs=inputs, written=False, shared=shared)


STEPS = (
    _step("events", good_events, ROWS),
    _table(bad_rows, ROWS),
    _table(verdicts, DOCUMENTS),
    _table(runs, "events"),
    _table(groups, "events"),
    _table(faults, "events", "runs"),
    _step("impairments", impairments, "events", "faults", "runs"),
    _table(group_states, "events", "groups", "runs"),
    _table(coordinator_tenures, "events", "runs", "impairments"),
    _table(broker_phases, "events", "faults", "groups"),
    _table(
        tenure_overlaps, "events", "coordinator_tenures", "groups", "broker_phases", "impairments"
    ),
    _step(
        "failovers",
        group_failovers,
        *("faults", "groups", "broker_phases", "coordinator_tenures"),
        shared=False,
    ),
    _table(client_phases, "events", "failovers"),
    _table(availability, "events", "runs", "coordinator_tenures", "failovers"),
    _table(figures, "faults", "broker_phases", "client_phases", "availability"),
    _step("member_names", member_names, "events"),
    _table(rebalances, "events", "faults", "groups", "coordinator_tenures", "member_names"),
    _table(messages, "events", "faults", "broker_phases", "client_phases", "rebalances"),
    _table(ownership, "events", "runs", "groups", "coordinator_tenures", "impairments"),
    _step("repeated_records", repeated_records, "events"),
    _step("processed_by_both", processed_by_both, "ownership", "runs", "repeated_records"),
    _table(ownership_overlaps, "processed_by_both", "faults"),
    _table(processing, "events", "repeated_records", "processed_by_both"),
    _table(commits, "events", "faults"),
)
"""Each after its inputs."""

TABLE_NAMES = tuple(step.name for step in STEPS if step.written)
"""docs/TABLES.md describes each."""
