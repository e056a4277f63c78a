"""Lanes of group states, rebalances and availability.

A lane is a chart of the report whose x axis is the time of the run. If a run has few groups,
members and partitions, each has a row in the lane. If there are many, the lane shows their number
over time. A second chart then shows the rows of one consumer group, which the reader picks.

The page gets the data of a chart as JSON, with keys of one letter that save room. The constants
below name these keys. `cells` reads the values of some keys, for each bar of the chart:

    cells(chart, "states", ROW, BEGIN_S, END_S) -> [("readers · broker-2", 6.0, 40.0), ...]

The runs last 60 s. The builders make rows of tables about the group `readers`, with times in
seconds:

- `state`: a state of the group on broker-2;
- `rebalance`: a rebalance on broker-2 that begins when consumer-1 joins;
- `tenure`: the time in which a broker is the coordinator of the group;
- `gap`: a time without service around the fault crash-0, from the last success before the fault to
  the first success after it.

An end of None means that the run ended first. `journal_entry` describes crash-0: broker-2 is killed
at 11.25 s.
"""

from pipeline.report.lanes import availability, groups, rebalances
from pipeline.report.lanes.availability import availability_lane
from pipeline.report.lanes.groups import group_detail, groups_lane
from pipeline.report.lanes.rebalances import rebalance_detail, rebalances_lane
from tests.support.builders.lane_rows import gap, group, rebalance, state, tenure
from tests.support.builders.report_inputs import journal_entry, report_input, run_facts
from tests.support.vega import cells, compiled_without_warnings, rows

# Keys of the data of a chart.
ROW = "r"
BEGIN_S, END_S = "a", "b"
KIND = "k"  # such as the state of a group
LABEL = "l"
LABEL_END_S = "u"  # the time at which the room for the label ends
LENGTH = "t"  # of a whole rebalance, as a text
NUMBER = "n"  # how many groups or members are of the kind from BEGIN_S on
GROUP_TO_PICK = "p"  # the group that a reader has to pick to see the bar
FAULT = "f"  # the fault that a gap is around
LEADER_FATE = "y"  # what happened to the leader of a partition


def test_group_lane_without_states_is_none() -> None:
    """A run without groups has no group states, and no lane of them."""
    assert groups_lane(report_input()) is None
    assert group_detail(report_input()) is None


def test_group_lane_has_a_row_for_each_coordinator_of_a_group() -> None:
    """Two coordinators can have the same group; a reader must see both coordinators."""
    states = [
        state("Stable", from_s=6, to_s=40),
        state("Dead", from_s=40, to_s=40),
        state("Stable", from_s=19, to_s=26, broker="broker-0"),
        state(
            "PreparingRebalance", from_s=26, to_s=None, broker="broker-0", members=1, cause="joined"
        ),
    ]
    run = report_input(tables={"group_states": states})
    chart = groups_lane(run)
    assert chart is not None
    compiled_without_warnings(chart)
    assert cells(chart, "states", ROW, KIND, BEGIN_S, END_S, LABEL) == [
        ("readers · broker-2", "Stable", 6.0, 40.0, "Stable · generation 1 · 2 members"),
        ("readers · broker-0", "Stable", 19.0, 26.0, "Stable · generation 1 · 2 members"),
        (
            "readers · broker-0",
            "PreparingRebalance",
            26.0,
            60.0,
            "PreparingRebalance · generation 1 · 1 member at its beginning",
        ),
    ]
    # A group is Dead only for a moment, so the lane has a mark for this state, and no bar.
    assert cells(chart, "dead", ROW, BEGIN_S) == [("readers · broker-2", 40.0)]
    assert group_detail(run) is None, "the lane itself has a row for each group"


