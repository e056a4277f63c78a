"""The tables of the analysis against small traces worked out by hand.

Each trace is a text file. Its lines are the events of a run, with times in seconds and comments.
To see why a test expects its rows, read the trace beside it. Spark analyses all runs in one call,
and the tests then read the tables back without Spark. docs/TABLES.md explains every column.

- `traces/crash.txt`: `broker-2`, the coordinator of `group-1`, is killed at 12 s; `broker-0` loads
  the group at 19.782 s. `consumer-0` stays a member, `consumer-1` has to join again.
- `traces/pause.txt`: `broker-0`, the coordinator of `g`, is paused from 5 to 20 s; `broker-1` takes
  over at 8.2 s and is killed at 30 s. The run is interrupted at 33 s.

`analysed.table` reads a table as a dict. Its last arguments are the columns that become the key:

    analysed.table("pause", "client_phases", "fault")
    -> {("f1",): {"attempts": 1, ...}, ("f2",): {"attempts": 2, ...}}

The tables divide a failover into phases. Each phase ends with an event:

- phases of the brokers: detect (the controller elects a new leader), publish (the leader learns of
  its election), load wait (the leader begins to load the groups), load (it has read them into
  memory);
- phases of a member: notice (the member gives its coordinator up), rediscover (a broker names the
  new coordinator), accept (a request succeeds there), and, within accept, join and sync.

A tenure is the time in which a broker coordinates a partition of `__consumer_offsets`.

(BEHAVIOUR 2.0) in a docstring is section 2.0 of docs/kafka/BEHAVIOUR.md.
"""

from collections.abc import Sequence

import pytest

from pipeline.all_tables import TABLE_NAMES
from pipeline.in_memory.trace import TableRow
from tests.support.builders.trace_builder import read_table
from tests.support.worlds.analysed_runs import AnalysedRuns

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

OFFSETS_2 = "__consumer_offsets-2"


def _rows(
    table: dict[tuple[object, ...], TableRow], *columns: str
) -> dict[object, Sequence[object]]:
    """Return the values of `columns` of each row, by the row's key.

    A key of one column is not a tuple: `{("f1",): {"attempts": 1, ...}}` becomes `{"f1": [1]}`.
    """
    return {
        key[0] if len(key) == 1 else key: [row[column] for column in columns]
        for key, row in table.items()
    }


def test_broker_phases_of_a_crash_follow_the_elected_leader(analysed: AnalysedRuns) -> None:
    """Three elections follow the fault; only the election of `broker-0` ends the phase `detect`.

    The election at 12.001 s elects no leader. The election at 35 s comes after `broker-0` became
    leader, so the failover is over by then. Each phase is the difference of two times:

    - detect = decided - fault
    - publish = applied - decided
    - load wait = load_started - applied
    - load = active - load_started
    """
    rows = analysed.table("crash", "broker_phases", "fault", "partition")
    row = rows.pop(("f1", OFFSETS_2))
    assert not rows, "no other partition changed its leader"
    row.pop("run")
    assert row == {
        "fault": "f1",
        "partition": OFFSETS_2,
        "old_leader": "broker-2",
        "new_leader": "broker-0",
        "leader_epoch": 2,
        "groups": ["group-1"],
        "fault_us": 12_000_000,
        "decided_us": 19_700_000,
        "applied_us": 19_760_000,
        "load_started_us": 19_762_000,
        "active_us": 19_782_000,
        "detect_us": 7_700_000,
        "publish_us": 60_000,
        "load_wait_us": 2_000,
        "load_us": 20_000,
        "records": 300,
        "bytes": 24_000,
    }


def test_broker_phases_of_a_run_interrupted_before_the_load_are_null(
    analysed: AnalysedRuns,
) -> None:
    """When the run ends, the failover after the second fault (f2) has only had its election.

    Its later times are null, and so are the phases that end at these times.
    """
    rows = analysed.table("pause", "broker_phases", "fault", "partition")
    assert _rows(rows, "decided_us", "detect_us", "publish_us", "active_us", "load_us") == {
        ("f1", "__consumer_offsets-0"): [8_000_000, 3_000_000, 100_000, 8_200_000, 100_000],
        ("f2", "__consumer_offsets-0"): [32_000_000, 2_000_000, None, None, None],
    }


