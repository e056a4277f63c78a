"""Felt effects (what a group's users notice of a run), in traces that can be counted by hand.

A line of a trace is: seconds, node, kind, columns; `partitions=t-0,` is a list of one. Each run is
steady (all groups and members are complete) from 1 s on and ends at 20 s; figures count only this
time.

Figures of a partition:

- `unowned_us`: time without an owner
- `waited_us`: time in which records waited and no member worked on any
- lag: number of records produced and not processed yet
- `repeated`: number of records that were processed before

Figures of a group:

- `moved`: number of partitions that got another owner
- `came_back`: number of partitions that returned to an earlier owner
- `sent_away`: number of members that were removed although they ran and could be reached
"""

import pytest

from pipeline.in_memory.felt import felt_groups_of, felt_partitions_of
from pipeline.in_memory.trace import TableRow, Trace
from tests.support.builders.trace_builder import parse_trace

BEGIN = """
1 run run_stage stage=steady
20 run run_stage stage=stopping
0.5 consumer-a partitions_assigned group=g member=a-1 generation=1 partitions=t-0,
"""


def partition(text: str) -> TableRow:
    """Return the figures of the only partition of a trace."""
    (row,) = felt_partitions_of(Trace(parse_trace(BEGIN + text)))
    return row


def group(text: str) -> TableRow:
    """Return the figures of the only group of a trace."""
    (row,) = felt_groups_of(Trace(parse_trace(BEGIN + text)))
    return row


def test_time_without_an_owner_lasts_from_a_revocation_to_the_next_assignment() -> None:
    """t-0 is revoked at 4 s and assigned at 7.5 s."""
    figures = partition("""
    4 consumer-a partitions_revoked group=g member=a-1 generation=1 partitions=t-0,
    7.5 consumer-b partitions_assigned group=g member=b-1 generation=2 partitions=t-0,
    """)
    assert (figures["from_us"], figures["to_us"]) == (1_000_000, 20_000_000)
    assert figures["unowned_us"] == 3_500_000


def test_time_after_the_death_of_the_last_owner_lasts_until_the_end() -> None:
    """The owner dies at 18 s, the run ends at 20 s."""
    assert partition("18 run node_killed peer=consumer-a")["unowned_us"] == 2_000_000


@pytest.mark.parametrize(
    ("processed_s", "waited_us"),
    [
        (4.9, 0),  # 0.9 s: shorter than a second, the usual interval of polls
        (5.0, 1_000_000),
        (9.0, 5_000_000),
    ],
)
def test_wait_counts_as_a_whole_once_it_reaches_a_second(
    processed_s: float, waited_us: int
) -> None:
    """Records produced at 4 s wait until they are processed.

    Waits shorter than a second are usual, because a member polls in intervals. A longer wait counts
    as a whole, not only the part after its first second.
    """
    figures = partition(f"""
    3 producer-0 records_produced partition=t-0 offset=0 count=5
    3.1 consumer-a records_consumed group=g member=a-1 partition=t-0 offset=0 count=5 last=4
    4 producer-0 records_produced partition=t-0 offset=5 count=5
    {processed_s} consumer-a records_consumed group=g partition=t-0 offset=5 count=5 last=9
    """)
    assert figures["waited_us"] == waited_us


# 40 records are produced at 3 s.
WORK = """
3 producer-0 records_produced partition=t-0 offset=0 count=40
"""


@pytest.mark.parametrize(
    ("batches", "waited_us"),
    # A batch is: second of its end, first offset, microseconds of work. The last batch always ends
    # at offset 40, the log's end, so that nothing waits afterwards.
    [
        # Records wait from 3 s on. The batches' work: 3.0 to 6.2 s, then 6.2 to 7.5 s.
        ((("6.2", 0, 3_200_000), ("7.5", 32, 1_300_000)), 0),
        # Work begins only at 6.2 - 1.2 = 5 s, after a wait of 2 s.
        ((("6.2", 0, 1_200_000), ("7.5", 32, 1_300_000)), 2_000_000),
        # No work between 6.2 s and 7.5 s.
        ((("6.2", 0, 3_200_000), ("7.5", 32, 0)), 1_300_000),
        # Work overlaps: 3 to 5 s, 4.5 to 9 s.
        ((("5", 0, 2_000_000), ("9", 32, 4_500_000)), 0),
        # Work of the last batch, 5 to 9 s, began before that of the second, 6.5 to 7 s; before it,
        # records wait from 4 to 5 s.
        ((("4", 0, 1_000_000), ("7", 8, 500_000), ("9", 32, 4_000_000)), 1_000_000),
    ],
)
def test_processing_of_a_batch_is_no_wait(
    batches: tuple[tuple[str, int, int], ...], waited_us: int
) -> None:
    """The trace has one row per batch, written when its processing ended."""
    figures = partition(
        WORK
        + "".join(
            f"{at_s} consumer-a records_consumed group=g member=a-1 partition=t-0 "
            f"offset={offset} count=8 last={offset + 7} work_us={work_us}\n"
            for at_s, offset, work_us in batches
        )
    )
    assert figures["waited_us"] == waited_us