def test_group_lane_of_many_groups_counts_them_and_shows_one_on_demand() -> None:
    """A thousand rows are unreadable: the lane counts groups by state, and shows one on demand."""
    states = []
    for index in range(1_000):
        name = f"group-{index}"
        states.append(state("PreparingRebalance", from_s=6, to_s=10, group=name))
        states.append(state("Stable", from_s=10, to_s=None, group=name))
    states += [
        state("Empty", from_s=50, to_s=55, group="group-7", broker="broker-1"),
        state("Stable", from_s=55, to_s=None, group="group-7", broker="broker-1"),
    ]
    run = report_input(tables={"group_states": states})

    chart, detail = groups_lane(run), group_detail(run)
    assert chart is not None
    assert detail is not None
    compiled_without_warnings(chart)
    compiled_without_warnings(detail)

    counts = cells(chart, "counts", KIND, BEGIN_S, NUMBER)
    groups_by_state_at_10_s = {kind: number for kind, from_s, number in counts if from_s == 10.0}
    assert groups_by_state_at_10_s == {"Stable": 1_000, "PreparingRebalance": 0, "Empty": 0}
    # At each time of a change there is a count for each state, and not a value for each group.
    assert len(chart.data["counts"]) < 5_000

    (pick,) = detail.picks
    assert pick.options[0] == "group-7", "the group with the most states comes first"
    assert len(pick.options) == 1_000
    rows_of_group_7 = {
        row for row, picked in cells(detail, "states", ROW, GROUP_TO_PICK) if picked == "group-7"
    }
    assert rows_of_group_7 == {"group-7 · broker-2", "group-7 · broker-1"}


def test_group_states_in_the_page_are_bounded() -> None:
    """The page must stay small, so a reader cannot pick the groups with the fewest states.

    The table in the run's directory has all of them.
    """
    states_of_a_group = 10
    states = [
        state("Stable", from_s=at_s, to_s=at_s + 1, group=f"group-{index}")
        for index in range(2_000)
        for at_s in range(states_of_a_group)
    ]
    detail = group_detail(report_input(tables={"group_states": states}))
    assert detail is not None
    assert len(detail.data["states"]) <= groups.MAX_PICKED
    # MAX_PICKED is 8,000 states, which is what 800 groups have.
    assert "800 of 2,000 groups can be picked" in detail.about


def test_rebalance_lane_without_rebalances_is_none() -> None:
    """A failover without a rebalance is common, and an empty lane would only take room."""
    assert rebalances_lane(report_input()) is None
    assert rebalance_detail(report_input()) is None


def test_bar_of_a_rebalance_has_a_part_for_joining_and_one_for_syncing() -> None:
    """Members join from 26 s to 64 s. At 64.5 s the assignment is stored.

    The tooltip of each part has the length of the whole rebalance: 64.5 - 26 = 38.5 s. Only the
    first part has a label, which may extend over the second part. In this test the bars go beyond
    the end of the run at 60 s; the axis of the chart cuts them off there.
    """
    run = report_input(
        tables={
            "rebalances": [
                rebalance(started_s=26, joined_s=64, stable_s=64.5, reason="session expiry")
            ]
        }
    )
    chart = rebalances_lane(run)
    assert chart is not None
    compiled_without_warnings(chart)
    assert cells(chart, "parts", KIND, BEGIN_S, END_S, LENGTH) == [
        (rebalances.JOINING, 26.0, 64.0, "38.50 s"),
        (rebalances.SYNCING, 64.0, 64.5, "38.50 s"),
    ]
    first, second = rows(chart, "parts")
    assert first[LABEL] == "session expiry of consumer-1 · generation 1 to 2 · 38.50 s"
    assert first[LABEL_END_S] == 64.5, "the label may extend to the end of the second part"
    assert LABEL not in second