def test_client_phases_of_a_waiting_member_ignore_heartbeats_answered_while_loading(
    analysed: AnalysedRuns,
) -> None:
    """`accept` ends with the commit at 19.9 s, not with the heartbeat answered at 19.783 s.

    A broker that is still loading answers heartbeats without an error, so such an answer does not
    prove that it coordinates the group (BEHAVIOUR 2.0).
    """
    row = analysed.table("crash", "client_phases", "consumer")[("consumer-0",)]
    row.pop("run")
    assert row == {
        "fault": "f1",
        "group": "group-1",
        "consumer": "consumer-0",
        "member_id": "m0",
        "member_id_after": "m0",
        "generation": 1,
        "generation_after": 1,
        "fault_us": 12_000_000,
        "unknown_us": 12_027_000,  # the member marked its coordinator unknown
        "named_us": 19_775_000,  # a broker named the new coordinator to it
        "accepted_us": 19_900_000,  # its first commit at the new coordinator succeeded
        "notice_us": 27_000,
        "rediscover_us": 7_748_000,
        "accept_us": 125_000,
        # The member did not have to join again.
        "join_us": None,
        "sync_us": None,
        # Of four lookups, two named the dead broker-2 (stale), one failed, and one succeeded.
        "attempts": 4,
        "stale_answers": 2,
        "longest_wait_us": None,  # no request waited for the old coordinator
        "noticed_by": None,
        # The old coordinator answered nothing after the failover.
        "self_answers": 0,
        "commit_timeouts": 0,
        "late_heartbeats": 0,
    }


def test_client_phases_of_a_rejoining_member_measure_its_join_and_sync(
    analysed: AnalysedRuns,
) -> None:
    """`join` lasts from the first JoinGroup at 20.02 s to the successful answer at 20.1 s.

    The first JoinGroup is answered MEMBER_ID_REQUIRED, and the second succeeds. The phase includes
    the time of both.
    """
    rows = analysed.table("crash", "client_phases", "consumer")
    # The trace also has rows of an administrator's client, which is no member.
    assert set(rows) == {("consumer-0",), ("consumer-1",)}
    columns = ("member_id", "member_id_after", "generation", "generation_after")
    assert _rows(rows, *columns)["consumer-1"] == ["m1", "m1-new", 1, 2]
    phases = ("rediscover_us", "accept_us", "join_us", "sync_us", "attempts", "stale_answers")
    assert _rows(rows, *phases)["consumer-1"] == [7_970_000, 100_000, 80_000, 9_000, 1, 0]


def test_client_phases_that_never_end_are_null_and_count_every_lookup(
    analysed: AnalysedRuns,
) -> None:
    """After the second fault (f2) no lookup finds the new coordinator before the run ends.

    One lookup fails, and one names broker-1, which is dead: 2 attempts, 1 stale answer.

    After the first fault (f1, a pause at 5 s), the phases have an end. The member waits for an
    answer of the paused coordinator, and gives it up at 20.1 s. So `notice` is 15.1 s.
    """
    rows = analysed.table("pause", "client_phases", "fault")
    columns = ("notice_us", "rediscover_us", "accept_us", "attempts", "stale_answers")
    assert _rows(rows, *columns) == {
        "f1": [15_100_000, 50_000, 250_000, 1, 0],
        "f2": [10_000, None, None, 2, 1],
    }
    assert rows[("f2",)]["generation_after"] is None


def test_coordinator_tenures_end_with_their_broker(analysed: AnalysedRuns) -> None:
    """The tenure of broker-2 ends when it is killed at 12 s, and not when it restarts at 30 s.

    No two tenures of a partition overlap in this run, so `overlap_us` is 0.
    """
    rows = analysed.table("crash", "coordinator_tenures", "partition", "leader_epoch")
    columns = ("broker", "incarnation", "start_us", "end_us", "end_reason", "overlap_us")
    assert _rows(rows, *columns) == {
        ("__consumer_offsets-0", 0): ["broker-0", 0, 1_110_000, 40_000_000, "run end", 0],
        (OFFSETS_2, 0): ["broker-2", 0, 1_110_000, 12_000_000, "killed", 0],
        (OFFSETS_2, 2): ["broker-0", 0, 19_782_000, 40_000_000, "run end", 0],
    }


