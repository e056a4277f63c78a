"""The fault lane and the coordinator lane: charts of the report whose x axis is the run's time.

The fault lane shows when each fault was injected and healed. The coordinator lane has a row for
each partition of `__consumer_offsets` that stores groups, and shows which broker coordinated these
groups, and when. The time in which a broker coordinates is called its tenure. Before its tenure,
the broker loads the partition: it reads the groups into memory.

The page gets the data of a chart as JSON, with keys of one letter that save room. The constants
below name these keys. `cells` reads the values of some keys, for each bar of the chart:

    cells(chart, "parts", ROW, PART, BEGIN_S, END_S) -> [("crash-0", "in force", 11.5, 36.25), ...]

The runs are steady from 6 s on and end at 60 s. `journal_entry` describes the fault crash-0:
broker-2 is killed at 11.25 s and started again at 36.25 s. `tenure` makes a row of the table of
tenures, about __consumer_offsets-2, and `load` a row about the load before a tenure. `group` makes
a row about a group that is stored in __consumer_offsets-2. `us` turns seconds into microseconds.
"""

from pipeline.report.lanes import coordinators
from pipeline.report.lanes.coordinators import coordinators_lane
from pipeline.report.lanes.faults import MAX_ROWS, faults_lane
from results_schema.journal import FaultOutcome
from tests.support.builders.lane_rows import OFFSETS_2, group, load, tenure, tenure_overlap, us
from tests.support.builders.report_inputs import journal_entry, report_input, run_facts
from tests.support.vega import cells, compiled_without_warnings

# Keys of the data of a chart.
ROW = "r"
BEGIN_S, END_S = "a", "b"
LENGTH = "d"
LABEL = "l"
PART = "p"  # of a fault: its injection, its time in force, or its healing
COMMITS = "c"  # number of commits in a tenure
END_REASON = "x"  # why a tenure ended
RECORDS = "n"  # number of records that a load read
WAITED = "g"  # how long a load waited for the loads before it


def test_fault_lane_without_a_fault_is_none() -> None:
    """A fault that never fired has no place on a time axis, so the lane has nothing to show."""
    missed = journal_entry(
        outcome=FaultOutcome.MISSED,
        fired_at_us=None,
        in_force_from_us=None,
        in_force_until_us=None,
        healed_at_us=None,
    )
    assert faults_lane(report_input(run_facts(faults=(missed,)))) is None


def test_fault_lane_of_a_crash_has_its_parts() -> None:
    """Injection, time in force and healing are separate bars."""
    crash = journal_entry(in_force_from_us=us(11.5), healed_at_us=us(37))
    chart = faults_lane(report_input(run_facts(faults=(crash,), healed_at_us=us(37))))
    assert chart is not None
    compiled_without_warnings(chart)
    assert cells(chart, "parts", ROW, PART, BEGIN_S, END_S, LENGTH) == [
        ("crash-0", "being injected", 11.25, 11.5, "250 ms"),
        ("crash-0", "in force", 11.5, 36.25, "24.75 s"),
        ("crash-0", "being healed", 36.25, 37.0, "750 ms"),
    ]
    # The run has three stages: before the steady state, until the last healing, and after it.
    assert cells(chart, "run", BEGIN_S, END_S) == [(0.0, 6.0), (6.0, 37.0), (37.0, 60.0)]
    # A coloured band behind every lane shows the time of the fault.
    assert cells(chart, "faults", BEGIN_S, END_S) == [(11.25, 37.0)]


def test_labels_of_momentary_faults_end_where_the_next_begins() -> None:
    """Many short faults, such as deletions of groups, share rows; their labels must not overlap.

    So the room for a label ends where the next fault of the row begins.
    """
    # MAX_ROWS + 1 = 31 faults, at 10 to 40 s, are too many for each to have a row of its own.
    moments = [
        journal_entry(
            fault_id=f"delete_group-{index}",
            fault="delete_group",
            momentary=True,
            fired_at_us=us(10 + index),
        )
        for index in range(MAX_ROWS + 1)
    ]
    chart = faults_lane(report_input(run_facts(faults=tuple(moments))))
    assert chart is not None
    ends = cells(chart, "points", BEGIN_S, END_S)
    assert ends[:2] == [(10.0, 11.0), (11.0, 12.0)]
    assert ends[-1] == (40.0, 60.0)  # the last label may extend to the end of the run


def test_fault_lane_of_a_fault_that_was_never_healed_reaches_the_end() -> None:
    """An interrupted run never heals its fault, so the fault's bar must reach the run's end."""
    crash = journal_entry(in_force_until_us=None, healed_at_us=None)
    chart = faults_lane(report_input(run_facts(faults=(crash,))))
    assert chart is not None
    assert cells(chart, "parts", PART, END_S) == [("in force", 60.0)]
    assert cells(chart, "faults", END_S) == [(60.0,)]


def test_fault_lane_of_many_faults_shares_rows_by_kind() -> None:
    """Faults of a kind that do not overlap share a row, so that a hundred faults fit a page."""
    # Each fault lasts 1.5 s, and the next one of its kind begins after 1 s.
    faults_of_two_kinds = tuple(
        journal_entry(
            fault_id=f"{kind}-{index}",
            fault=kind,
            fired_at_us=us(index),
            in_force_from_us=us(index),
            in_force_until_us=us(index + 1.5),
            healed_at_us=us(index + 1.5),
        )
        for kind in ("crash", "pause")
        for index in range(25)
    )
    # 50 faults are more than MAX_ROWS, so they have to share rows.
    chart = faults_lane(report_input(run_facts(faults=faults_of_two_kinds)))
    assert chart is not None
    compiled_without_warnings(chart)
    rows = {row for (row,) in cells(chart, "parts", ROW)}
    assert len(rows) == 4, "each fault overlaps only its neighbour: two rows for each of two kinds"