def test_rebalance_that_never_completed_ends_with_the_next_one_or_its_coordinator() -> None:
    """The bar of a rebalance that never completed does not reach to the end of the run.

    The bar from 20 s ends at 26 s, when the next rebalance begins. The next rebalance never
    completes either. Its bar ends at 30 s, when the coordinator is killed. The rows of the table
    need not be in the order of time.
    """
    run = report_input(
        tables={
            "groups": [group()],
            "coordinator_tenures": [
                tenure("broker-2", epoch=0, from_s=0, to_s=30, end_reason="killed")
            ],
            "rebalances": [
                rebalance(started_s=26, joined_s=None, stable_s=None),
                rebalance(started_s=20, joined_s=None, stable_s=None),
            ],
        }
    )
    chart = rebalances_lane(run)
    assert chart is not None
    assert cells(chart, "parts", KIND, BEGIN_S, END_S) == [
        (rebalances.BROKEN_OFF, 20.0, 26.0),
        (rebalances.BROKEN_OFF, 26.0, 30.0),
    ]


def test_rebalance_lane_of_many_groups_counts_those_in_progress() -> None:
    """If many groups rebalance at the same time, the lane shows their number over time."""
    rebalances_of_500_groups = [
        rebalance(started_s=10 + index / 1_000, joined_s=20, stable_s=21, group=f"group-{index}")
        for index in range(500)
    ]
    run = report_input(tables={"rebalances": rebalances_of_500_groups})
    chart, detail = rebalances_lane(run), rebalance_detail(run)
    assert chart is not None
    assert detail is not None
    compiled_without_warnings(chart)
    compiled_without_warnings(detail)
    counts = cells(chart, "counts", KIND, NUMBER)
    joining = [number for kind, number in counts if kind == rebalances.JOINING]
    assert max(joining) == 500
    assert len(detail.picks[0].options) == 500


def test_availability_lane_without_a_gap_is_none() -> None:
    """A run without gaps has no lane: every group, member and partition always had service."""
    assert availability_lane(report_input()) is None


def test_availability_lane_has_a_row_for_each_subject() -> None:
    """Groups come first, then members, then partitions; consumer-2 precedes consumer-10."""
    run = report_input(
        tables={
            "availability": [
                gap("partition", "orders-10", from_s=11, to_s=12),
                gap("member", "consumer-10", from_s=11.1, to_s=19.2),
                gap("member", "consumer-2", from_s=11.2, to_s=None),
                gap("group", "readers", from_s=11.25, to_s=19.08),
            ]
        }
    )
    chart = availability_lane(run)
    assert chart is not None
    vega = compiled_without_warnings(chart)
    y_axis = next(scale for scale in vega["scales"] if scale["name"] == "y")
    assert y_axis["domain"] == ["readers", "consumer-2", "consumer-10", "orders-10"]
    bars_by_row = {row: bar for row, *bar in cells(chart, "gaps", ROW, BEGIN_S, END_S, LABEL)}
    assert bars_by_row["consumer-10"] == [11.1, 19.2, "8.10 s"]
    assert bars_by_row["consumer-2"] == [11.2, 60.0, "48.80 s, until the run ended"]


def test_availability_lane_of_a_partition_of_two_groups_has_a_row_for_each_group() -> None:
    """Of two groups that read a partition, one may consume it while the other does not."""
    run = report_input(
        tables={
            "availability": [
                gap("partition", "orders-0", from_s=11, to_s=12),
                gap("partition", "orders-0", from_s=13, to_s=14, group="auditors"),
            ]
        }
    )
    chart = availability_lane(run)
    assert chart is not None
    assert {row for (row,) in cells(chart, "gaps", ROW)} == {
        "readers · orders-0",
        "auditors · orders-0",
    }


def test_availability_lane_draws_a_gap_around_many_faults_once() -> None:
    """A gap during which several faults happen has a row for each fault, but only one bar.

    A bar for each fault would hide other labels, and leave no room for other gaps.
    """
    # consumer-0 has a single gap, and many faults happen in it. The lane has at most MAX_GAPS bars.
    faults = [f"crash-{index}" for index in range(availability.MAX_GAPS + 1)]
    gaps = [gap("member", "consumer-0", from_s=11, to_s=50, fault=fault) for fault in faults]
    gaps.append(gap("member", "consumer-1", from_s=11, to_s=12))
    chart = availability_lane(report_input(tables={"availability": gaps}))
    assert chart is not None
    assert sorted(cells(chart, "gaps", ROW, FAULT)) == [
        # The first of the 401 faults (MAX_GAPS + 1) is named, and the others are counted.
        ("consumer-0", "crash-0 and 400 more"),
        ("consumer-1", "crash-0"),
    ]


