"""The check that finds a coordinator which forgets to load or unload a partition.

When a broker begins to lead a partition of `__consumer_offsets`, its coordinator loads it, and when
another broker leads it, the coordinator unloads it. These tasks are carried out one after the
other. The coordinator records when a task is scheduled and when it has ended. If a task ends before
another one that was scheduled earlier, the earlier task was forgotten.

A line in the tests is a recorded event: the time, the node, the kind and the values.
"""

import pytest

from cluster.virtual.checks.task_checks import TASK_KINDS, TaskChecks
from protocol.errors import InvariantViolation
from protocol.trace import TraceKind
from tests.support.builders.trace_builder import parse_trace


def observe(text: str) -> None:
    """Let the check see these events. It raises at a violation."""
    checks = TaskChecks()
    for row in parse_trace(text):
        assert row.kind in TASK_KINDS
        checks.observe(row)


# Three tasks, for the leader epochs 1 to 3.
SCHEDULED = """
1 broker-0 load_scheduled partition=__consumer_offsets-0 leader_epoch=1
2 broker-0 unload_scheduled partition=__consumer_offsets-0 leader_epoch=2
3 broker-0 load_scheduled partition=__consumer_offsets-0 leader_epoch=3
"""


def test_tasks_that_end_in_their_order_are_no_violation() -> None:
    """A task ends with success or failure. The load of epoch 3 has not ended yet.

    An unload may be carried out a second time, late. The check leaves out this second end.
    The node broker-0/1 is broker-0 after a restart. Its tasks begin anew.
    """
    observe(f"""{SCHEDULED}
    4 broker-0 load_failed partition=__consumer_offsets-0 leader_epoch=1
    5 broker-0 unload_completed partition=__consumer_offsets-0 leader_epoch=2
    6 broker-0 unload_ignored partition=__consumer_offsets-0 leader_epoch=2
    7 broker-0/1 load_scheduled partition=__consumer_offsets-0 leader_epoch=4
    8 broker-0/1 load_completed partition=__consumer_offsets-0 leader_epoch=4
    """)


def test_unload_without_a_row_is_found_at_the_end_of_the_next_task() -> None:
    """The load of epoch 3 has ended, so the unload of epoch 2 should have ended before it."""
    with pytest.raises(InvariantViolation, match=r"and the unload of .* in epoch 2, which was"):
        observe(f"""{SCHEDULED}
        4 broker-0 load_completed partition=__consumer_offsets-0 leader_epoch=1
        5 broker-0 load_completed partition=__consumer_offsets-0 leader_epoch=3
        """)


def test_kinds_are_those_of_loads_and_unloads() -> None:
    """The check sees all kinds of events about loads and unloads except LOAD_STARTED.

    The check need not know when a task began.
    """
    kinds = {kind for kind in TraceKind if kind.value.startswith(("load_", "unload_"))}
    assert kinds - {TraceKind.LOAD_STARTED} == TASK_KINDS
