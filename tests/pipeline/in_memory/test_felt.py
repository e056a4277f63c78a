"""Felt effects: effects that users of a group notice, such as records that wait for long.

Each test writes a short trace (the recorded events of a run), from which a reader can compute the
expected figures. The line

    4 consumer-a partitions_revoked group=g member=a-1 generation=1 partitions=t-0,

says that at 4 s consumer-a, as the member a-1 of group g, lost the partition t-0. The comma at the
end makes a list of one partition. The node `run` stands for the run itself, and `consumer-a/1` for
the second process of consumer-a, which starts after the death of the first.

All traces begin in the same way (see BEGIN): the group is complete from 1 s on, and the run ends at
20 s. The figures count only the time from 1 s to 20 s.
"""

from typing import NamedTuple

import pytest

from pipeline.in_memory.felt import felt_groups_of, felt_partitions_of
from pipeline.in_memory.trace import TableRow, Trace
from tests.support.builders.trace_builder import parse_trace

BEGIN = """
1 run run_stage stage=steady
20 run run_stage stage=stopping
0.5 consumer-a partitions_assigned group=g member=a-1 generation=1 partitions=t-0,
"""


def partition_figures(text: str) -> TableRow:
    """Return the figures of t-0, the only partition of a trace that continues BEGIN."""
    (row,) = felt_partitions_of(Trace(parse_trace(BEGIN + text)))
    return row


def group_figures(text: str) -> TableRow:
    """Return the figures of g, the only group of a trace that continues BEGIN."""
    (row,) = felt_groups_of(Trace(parse_trace(BEGIN + text)))
    return row


def test_time_without_an_owner_lasts_from_a_revocation_to_the_next_assignment() -> None:
    """t-0 is revoked at 4 s and assigned at 7.5 s."""
    figures = partition_figures("""
    4 consumer-a partitions_revoked group=g member=a-1 generation=1 partitions=t-0,
    7.5 consumer-b partitions_assigned group=g member=b-1 generation=2 partitions=t-0,
    """)
    # The figures count from the steady state to the end of the run.
    assert (figures["from_us"], figures["to_us"]) == (1_000_000, 20_000_000)
    assert figures["unowned_us"] == 3_500_000


def test_time_after_the_death_of_the_last_owner_lasts_until_the_end() -> None:
    """The owner dies at 18 s, the run ends at 20 s."""
    assert partition_figures("18 run node_killed peer=consumer-a")["unowned_us"] == 2_000_000


@pytest.mark.parametrize(
    ("processed_s", "waited_us"),
    [
        pytest.param(4.9, 0, id="0.9 s"),
        pytest.param(5.0, 1_000_000, id="1 s"),
        pytest.param(9.0, 5_000_000, id="5 s"),
    ],
)
def test_wait_counts_as_a_whole_once_it_reaches_a_second(
    processed_s: float, waited_us: int
) -> None:
    """Records produced at 4 s wait until they are processed.

    Waits shorter than a second are usual, because a member polls in intervals. These waits do not
    count. A longer wait counts as a whole, including its first second.
    """
    figures = partition_figures(f"""
    3 producer-0 records_produced partition=t-0 offset=0 count=5
    3.1 consumer-a records_consumed group=g member=a-1 partition=t-0 offset=0 count=5 last=4
    4 producer-0 records_produced partition=t-0 offset=5 count=5
    {processed_s} consumer-a records_consumed group=g partition=t-0 offset=5 count=5 last=9
    """)
    assert figures["waited_us"] == waited_us


FORTY_RECORDS = """
3 producer-0 records_produced partition=t-0 offset=0 count=40
"""


class Batch(NamedTuple):
    """Records that a member processed together. The trace has a row at the end of this work.

    For example, the work on Batch("6.2", 0, 1_200_000) lasted from 5.0 to 6.2 s. `ended_s` is a
    text, because it begins a line of the trace.
    """

    ended_s: str
    first_offset: int
    work_us: int