def test_coordinator_tenures_of_a_split_brain_overlap(analysed: AnalysedRuns) -> None:
    """Two coordinators are active from 8.2 s, when the new coordinator has loaded, to 20.2 s.

    At 20.2 s the old coordinator unloads the partition. It was paused from 5.001 to 20.01 s, and
    therefore in most of the overlap: for 20.01 - 8.2 = 11.81 s.
    """
    rows = analysed.table("pause", "coordinator_tenures", "leader_epoch")
    assert _rows(rows, "broker", "start_us", "end_us", "end_reason", "overlap_us") == {
        4: ["broker-0", 1_100_000, 20_200_000, "unloaded", 12_000_000],
        5: ["broker-1", 8_200_000, 30_000_000, "killed", 12_000_000],
    }
    assert _rows(rows, "paused_us", "paused_from_us", "paused_to_us", "cut_us") == {
        # The last value, `cut_us`, is the time in which the broker was cut off from others.
        4: [15_009_000, 5_001_000, 20_010_000, 0],
        5: [0, None, None, 0],
    }
    overlap = analysed.table("pause", "tenure_overlaps", "newer_epoch")
    assert _rows(overlap, "length_us", "older_paused_us") == {5: [12_000_000, 11_810_000]}


def test_availability_of_a_crash_per_member_partition_and_group(analysed: AnalysedRuns) -> None:
    """A gap is the time without service around the fault.

    The gap of a member lies between two acknowledged commits, and the gap of a partition between
    two processed records. The gap of a group begins with the kill of its coordinator, and ends when
    another broker is active. If service does not come back before the run ends, the end and the
    length of the gap are null.

    The gap of consumer-0 begins at 12.001 s, with an acknowledgement that was still on its way when
    the coordinator was killed (12 s). It ends with the first commit at the new coordinator, at
    19.9 s.
    """
    rows = analysed.table("crash", "availability", "subject_kind", "subject")
    assert _rows(rows, "gap_us", "before_us", "after_us") == {
        ("member", "consumer-0"): [7_899_000, 12_001_000, 19_900_000],
        ("member", "consumer-1"): [None, 11_900_000, None],
        ("partition", "orders-0"): [150_000, 11_900_000, 12_050_000],
        ("partition", "orders-1"): [None, 11_980_000, None],
        ("partition", "orders-2"): [8_000_000, 11_950_000, 19_950_000],
        ("group", "group-1"): [7_782_000, 12_000_000, 19_782_000],
    }


def test_availability_with_two_coordinators_has_no_time_without_one(
    analysed: AnalysedRuns,
) -> None:
    """After f1 the group always has a coordinator, and from 8.2 to 20.2 s it has two.

    So the group's gap begins and ends with the fault, at 5 s, and its length is 0. But the member
    has a gap, which is the cost of the pause: it waits 15 s for an answer of the paused coordinator
    before it asks another broker (MEASURED_FAILOVER 3).
    """
    rows = analysed.table("pause", "availability", "fault", "subject_kind")
    assert _rows(rows, "gap_us", "before_us", "after_us") == {
        ("f1", "member"): [15_600_000, 4_800_000, 20_400_000],
        ("f1", "group"): [0, 5_000_000, 5_000_000],
        ("f2", "member"): [None, 20_600_000, None],
        ("f2", "group"): [None, 30_000_000, None],
    }


def test_rebalances_have_their_cause_and_the_fault_before(analysed: AnalysedRuns) -> None:
    """A rebalance has the fault that preceded it; the group's first rebalance has none.

    The second rebalance begins at 20.022 s. It never becomes stable: the third rebalance begins at
    20.05 s, before any partition is assigned. The column `generation` has the group's generation
    before the rebalance.
    """
    rows = analysed.table("crash", "rebalances", "cause")
    columns = ("fault", "member", "generation", "started_us", "joined_us", "stable_us", "length_us")
    assert _rows(rows, *columns) == {
        "first member": [None, None, 0, 1_200_000, 4_200_000, 4_300_000, 3_100_000],
        "a member joined": ["f1", "m1-new", 1, 20_022_000, None, None, None],
        "a member left": ["f1", "m0", 1, 20_050_000, 20_099_000, 20_108_000, 58_000],
    }


