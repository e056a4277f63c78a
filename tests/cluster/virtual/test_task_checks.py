"""Tasks of a coordinator: the check finds a load or an unload whose end has no row.

A row is built as (kind, partition, leader epoch), all of one incarnation of broker-0. A late notice
is a task that is carried out a second time.
"""

import pytest

from cluster.virtual.task_checks import TASK_KINDS, TaskChecks
from protocol.errors import InvariantViolation
from protocol.trace import TraceKind
from tests.support.builders.trace_builder import parse_trace


def observe(text: str) -> None:
    """Give the rows of a trace to the check."""
    checks = TaskChecks()
    for row in parse_trace(text):
        assert row.kind in TASK_KINDS
        checks.observe(row)


SCHEDULED = """
1 broker-0 load_scheduled partition=__consumer_offsets-0 leader_epoch=1
2 broker-0 unload_scheduled partition=__consumer_offsets-0 leader_epoch=2
3 broker-0 load_scheduled partition=__consumer_offsets-0 leader_epoch=3
"""


def test_tasks_that_end_in_their_order_are_no_violation() -> None:
    """A late unload ends a second time; the tasks of the next incarnation begin anew."""
    observe(f"""{SCHEDULED}
    4 broker-0 load_failed partition=__consumer_offsets-0 leader_epoch=1
    5 broker-0 unload_completed partition=__consumer_offsets-0 leader_epoch=2
    6 broker-0 unload_ignored partition=__consumer_offsets-0 leader_epoch=2
    7 broker-0/1 load_scheduled partition=__consumer_offsets-0 leader_epoch=4
    8 broker-0/1 load_completed partition=__consumer_offsets-0 leader_epoch=4
    """)


def test_unload_without_a_row_is_found_at_the_end_of_the_next_task() -> None:
    """The load of epoch 3 has ended, so the unload of epoch 2 has ended before it."""
    with pytest.raises(InvariantViolation, match=r"and the unload of .* in epoch 2, which was"):
        observe(f"""{SCHEDULED}
        4 broker-0 load_completed partition=__consumer_offsets-0 leader_epoch=1
        5 broker-0 load_completed partition=__consumer_offsets-0 leader_epoch=3
        """)


def test_kinds_are_those_of_loads_and_unloads() -> None:
    """LOAD_STARTED is no end, and is left out."""
    assert {kind for kind in TraceKind if kind.value.startswith(("load_", "unload_"))} - {
        TraceKind.LOAD_STARTED
    } == TASK_KINDS
