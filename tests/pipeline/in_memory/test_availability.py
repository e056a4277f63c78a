"""Processing gaps of traces short enough to be measured by hand.

A processing gap is a time in which no member worked on records of a partition. The trace has a row
about each batch of records, at the time at which the work on the batch ended. The work began
`work_us` earlier. So a gap ends `work_us` before the row about the next batch.

A line of a trace has the time in seconds, the node, the kind of the row, and other columns. The
node `run` stands for the run itself. A value that ends with a comma, such as `groups=g,`, is a list
with one element.
"""

import pytest

from pipeline.in_memory.availability import availability_of
from pipeline.in_memory.trace import Trace
from tests.support.builders.trace_builder import parse_trace

# The run is steady from 1 s and ends at 20 s; the fault is at 5 s.
CRASH = """
1 run run_stage stage=steady
20 run run_stage stage=stopping
0.5 consumer-a partitions_assigned group=g member=a-1 generation=1 partitions=t-0,
5 run fault_injected peer=broker-0 cause=crash-0 fault=crash target=broker(0) groups=g,
"""


def gap(batches: str) -> tuple[int, int | None, int | None]:
    """Return begin, end and length of the gap of partition t-0 around the fault.

    `batches` has the lines about batches. The lines of CRASH are added to them.
    """
    rows = availability_of(Trace(parse_trace(CRASH + batches)))
    # The other rows are about the gap of the group.
    (row,) = (row for row in rows if row["subject_kind"] == "partition")
    return row["before_us"], row["after_us"], row["gap_us"]


def batch(at_s: float, offset: int, work_us: int, consumer: str = "consumer-a") -> str:
    """Return the line of a batch of eight records that ended at `at_s`, after `work_us` of work."""
    return (
        f"{at_s} {consumer} records_consumed group=g member=a-1 partition=t-0 "
        f"offset={offset} count=8 last={offset + 7} work_us={work_us}\n"
    )


def test_processing_gap_ends_with_the_start_of_the_next_batch() -> None:
    """The batch that ended at 9 s took 3 s, so it began at 6 s: the gap lasts from 4 s to 6 s."""
    trace = (
        batch(4, offset=0, work_us=500_000)
        + batch(9, offset=8, work_us=3_000_000)
        + batch(10, offset=16, work_us=500_000)
    )
    assert gap(trace) == (4_000_000, 6_000_000, 2_000_000)


def test_partition_that_is_always_processed_has_no_gap() -> None:
    """Work lasts from 4 s to 7 s, and again from 7 s to 9 s: the gap at 7 s has length 0."""
    trace = (
        batch(4, offset=0, work_us=500_000)
        + batch(7, offset=8, work_us=3_000_000)
        + batch(9, offset=16, work_us=2_000_000)
    )
    assert gap(trace) == (7_000_000, 7_000_000, 0)


@pytest.mark.parametrize("first_work_us", [200_000, 2_000_000])
def test_gap_ends_with_the_batch_that_began_first_even_if_another_ended_first(
    first_work_us: int,
) -> None:
    """Two members work on batches after the fault, and the batch that ends last began first.

    The batch that ended at 10 s took 4.5 s: it began at 5.5 s, and the gap ends there. The batch
    that ended at 8 s began later: at 7.8 s if it took 0.2 s, and at 6 s if it took 2 s.
    """
    trace = (
        batch(4, offset=0, work_us=500_000)
        + batch(8, offset=8, work_us=first_work_us)
        + batch(10, offset=16, work_us=4_500_000, consumer="consumer-b")
    )
    assert gap(trace) == (4_000_000, 5_500_000, 1_500_000)