def test_faults_have_their_blast_radius_and_window(analysed: AnalysedRuns) -> None:
    """What happens in a fault's window is counted as its effect.

    The window ends (`until_us`) with the next fault that hit a node, or with the run. In `pause`,
    the window of f1 lasts until f2 at 30 s. A reset of connections at 25 s does not end it, because
    it finds no connection to reset. f2 is never healed.
    """
    row = analysed.table("crash", "faults", "fault")[("f1",)]
    row.pop("run")
    assert row == {
        "fault": "f1",
        "kind": "crash",
        "target": "coordinator-of(group-1)",
        "node": "broker-2",
        "injected_us": 12_000_000,
        "healed_us": 30_000_000,
        # The end of the run: no later fault hit a node.
        "until_us": 40_000_000,
        "groups": ["group-1"],
        "partitions": [OFFSETS_2, "orders-2"],
        # Only a fault of links has a time in force, and nodes on both sides of the links.
        "in_force_us": None,
        "in_force_until_us": None,
        "nodes": ["broker-2"],
        "from_nodes": [],
        "to_nodes": [],
    }
    assert _rows(analysed.table("pause", "faults", "fault"), "healed_us", "until_us") == {
        "f1": [20_000_000, 30_000_000],
        "f2": [None, 33_000_000],
    }


def test_groups_find_their_partition_by_load_or_by_name(analysed: AnalysedRuns) -> None:
    """The analysis learns a group's offsets partition from a load of the group, or computes it.

    The trace of `g` has a row `group_loaded`, which contains the partition. The trace of group-1
    has no such row, so its partition follows from its name: the hash gives partition 2 of 3.
    """
    assert _rows(analysed.table("crash", "groups", "group"), "partition", "consumers") == {
        "group-1": [OFFSETS_2, 2]
    }
    assert _rows(analysed.table("pause", "groups", "group"), "partition", "consumers") == {
        "g": ["__consumer_offsets-0", 1]
    }


def test_interrupted_runs_end_with_their_last_event(analysed: AnalysedRuns) -> None:
    """A complete run ends when its stage `stopping` begins.

    `pause` has no such stage, so its end is the time of its last event, 33 s. Its folder has an odd
    name, which Spark must not take for a pattern of file names or for a column.
    """
    columns = ("steady_us", "end_us", "completed")
    assert _rows(analysed.table("crash", "runs", "run"), *columns) == {
        "crash/1": [10_000_000, 40_000_000, True]
    }
    assert _rows(analysed.table("pause", "runs", "run"), *columns) == {
        "own [x] {y}=1+1/1": [0, 33_000_000, False]
    }


def test_bad_rows_and_files_are_set_aside_and_counted(analysed: AnalysedRuns) -> None:
    """Unusable rows are counted by reason, unusable files are named; all else is analysed.

    The run `broken` has two good rows. `_broken_run` in tests/support/worlds/analysed_runs.py
    writes the unusable rows and files.
    """
    summary = analysed.summaries["broken"]
    assert summary.bad_rows == (("no kind", 1), ("no time_us", 1), ("unknown kind", 2))
    assert [problem.split(":")[0] for problem in summary.unreadable] == [
        ".part-1.parquet.unfinished",
        "torn.parquet",
    ]
    assert summary.events == 2
    assert not summary.faults
    bad_rows_by_seq = analysed.table("broken", "bad_rows", "seq")
    # `_broken_run` gave the row with seq 3 a kind that does not exist.
    assert _rows(bad_rows_by_seq, "reason", "kind")[3] == ["unknown kind", "no_such_kind"]
    assert not analysed.table("crash", "bad_rows", "seq")


def test_empty_run_has_every_table_without_rows(analysed: AnalysedRuns) -> None:
    """A run may end before its first row, and readers of the tables need no special case for it."""
    for name in TABLE_NAMES:
        assert read_table(analysed.directories["empty"], name) == [], name
    summary = analysed.summaries["empty"]
    assert (summary.events, summary.completed, summary.faults) == (0, False, ())


def test_analysis_leaves_only_the_tables(analysed: AnalysedRuns) -> None:
    """The temporary folder in which the tables were computed is removed."""
    names = sorted(path.name for path in analysed.directories["crash"].iterdir())
    assert names == ["events", "manifest.json", "tables"]