@pytest.mark.parametrize(
    ("batches", "waited_us"),
    [
        # Work from 3.0 to 6.2 s, then from 6.2 to 7.5 s: no wait.
        pytest.param(
            [Batch("6.2", 0, 3_200_000), Batch("7.5", 32, 1_300_000)], 0, id="work all the time"
        ),
        # Work from 5.0 to 6.2 s, then from 6.2 to 7.5 s. Records wait from 3 to 5 s.
        pytest.param(
            [Batch("6.2", 0, 1_200_000), Batch("7.5", 32, 1_300_000)],
            2_000_000,
            id="a wait before the work",
        ),
        # Work from 3.0 to 6.2 s, then none until 7.5 s. Records wait from 6.2 to 7.5 s.
        pytest.param(
            [Batch("6.2", 0, 3_200_000), Batch("7.5", 32, 0)],
            1_300_000,
            id="a wait between two batches",
        ),
        # Work from 3.0 to 5.0 s, and overlapping work from 4.5 to 9.0 s: no wait.
        pytest.param(
            [Batch("5", 0, 2_000_000), Batch("9", 32, 4_500_000)], 0, id="overlapping batches"
        ),
        # Work from 3.0 to 4.0 s, from 6.5 to 7.0 s, and from 5.0 to 9.0 s: the last batch begins
        # before the second. Records wait from 4 to 5 s.
        pytest.param(
            [Batch("4", 0, 1_000_000), Batch("7", 8, 500_000), Batch("9", 32, 4_000_000)],
            1_000_000,
            id="a batch that begins earlier and ends later",
        ),
    ],
)
def test_processing_of_a_batch_is_no_wait(batches: list[Batch], waited_us: int) -> None:
    """Records wait from 3 s on, except while a member works on a batch.

    A batch has 8 records. The last batch of each case ends with the last record of the log, so
    that nothing waits afterwards.
    """
    lines = [
        f"{batch.ended_s} consumer-a records_consumed group=g member=a-1 partition=t-0 "
        f"offset={batch.first_offset} count=8 last={batch.first_offset + 7} "
        f"work_us={batch.work_us}\n"
        for batch in batches
    ]
    figures = partition_figures(FORTY_RECORDS + "".join(lines))
    assert figures["waited_us"] == waited_us


def test_partition_without_waiting_records_has_no_wait() -> None:
    """All five records are processed after 0.1 s. From then on, no member needs to work."""
    figures = partition_figures("""
    3 producer-0 records_produced partition=t-0 offset=0 count=5
    3.1 consumer-a records_consumed group=g member=a-1 partition=t-0 offset=0 count=5 last=4
    """)
    assert (figures["waited_us"], figures["lag_peak"]) == (0, 5)


# The number of records that wait (the lag) at each time:
#   3 s   5, the usual lag: the largest number before the fault at 5 s
#   3.1 s 0
#   6 s  10
#   7 s  20, the peak
#   8 s  10
LAG_AFTER_A_FAULT = """
3 producer-0 records_produced partition=t-0 offset=0 count=5
3.1 consumer-a records_consumed group=g member=a-1 partition=t-0 offset=0 count=5 last=4
5 run fault_injected peer=broker-0 cause=crash-0 fault=crash target=broker(0)
6 producer-0 records_produced partition=t-0 offset=5 count=10
7 producer-0 records_produced partition=t-0 offset=15 count=10
8 consumer-a records_consumed group=g member=a-1 partition=t-0 offset=5 count=10 last=14
"""


def test_lag_is_over_when_no_more_records_wait_than_before_the_first_fault() -> None:
    """Of 25 records 21 are processed at 9 s. So 4 records wait, no more than the usual 5."""
    figures = partition_figures(
        LAG_AFTER_A_FAULT
        + "9 consumer-a records_consumed group=g partition=t-0 offset=15 count=6 last=20"
    )
    assert (figures["lag_usual"], figures["lag_peak"]) == (5, 20)
    # The peak is at 7 s; the lag is over 2 s later.
    assert (figures["lag_peak_us"], figures["lag_over_us"]) == (7_000_000, 2_000_000)


