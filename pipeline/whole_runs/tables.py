"""Lists the functions that compute the tables of one run from its trace."""

from collections.abc import Callable, Mapping

from pipeline.in_memory.availability import availability_of
from pipeline.in_memory.broker_phases import broker_phases_of
from pipeline.in_memory.client_phases import client_phases_of
from pipeline.in_memory.commits import commits_of
from pipeline.in_memory.coordinator_tenures import coordinator_tenures_of
from pipeline.in_memory.faults import faults_of
from pipeline.in_memory.felt import felt_groups_of, felt_partitions_of
from pipeline.in_memory.figures import figures_of
from pipeline.in_memory.group_states import group_states_of
from pipeline.in_memory.messages import messages_of
from pipeline.in_memory.metrics import metrics_of
from pipeline.in_memory.ownership import ownership_of
from pipeline.in_memory.ownership_overlaps import ownership_overlaps_of
from pipeline.in_memory.processing import processing_of
from pipeline.in_memory.rebalances import rebalances_of
from pipeline.in_memory.runs import groups_of, runs_of
from pipeline.in_memory.tenure_overlaps import tenure_overlaps_of
from pipeline.in_memory.trace import TableRow, Trace
from pipeline.in_memory.zookeeper.coordinator_requests import coordinator_requests_of
from pipeline.in_memory.zookeeper.tables import (
    offset_rewinds_of,
    zookeeper_attempts_of,
    zookeeper_operations_of,
    zookeeper_sessions_of,
    zookeeper_watches_of,
)

OF_TRACE: Mapping[str, Callable[[Trace], list[TableRow]]] = {
    "runs": runs_of,
    "groups": groups_of,
    "metrics": metrics_of,
    "faults": faults_of,
    "group_states": group_states_of,
    "coordinator_tenures": coordinator_tenures_of,
    "broker_phases": broker_phases_of,
    "tenure_overlaps": tenure_overlaps_of,
    "client_phases": client_phases_of,
    "availability": availability_of,
    "figures": figures_of,
    "rebalances": rebalances_of,
    "messages": messages_of,
    "ownership": ownership_of,
    "ownership_overlaps": ownership_overlaps_of,
    "processing": processing_of,
    "commits": commits_of,
    "coordinator_requests": coordinator_requests_of,
    "offset_rewinds": offset_rewinds_of,
    "zookeeper_sessions": zookeeper_sessions_of,
    "zookeeper_watches": zookeeper_watches_of,
    "zookeeper_attempts": zookeeper_attempts_of,
    "zookeeper_operations": zookeeper_operations_of,
    "felt_partitions": felt_partitions_of,
    "felt_groups": felt_groups_of,
}
"""The function that computes each table, by the table's name. The rows that it returns do not have
the column `run`.

The tables `bad_rows` and `verdicts` are missing, because they are not computed from the good rows
of a trace.
"""