def test_summary_of_a_crash_has_lines_for_its_phases_and_gaps(analysed: AnalysedRuns) -> None:
    """A line has a measure's name, and then: samples, missing, median, p90, p99, maximum.

    A percentile is empty if there are too few samples. The median of two values is the lower value.
    The two members noticed the fault after 27 and 30 ms. The clocks of the machines differ by up to
    40 ms, as the manifest says, so the line `notice` has `< 40 ms`.
    """
    fault = analysed.fault("crash", "f1")
    assert fault.rows("broker") == (
        ("detect", "1", "", "7.70 s", "", "", "7.70 s"),
        ("publish", "1", "", "60 ms", "", "", "60 ms"),
        ("load wait", "1", "", "2 ms", "", "", "2 ms"),
        ("load", "1", "", "20 ms", "", "", "20 ms"),
        ("records read", "1", "", "300", "", "", "300"),
        ("bytes read", "1", "", "24,000", "", "", "24,000"),
    )
    assert fault.rows("client") == (
        ("notice", "2", "", "< 40 ms", "", "", "< 40 ms"),
        ("rediscover", "2", "", "7.75 s", "", "", "7.97 s"),
        ("accept", "2", "", "100 ms", "", "", "125 ms"),
        ("join", "1", "1", "80 ms", "", "", "80 ms"),
        ("sync", "1", "1", "9 ms", "", "", "9 ms"),
        ("lookups", "2", "", "1", "", "", "4"),
        ("stale answers", "2", "", "0", "", "", "2"),
    )
    assert fault.rows("gap") == (
        ("commit gap", "1", "1", "7.90 s", "", "", "7.90 s"),
        ("processing gap", "2", "1", "150 ms", "", "", "8.00 s"),
        ("no coordinator", "1", "", "7.78 s", "", "", "7.78 s"),
    )
    assert [rebalance.headline for rebalance in fault.rebalances] == [
        "1 rebalance: join of m1-new",
        "1 rebalance: leave of consumer-0",
    ]
    assert (fault.partitions_moved, fault.members) == (1, 2)
    # consumer-0 kept its member id (`members_kept_id`) and its generation (`members_kept`).
    assert (fault.members_kept, fault.members_kept_id) == (1, 1)
    # No member gave the old coordinator up after timeouts of commits, and the old coordinator,
    # which was dead, named itself to no member.
    assert fault.left_after == ()
    assert fault.told_by_old == 0


def test_summary_of_two_faults_keeps_them_apart(analysed: AnalysedRuns) -> None:
    """Faults are in the order of time, each with its own figures.

    The member kept its generation over the first fault, and had no generation after the second. The
    manifest of `pause` lacks its end, and with it the clocks' error, which then counts as 0.
    """
    summary = analysed.summaries["pause"]
    assert [fault.fault for fault in summary.faults] == ["f1", "f2"]
    assert [fault.members_kept for fault in summary.faults] == [1, 0]
    assert summary.clock_error_us == 0


def test_each_value_of_a_metric_has_a_row_with_null_for_nan(analysed: AnalysedRuns) -> None:
    """A metric without a value, such as the longest load of a broker that loaded nothing, is null.

    Kafka itself reports NaN for such a metric.
    """
    rows = analysed.table("crash", "metrics", "node", "incarnation", "sampled_us", "metric")
    assert {key: row["value"] for key, row in rows.items()} == {
        ("broker-0", 0, 5_000_000, "NumGroups"): 0,
        ("broker-0", 0, 5_000_000, "offset-commit-rate"): 0,
        ("broker-0", 0, 5_000_000, "partition-load-time-max"): None,
        ("broker-0", 0, 5_000_000, "PartitionCount"): 6,
        ("broker-0", 0, 5_000_000, "IsrShrinksPerSec.OneMinuteRate"): 0.016667,
        ("broker-0", 0, 25_000_000, "NumGroups"): 1,
        ("broker-0", 0, 25_000_000, "offset-commit-rate"): 0.25,
        ("broker-0", 0, 25_000_000, "partition-load-time-max"): 20,
        ("broker-2", 1, 31_000_000, "NumGroups"): 0,
        ("controller-100", 0, 31_000_000, "FencedBrokerCount"): 1,
    }