def test_fault_lane_of_a_momentary_fault_is_a_point() -> None:
    """A reset of connections takes no time: it has no duration to draw."""
    reset = journal_entry(fault_id="reset-0", fault="reset", momentary=True)
    chart = faults_lane(report_input(run_facts(faults=(reset,))))
    assert chart is not None
    compiled_without_warnings(chart)
    assert cells(chart, "parts", ROW) == []
    assert cells(chart, "points", ROW, BEGIN_S) == [("reset-0", 11.25)]


def test_coordinator_lane_without_groups_is_none() -> None:
    """No group uses this offsets partition, so its coordinator does not matter to any client."""
    run = report_input(
        tables={"coordinator_tenures": [tenure("broker-2", epoch=0, from_s=0, to_s=60)]}
    )
    assert coordinators_lane(run) is None


def test_coordinator_lane_of_a_crash_shows_the_time_without_a_coordinator_and_the_load() -> None:
    """Between two tenures there is no coordinator: the next broker still loads the partition."""
    run = report_input(
        tables={
            "groups": [group()],
            "coordinator_tenures": [
                tenure(
                    "broker-2", epoch=0, from_s=0.08, to_s=11.25, end_reason="killed", commits=264
                ),
                tenure("broker-0", epoch=1, from_s=19.08, to_s=60),
                tenure("broker-1", epoch=0, from_s=0.08, to_s=60, partition="__consumer_offsets-1"),
            ],
            "broker_phases": [load("broker-0", epoch=1, from_s=19.075, to_s=19.08)],
        }
    )
    chart = coordinators_lane(run)
    assert chart is not None
    compiled_without_warnings(chart)
    # __consumer_offsets-1 has no group, and therefore no row.
    assert cells(chart, "tenures", ROW, LABEL, BEGIN_S, END_S, COMMITS, END_REASON) == [
        (OFFSETS_2, "broker-2 · leader epoch 0", 0.08, 11.25, 264, "killed"),
        (OFFSETS_2, "broker-0 · leader epoch 1 · loaded in 5 ms", 19.08, 60.0, 0, "run end"),
    ]
    assert cells(chart, "vacant", BEGIN_S, END_S, LENGTH) == [(11.25, 19.08, "7.83 s")]
    # The load that the builder makes reads 265 records, and waited 1.2 ms for earlier loads.
    assert cells(chart, "loads", ROW, BEGIN_S, END_S, RECORDS) == [(OFFSETS_2, 19.075, 19.08, 265)]
    assert cells(chart, "loads", WAITED) == [("1.2 ms",)]
    # `twice` has the times at which two brokers coordinated.
    assert cells(chart, "twice", ROW) == []


def test_coordinator_lane_of_two_coordinators_has_a_row_each_and_one_for_the_overlap() -> None:
    """Overlapping bars in one row would hide each other; a text shows the overlap's length."""
    # broker-2 is cut off from 9 to 39 s.
    cut = tenure(
        "broker-2",
        epoch=0,
        from_s=0.08,
        to_s=40,
        cut_us=us(30),
        cut_from_us=us(9),
        cut_to_us=us(39),
    )
    run = report_input(
        tables={
            "groups": [group()],
            "coordinator_tenures": [cut, tenure("broker-0", epoch=1, from_s=19, to_s=60)],
            "tenure_overlaps": [tenure_overlap(from_s=19, to_s=40)],
        }
    )
    chart = coordinators_lane(run)
    assert chart is not None
    compiled_without_warnings(chart)
    # The tenures are in the order of time, so the tenure of broker-2 is the first.
    (row_of_older, label_of_older), (row_of_newer, _) = cells(chart, "tenures", ROW, LABEL)
    assert row_of_older == OFFSETS_2
    assert row_of_newer != row_of_older
    assert label_of_older == "broker-2 · leader epoch 0 · cut off 30.00 s"
    # A part of the bar shows the time in which the broker was cut off.
    assert cells(chart, "stalled", ROW, BEGIN_S, END_S) == [(OFFSETS_2, 9.0, 39.0)]
    ((row_of_overlap, from_s, to_s, text),) = cells(chart, "twice", ROW, BEGIN_S, END_S, LABEL)
    assert row_of_overlap not in {row_of_older, row_of_newer}
    assert (from_s, to_s) == (19.0, 40.0)
    assert text == "broker-2 (leader epoch 0) and broker-0 (leader epoch 1) for 21.00 s"
    assert cells(chart, "vacant", BEGIN_S) == []


def test_coordinator_lane_of_many_partitions_shows_those_that_moved() -> None:
    """The lane has at most MAX_PARTITIONS rows; one of them is the partition that moved.

    The other rows are of partitions that kept their coordinator.
    """
    partitions = [f"__consumer_offsets-{index}" for index in range(120)]
    *kept, moved = partitions
    tenures = [
        tenure("broker-2", epoch=0, from_s=0, to_s=60, partition=partition) for partition in kept
    ]
    tenures += [
        tenure("broker-2", epoch=0, from_s=0, to_s=20, partition=moved),
        tenure("broker-0", epoch=1, from_s=30, to_s=60, partition=moved),
    ]
    groups = [group(f"group-{index}", partition) for index, partition in enumerate(partitions)]
    chart = coordinators_lane(
        report_input(tables={"groups": groups, "coordinator_tenures": tenures})
    )
    assert chart is not None
    shown = {row for (row,) in cells(chart, "tenures", ROW)}
    assert len(shown) == coordinators.MAX_PARTITIONS
    assert moved in shown
    assert "70 more partitions" in chart.about  # 120 - MAX_PARTITIONS