def test_availability_lane_of_many_members_counts_those_without_service() -> None:
    """The lane of a thousand members is one line: how many members have a gap at each time.

    Two faults happen in the gap of consumer-0, but consumer-0 counts only once.
    """
    gaps = [gap("member", f"consumer-{index}", from_s=11, to_s=19) for index in range(1_000)]
    gaps.append(gap("member", "consumer-0", from_s=11, to_s=19, fault="crash-1"))
    # A group's gap has a line of its own, and does not count among the members' gaps.
    gaps.append(gap("group", "readers", from_s=12, to_s=18))
    chart = availability_lane(report_input(tables={"availability": gaps}))
    assert chart is not None
    compiled_without_warnings(chart)
    gaps_of_members = availability.KINDS["member"]
    counts = cells(chart, "counts", KIND, BEGIN_S, NUMBER)
    members_in_a_gap = [
        (from_s, number) for kind, from_s, number in counts if kind == gaps_of_members
    ]
    assert members_in_a_gap == [(0.0, 0), (11.0, 1_000), (19.0, 0), (60.0, 0)]
    assert chart.picks[0].options[0] == gaps_of_members


def test_availability_lane_of_many_members_counts_from_the_fault_on() -> None:
    """A member's gap begins at the fault (11.25 s), and not at the member's last commit (11 s).

    From the last commit to the fault the member only waits, as it always does between commits.
    """
    gaps = [gap("member", f"consumer-{index}", from_s=11, to_s=19) for index in range(100)]
    run = report_input(run_facts(faults=(journal_entry(),)), tables={"availability": gaps})
    chart = availability_lane(run)
    assert chart is not None
    assert cells(chart, "counts", BEGIN_S, NUMBER) == [(0.0, 0), (11.25, 100), (19.0, 0), (60.0, 0)]


def test_availability_of_a_partition_shows_the_absence_of_its_leader() -> None:
    """The crash of broker-2 took the leader of orders-2, and the label names that reason.

    orders-1 had another leader, so the label of its gap names no reason.
    """
    crash = journal_entry(partitions=("__consumer_offsets-2", "orders-2"))
    gaps = [gap("partition", f"orders-{index}", from_s=11, to_s=50) for index in (1, 2)]
    chart = availability_lane(
        report_input(run_facts(faults=(crash,)), tables={"availability": gaps})
    )
    assert chart is not None
    # The text table beside the chart has the fate of the leader in its last column.
    assert sorted(cells(chart, "gaps", ROW, LEADER_FATE, LABEL)) == [
        ("orders-1", None, "39.00 s"),
        ("orders-2", "broker-2 was killed", "39.00 s · its leader broker-2 was killed"),
    ]
    assert chart.table is not None
    fates = [fate for *_, fate in chart.table.rows]
    assert fates == [None, "broker-2 was killed"]


def test_availability_lane_leaves_out_groups_that_kept_their_coordinator() -> None:
    """The gap of such a group has no length. A bar would be invisible, so a text names the group.

    Names of members are long, so the page leaves out the part that all of them begin with. The
    chart's help says which part this is.
    """
    kept = gap("group", "readers", from_s=11.25, to_s=11.25)
    assert availability_lane(report_input(tables={"availability": [kept]})) is None
    of_a_member = gap("member", "consumer-orders-readers-1", from_s=11, to_s=19)
    chart = availability_lane(report_input(tables={"availability": [kept, of_a_member]}))
    assert chart is not None
    assert [row for (row,) in cells(chart, "gaps", ROW)] == ["consumer-orders-readers-1"]
    # `about` is the sentence above the chart, and `more` is its help.
    assert "An active coordinator all the time: readers." in chart.about
    assert "without consumer-orders- in front" in chart.more