def test_lag_that_lasts_until_the_end_is_never_over() -> None:
    """Of 25 records only 15 are processed. So 10 records wait until the end, more than usual."""
    figures = partition_figures(LAG_AFTER_A_FAULT)
    assert (figures["lag_peak"], figures["lag_over_us"]) == (20, None)


def test_record_that_is_processed_again_counts_as_repeated() -> None:
    """Offsets 3 and 4 are processed by both members."""
    figures = partition_figures("""
    3 consumer-a records_consumed group=g member=a-1 partition=t-0 offset=0 count=5 last=4
    4 consumer-b records_consumed group=g member=b-1 partition=t-0 offset=3 count=4 last=6
    """)
    assert figures["repeated"] == 2


def test_partition_that_returns_to_its_owner_moved_and_came_back() -> None:
    """t-0 goes from consumer-a to consumer-b and back: each figure counts it once."""
    figures = group_figures("""
    4 consumer-a partitions_revoked group=g member=a-1 generation=1 partitions=t-0,
    5 consumer-b partitions_assigned group=g member=b-1 generation=2 partitions=t-0,
    6 consumer-b partitions_revoked group=g member=b-1 generation=2 partitions=t-0,
    7 consumer-a partitions_assigned group=g member=a-1 generation=3 partitions=t-0,
    """)
    assert (figures["partitions"], figures["moved"], figures["came_back"]) == (1, 1, 1)


def test_partition_that_its_owner_is_assigned_again_did_not_move() -> None:
    """consumer-a owns t-0 from 0.5 s on, and the next rebalance (generation 2) gives it back."""
    figures = group_figures("""
    5 consumer-a partitions_assigned group=g member=a-1 generation=2 partitions=t-0,
    """)
    assert (figures["moved"], figures["came_back"]) == (0, 0)


SECOND_LIFE = """
6 run node_killed peer=consumer-a
7 consumer-a/1 node_started
8 consumer-a/1 partitions_assigned group=g member=a-2 generation=2 partitions=t-0,
"""
"""consumer-a is killed; its second process joins as the member a-2 and runs to the end."""
# The coordinator broker-0 removes a member: a-1 without a cause, a-1 and a-2 by session expiry.
REMOVED = "9 broker-0 member_removed group=g member=a-1 generation=1"
EXPIRED = f'{REMOVED} cause="session expiry"'
A2_EXPIRED = EXPIRED.replace("a-1", "a-2")


# Each case has what happens to the member before its removal.
@pytest.mark.parametrize(
    ("earlier_rows", "removal", "sent_away"),
    [
        pytest.param("", EXPIRED, 1, id="running and reachable"),
        pytest.param("", f"{REMOVED} cause=leave", 0, id="left"),
        pytest.param("8 run node_killed peer=consumer-a", EXPIRED, 0, id="dead"),
        pytest.param("8 run node_paused peer=consumer-a", EXPIRED, 0, id="paused"),
        pytest.param(
            "8 run fault_injected cause=cut-0 fault=cut target=x nodes=consumer-a,",
            EXPIRED,
            0,
            id="cut off",
        ),
        pytest.param("8 consumer-a/1 node_started", EXPIRED, 0, id="of a former life"),
        pytest.param(SECOND_LIFE, A2_EXPIRED, 1, id="of a life after a kill"),
    ],
)
def test_member_is_removed_needlessly_only_if_it_ran_and_could_be_reached(
    earlier_rows: str, removal: str, sent_away: int
) -> None:
    """The coordinator removes a member at 9 s. Only a needless removal counts as `sent_away`.

    A removal is not needless if the member had left, was dead, paused or cut off, or if its process
    had been replaced by a later one.
    """
    assert group_figures(f"{earlier_rows}\n{removal}\n")["sent_away"] == sent_away