def test_partition_without_waiting_records_has_no_wait() -> None:
    """All five records are processed after 0.1 s. From then on, no member needs to work."""
    figures = partition("""
    3 producer-0 records_produced partition=t-0 offset=0 count=5
    3.1 consumer-a records_consumed group=g member=a-1 partition=t-0 offset=0 count=5 last=4
    """)
    assert (figures["waited_us"], figures["lag_peak"]) == (0, 5)


# Before the fault at 5 s, at most 5 records wait: this is the usual lag. At 7 s 20 records wait; 10
# of them are processed at 8 s.
LAG = """
3 producer-0 records_produced partition=t-0 offset=0 count=5
3.1 consumer-a records_consumed group=g member=a-1 partition=t-0 offset=0 count=5 last=4
5 run fault_injected peer=broker-0 cause=crash-0 fault=crash target=broker(0)
6 producer-0 records_produced partition=t-0 offset=5 count=10
7 producer-0 records_produced partition=t-0 offset=15 count=10
8 consumer-a records_consumed group=g member=a-1 partition=t-0 offset=5 count=10 last=14
"""


def test_lag_is_over_when_no_more_records_wait_than_before_the_first_fault() -> None:
    """At 9 s 4 records wait (25 produced, 21 processed), which is at most the usual 5."""
    figures = partition(
        LAG + "9 consumer-a records_consumed group=g partition=t-0 offset=15 count=6 last=20"
    )
    assert (figures["lag_usual"], figures["lag_peak"]) == (5, 20)
    # The peak is at 7 s; the lag is over 2 s later.
    assert (figures["lag_peak_us"], figures["lag_over_us"]) == (7_000_000, 2_000_000)


def test_lag_that_lasts_until_the_end_is_never_over() -> None:
    """At 8 s 10 records still wait (25 produced, 15 processed), more than the usual 5."""
    figures = partition(LAG)
    assert (figures["lag_peak"], figures["lag_over_us"]) == (20, None)


def test_record_that_is_processed_again_counts_as_repeated() -> None:
    """Offsets 3 and 4 are processed by both members."""
    figures = partition("""
    3 consumer-a records_consumed group=g member=a-1 partition=t-0 offset=0 count=5 last=4
    4 consumer-b records_consumed group=g member=b-1 partition=t-0 offset=3 count=4 last=6
    """)
    assert figures["repeated"] == 2


def test_partition_that_returns_to_its_owner_moved_and_came_back() -> None:
    """t-0 goes from consumer-a to consumer-b and back: each figure counts it once."""
    figures = group("""
    4 consumer-a partitions_revoked group=g member=a-1 generation=1 partitions=t-0,
    5 consumer-b partitions_assigned group=g member=b-1 generation=2 partitions=t-0,
    6 consumer-b partitions_revoked group=g member=b-1 generation=2 partitions=t-0,
    7 consumer-a partitions_assigned group=g member=a-1 generation=3 partitions=t-0,
    """)
    assert (figures["partitions"], figures["moved"], figures["came_back"]) == (1, 1, 1)


def test_partition_that_its_owner_is_assigned_again_did_not_move() -> None:
    """consumer-a owns t-0 from 0.5 s on, and the next rebalance (generation 2) gives it back."""
    figures = group("""
    5 consumer-a partitions_assigned group=g member=a-1 generation=2 partitions=t-0,
    """)
    assert (figures["moved"], figures["came_back"]) == (0, 0)


SECOND_LIFE = """
6 run node_killed peer=consumer-a
7 consumer-a/1 node_started
8 consumer-a/1 partitions_assigned group=g member=a-2 generation=2 partitions=t-0,
"""
"""consumer-a is killed; its second process, the member a-2, runs to the end."""
REMOVED = "9 broker-0 member_removed group=g member=a-1 generation=1"


@pytest.mark.parametrize(
    ("before", "removal", "sent_away"),
    [
        ("", f'{REMOVED} cause="session expiry"', 1),
        ("", f"{REMOVED} cause=leave", 0),
        ("8 run node_killed peer=consumer-a", f'{REMOVED} cause="session expiry"', 0),
        ("8 run node_paused peer=consumer-a", f'{REMOVED} cause="session expiry"', 0),
        (
            "8 run fault_injected cause=cut-0 fault=cut target=x nodes=consumer-a,",
            f'{REMOVED} cause="session expiry"',
            0,
        ),
        ("8 consumer-a/1 node_started", f'{REMOVED} cause="session expiry"', 0),
        (SECOND_LIFE, f'{REMOVED} cause="session expiry"'.replace("a-1", "a-2"), 1),
    ],
    ids=[
        *("running and reachable", "left", "dead", "paused", "cut off", "of a former life"),
        "of a life after a kill",
    ],
)
def test_member_is_removed_needlessly_only_if_it_ran_and_could_be_reached(
    before: str, removal: str, sent_away: int
) -> None:
    """A removal for a good reason (leave, death, pause, cut, a later life) does not count."""
    assert group(f"{before}\n{removal}\n")["sent_away"] == sent_away
