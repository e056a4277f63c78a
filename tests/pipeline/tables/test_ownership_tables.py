"""Tables of owners, coordinators and rebalances, for two small split brains worked out by hand.

In a split brain two brokers coordinate a group at the same time. Each trace is a text file whose
lines are the events of a run, with times in seconds and comments. To see why a test expects its
rows, read the trace beside it.

- `traces/split.txt`: `broker-2`, the coordinator of group `g`, is cut off from the controller and
  `broker-0` at 10 s, and the cut is healed at 59.9 s. `c-0` and `c-1` stay with
  `broker-2` for a while; `c-2` and `c-3` join the new coordinator `broker-0` at 30 s.
- `traces/stuck.txt`: `broker-1`, the coordinator, is cut off from 10 s on, so it cannot store
  the assignment of a rebalance. The trace also shows ways in which a member ceases to own a
  partition: it is killed, it is stopped, it gets another assignment, the run ends.

Words of the tables:

- ownership: a time in which a member has a partition;
- tenure: a time in which a broker coordinates a partition of `__consumer_offsets`, in one leader
  epoch (the number of the partition's leadership);
- overlap: a time in which a partition has two owners, or two coordinators;
- `consumer`: the name of a member's process (`c-0`), which stays the same after a restart;
- `member`: the id that the coordinator gave to the member (`c-0-a`).

`analysed.table` reads a table as a dict. Its last arguments are the columns that become the key:

    analysed.table("split", "ownership", "partition", "consumer")
    -> {("t-0", "c-0"): {"generation": 1, "coordinator": "broker-2", ...}, ...}

(MEASURED_FAILOVER 4) in a docstring is section 4 of docs/kafka/MEASURED_FAILOVER.md.
"""

from collections.abc import Sequence

import pytest

from pipeline.in_memory.trace import TableRow
from tests.support.worlds.analysed_runs import AnalysedRuns

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

S = 1_000_000
"""Microseconds in a second: times in tables are microseconds."""


def _rows(
    table: dict[tuple[object, ...], TableRow], *columns: str
) -> dict[object, Sequence[object]]:
    """Return the values of `columns` of each row, by the row's key.

    A key of one column is not a tuple: `{("c-0",): {"commits": 2, ...}}` becomes `{"c-0": [2]}`.
    """
    return {
        key[0] if len(key) == 1 else key: [row[column] for column in columns]
        for key, row in table.items()
    }


def test_ownership_of_a_split_brain_names_its_coordinator_and_how_it_ended(
    analysed: AnalysedRuns,
) -> None:
    """The coordinator of an ownership is the broker that answered the member's SyncGroup.

    No SyncGroup of c-3 is traced, so the coordinator and its epoch are unknown (None).
    """
    rows = analysed.table("split", "ownership", "partition", "consumer")
    # `position` is where the member began to read: `committed`, `earliest` or `latest`.
    begin = ("member", "generation", "coordinator", "leader_epoch", "position", "start_offset")
    assert _rows(rows, *begin) == {
        ("t-0", "c-0"): ["c-0-a", 1, "broker-2", 0, "earliest", 0],
        ("t-1", "c-1"): ["c-1-a", 1, "broker-2", 0, None, None],
        ("t-1", "c-2"): ["c-2-a", 2, "broker-0", 1, "earliest", 0],
        ("t-0", "c-3"): ["c-3-a", 2, None, None, None, None],
    }
    end = ("from_us", "to_us", "length_us", "ended_by", "records")
    assert _rows(rows, *end) == {
        ("t-0", "c-0"): [4_120_000, 33 * S, 28_880_000, "revoked", 5],
        # c-1 loses t-1 3.1 s after the healing (59.9 s), when broker-2 no longer coordinates `g`.
        ("t-1", "c-1"): [4_120_000, 63 * S, 58_880_000, "lost", 30],
        # The run ends at 70 s, when its stage "stopping" begins. c-2 and c-3 still own their
        # partitions then, so to_us is None and length_us is counted to 70 s: 70 - 40.2 = 29.8 s.
        # That c-2 revokes t-1 at 70.1 s does not matter, because the run is over by then.
        ("t-1", "c-2"): [40_200_000, None, 29_800_000, "run end", 31],
        ("t-0", "c-3"): [40_300_000, None, 29_700_000, "run end", 4],
    }


def test_ownership_ends_with_its_process_and_not_with_a_pause(analysed: AnalysedRuns) -> None:
    """A member that is paused keeps its partitions, but a member whose process dies loses them.

    c-0 is paused twice: from 7 to 9 s, and from 9.5 s until the kill at 11 s. Both pauses count in
    `paused_us`: 2 + 1.5 s. The column `incarnation` counts the lives of a process, from 0.

    No row of the trace records the death of c-2. But the next life of c-2 starts at 20 s. So the
    life before is over by then, and the ownership ends at 20 s.
    """
    rows = analysed.table("stuck", "ownership", "group", "consumer", "partition", "from_us")
    columns = ("incarnation", "to_us", "ended_by", "paused_us")
    assert _rows(rows, *columns) == {
        # The assignment at 6 s begins a new ownership of t-0; the ownership of t-1 goes on.
        ("g", "c-0", "t-0", 5 * S): [0, 6 * S, "reassigned", 0],
        ("g", "c-0", "t-1", 5 * S): [0, 11 * S, "killed", 3_500_000],
        ("g", "c-0", "t-0", 6 * S): [0, 11 * S, "killed", 3_500_000],
        ("g", "c-0", "t-0", 13 * S): [1, None, "run end", 0],
        ("g", "c-1", "t-5", 5 * S): [0, 8 * S, "stopped", 0],
        ("g", "c-2", "t-6", 5 * S): [0, 20 * S, "killed", 0],
        # c-4 and c-5 are assigned t-7 at once, and both own it until the run ends.
        ("g", "c-4", "t-7", 36 * S): [0, None, "run end", 0],
        ("g", "c-5", "t-7", 36 * S): [0, None, "run end", 0],
        ("h", "d-0", "t-0", 5 * S): [0, None, "run end", 0],
    }


def test_ownership_overlap_counts_records_that_both_processed_in_it(analysed: AnalysedRuns) -> None:
    """c-1 and c-2 both process offsets 0 to 29 of t-1, but only 20 to 29 while both own it.

    c-2 becomes the second owner at 40.2 s. By then c-1 has processed offsets 0 to 19, at 6 s.
    """
    overlaps = analysed.table("split", "ownership_overlaps", "partition")
    row = overlaps[("t-1",)]
    row.pop("run")  # `analysed.table` has already checked this column
    assert row == {
        "group": "g",
        "partition": "t-1",
        "from_us": 40_200_000,
        "to_us": 63 * S,
        "length_us": 22_800_000,
        "first_consumer": "c-1",
        "first_member": "c-1-a",
        "first_generation": 1,
        "first_coordinator": "broker-2",
        "first_epoch": 0,
        "second_consumer": "c-2",
        "second_member": "c-2-a",
        "second_generation": 2,
        "second_coordinator": "broker-0",
        "second_epoch": 1,
        "records_both": 10,  # offsets 20 to 29
        "fault": "cut-0",
        "healed_us": 59_900_000,  # when the cut was healed, to compare with `to_us`
    }


def test_ownership_overlap_that_never_ends_lasts_to_the_end_of_the_run(
    analysed: AnalysedRuns,
) -> None:
    """c-4 and c-5 own t-7 from 36 s to the run's end at 40 s: the table has one row for both.

    Both are assigned t-7 in the same microsecond, so the order of the two owners is arbitrary.
    There must not be a second row in the other order.

    c-0 and d-0 own t-0 at the same time, which is no overlap, because d-0 belongs to another group.
    """
    rows = analysed.table("stuck", "ownership_overlaps", "partition")
    owners = ("first_consumer", "second_consumer")
    assert _rows(rows, *owners, "to_us", "length_us", "records_both", "healed_us") == {
        # The last three values: the overlap lasts 4 s, both members process one record (offset 1),
        # and the fault is never healed.
        "t-7": ["c-4", "c-5", None, 4 * S, 1, None],
    }


def test_processing_distinguishes_repeated_from_shared_records(analysed: AnalysedRuns) -> None:
    """`repeated` counts records that any member of the group had processed before.

    `shared` counts records that two members processed while both owned the partition.

    c-3 processes offsets 3 to 6 of t-0. c-0 had processed 3 and 4 before, so two are repeated. c-0
    had revoked t-0 before c-3 got it, so none is shared.
    """
    rows = analysed.table("split", "processing", "partition", "consumer")
    columns = ("records", "first_offset", "last_offset", "repeated", "shared")
    assert _rows(rows, *columns) == {
        ("t-0", "c-0"): [5, 0, 4, 0, 0],
        ("t-0", "c-3"): [4, 3, 6, 2, 0],
        ("t-1", "c-1"): [30, 0, 29, 0, 10],
        ("t-1", "c-2"): [31, 0, 30, 30, 10],
    }
    # In the run "stuck", c-4 processes offset 1 twice. The second time counts as repeated. Then c-5
    # processes offset 1, which counts as repeated by c-5.
    rows = analysed.table("stuck", "processing", "consumer")
    assert _rows(rows, "records", "repeated", "shared") == {"c-4": [3, 1, 1], "c-5": [1, 1, 1]}


def test_tenure_overlap_counts_heartbeats_and_commits_of_each_coordinator(
    analysed: AnalysedRuns,
) -> None:
    """The cut-off coordinator still answers heartbeats; the new coordinator stores commits.

    The overlap begins at 17.7 s. Only later answers count as `older_heartbeats`: the answer to c-0
    at 18.1 s, and the answer to c-1 at 33.1 s. The answer to c-0 at 10.2 s does not count.
    """
    overlaps = analysed.table("split", "tenure_overlaps", "partition")
    row = overlaps[("__consumer_offsets-0",)]
    row.pop("run")  # `analysed.table` has already checked this column
    assert row == {
        "partition": "__consumer_offsets-0",
        "groups": ["g"],
        "older_broker": "broker-2",
        "older_epoch": 0,
        "older_incarnation": 0,
        "newer_broker": "broker-0",
        "newer_epoch": 1,
        "newer_incarnation": 0,
        "fault": "cut-0",
        "from_us": 17_700_000,  # broker-0 has loaded the partition
        "to_us": 60_500_000,  # broker-2 has unloaded it
        "length_us": 42_800_000,
        "older_end": "unloaded",  # how the older tenure ended
        "older_paused_us": 0,
        "older_cut_us": 42_100_000,  # 17.7 to 59.8 s, when the healing of the cut began
        "older_heartbeats": 2,
        "newer_heartbeats": 0,
        "older_commits": 0,
        "newer_commits": 1,
        # The two columns `_in_all` count the whole tenures, not only the overlap.
        "older_commits_in_all": 1,
        "newer_commits_in_all": 1,
        "older_last_commit_us": 5 * S,
        "newer_first_commit_us": 20_800_000,
    }


def test_tenures_count_acknowledged_commits_and_the_time_cut_off(analysed: AnalysedRuns) -> None:
    """A tenure counts the commits that the coordinator appended to its log, each of them once.

    Three appends happen in epoch 0, and one of them counts. The append at 5 s stores the offsets of
    two partitions, which is one commit. The append at 6 s failed. The append at 7 s stored the
    group's metadata and no offsets.

    The nodes that a cut names in `from` are the ones that it cuts off, here broker-2. So the tenure
    of broker-2 (epoch 0) has a time cut off. broker-0 is named in `to`, the other end of the links.
    So the tenure of broker-0 (epoch 1) has no time cut off.
    """
    rows = analysed.table("split", "coordinator_tenures", "leader_epoch")
    assert _rows(rows, "commits", "first_commit_us", "last_commit_us") == {
        0: [1, 5 * S, 5 * S],
        1: [1, 20_800_000, 20_800_000],
    }
    columns = ("cut_us", "cut_from_us", "cut_to_us", "paused_us", "paused_from_us")
    assert _rows(rows, *columns) == {
        0: [49_600_000, 10_200_000, 59_800_000, 0, None],  # 59.8 - 10.2 = 49.6 s
        1: [0, None, None, 0, None],
    }


def test_cut_of_links_has_the_nodes_on_both_sides_and_its_time_in_force(
    analysed: AnalysedRuns,
) -> None:
    """A cut of links is in force from its row `fault_in_force` until its healing began.

    The row `fault_healed` is written at 59.9 s, when the healing is done. It names 59.8 s as the
    time at which the healing began.
    """
    rows = analysed.table("split", "faults", "fault")
    columns = ("node", "nodes", "from_nodes", "to_nodes", "in_force_us", "in_force_until_us")
    assert _rows(rows, *columns) == {
        "cut-0": [
            "broker-2",
            ["broker-2", "controller-100", "broker-0"],
            ["broker-2"],
            ["controller-100", "broker-0"],
            10_200_000,
            59_800_000,
        ]
    }


def test_client_phases_of_a_split_count_the_commits_that_timed_out(analysed: AnalysedRuns) -> None:
    """c-0 finds the cut broker again, so its commit times out a second time (MEASURED_FAILOVER 4).

    c-0 looks the coordinator up three times (`attempts`):

    1. broker-2 names itself: a stale answer, because it names the old coordinator, and also a
       "self answer";
    2. broker-1 names broker-2: a stale answer;
    3. broker-1 names broker-0, which is right.

    c-1 only sends heartbeats, which the cut broker answers. So c-1 notices nothing, and never looks
    the coordinator up.
    """
    rows = analysed.table("split", "client_phases", "consumer")
    columns = ("noticed_by", "attempts", "stale_answers", "self_answers", "commit_timeouts")
    assert _rows(rows, *columns) == {
        "c-0": ["REQUEST_TIMED_OUT", 3, 2, 1, 2],
        "c-1": [None, None, None, None, 0],
    }
    # `longest_wait_us` is the longest wait for an answer of the old coordinator. `late_heartbeats`
    # counts heartbeats that the old coordinator answered after the new one was active.
    waits = ("notice_us", "longest_wait_us", "late_heartbeats")
    assert _rows(rows, *waits) == {
        # c-0 notices the fault of 10 s when its commit times out at 15.1 s.
        "c-0": [5_100_000, 5_100_000, 1],
        "c-1": [None, 100_000, 1],
    }


def test_rebalance_names_joined_and_removed_members_and_its_reason(analysed: AnalysedRuns) -> None:
    """A member that leaves or expires before the rebalance completes is one of its removed members.

    The join of c-2 started the rebalance at 30 s. While the coordinator waits for the old members,
    c-0 leaves (33 s) and the session of c-1 expires (40 s). c-1 does not know this, because it
    stays with broker-2. It joins at broker-0 only at 63.1 s, as a new member.
    """
    rows = analysed.table("split", "rebalances", "started_us")
    causes = ("reason", "consumer", "client_reason", "leader_epoch", "new_generation")
    # The third rebalance has no new generation: the run ends before it completes.
    assert _rows(rows, *causes) == {
        1 * S: ["join", "c-0", None, 0, 1],
        30 * S: ["join", "c-2", None, 1, 2],
        63_100_000: ["join", "c-1", None, 1, None],
    }
    effects = ("removed", "removed_because", "added", "join_us", "sync_us", "length_us")
    assert _rows(rows, *effects) == {
        1 * S: [[], [], ["c-0", "c-1"], 3 * S, 100_000, 3_100_000],
        30 * S: [
            ["c-0", "c-1"],
            ["leave", "session expiry"],
            ["c-2", "c-3"],
            10 * S,
            100_000,
            10_100_000,
        ],
        63_100_000: [[], [], ["c-1"], None, None, None],
    }


def test_rebalances_that_cannot_store_an_assignment_are_marked(analysed: AnalysedRuns) -> None:
    """A coordinator that cannot append an assignment to its log begins another rebalance.

    The row of the first rebalance has the error of the append as its `store_error`. The row of the
    rebalance that follows has the reason `assignment not stored` (MEASURED_FAILOVER two-lineages).
    `stable_us` is the time at which the assignment was stored, None if it never was.
    """
    rows = analysed.table("stuck", "rebalances", "started_us", "reason")
    columns = ("generation", "new_generation", "store_error", "removed", "added", "stable_us")
    timed_out = "REQUEST_TIMED_OUT"
    assert _rows(rows, *columns) == {
        # This row has all changes of members since the generation before. The static member c-9 got
        # another member id at 12 s, but it is still a member: it is neither added nor removed.
        (16 * S, "join"): [1, 2, timed_out, [], ["c-1"], None],
        (21_500_000, "assignment not stored"): [2, 3, timed_out, [], [], None],
        # A leave starts the next rebalance in the microsecond in which generation 4 starts, so the
        # assignment of generation 4 is never stored.
        (26_600_000, "assignment not stored"): [3, 4, None, [], [], None],
        (26_700_000, "leave"): [4, 5, None, ["c-0"], [], 26_800_000],
        # The last member has left: no generation follows, and the next row does not list c-1 again.
        (30 * S, "session expiry"): [5, None, None, ["c-1"], [], None],
        (31 * S, "join"): [6, 7, None, [], ["c-3"], 34_100_000],
        # The run ends at 40 s, before this rebalance completes.
        (35 * S, "group too large"): [7, None, None, [], [], None],
    }
    # No member causes this rebalance: the coordinator starts it when it loads the group.
    assert rows[35 * S, "group too large"]["consumer"] is None


def test_commits_are_counted_by_coordinator_and_error(analysed: AnalysedRuns) -> None:
    """A failed commit counts once, even if it had two partitions.

    At 20.3 s a commit of t-0 and t-9 fails, and the trace has a row for each of the two. The commit
    that fails at 20.5 s was not sent to any broker, so its row has no coordinator.
    """
    rows = analysed.table("split", "commits", "fault", "coordinator", "error")
    assert _rows(rows, "consumer", "commits", "first_us", "last_us") == {
        (None, "broker-2", "NONE"): ["c-0", 1, 5 * S, 5 * S],
        ("cut-0", "broker-2", "REQUEST_TIMED_OUT"): ["c-0", 2, 15_100_000, 20_300_000],
        ("cut-0", None, "COORDINATOR_NOT_AVAILABLE"): ["c-0", 1, 20_500_000, 20_500_000],
        ("cut-0", "broker-0", "NONE"): ["c-0", 1, 20_800_000, 20_800_000],
    }


def test_summary_of_a_split_brain_has_both_sides(analysed: AnalysedRuns) -> None:
    """The summary repeats what the tables of this run say: the tests above explain its values."""
    summary = analysed.summaries["split"]
    [coordinators] = summary.coordinators
    assert (coordinators.older.broker, coordinators.older.heartbeats) == ("broker-2", 2)
    assert (coordinators.newer.broker, coordinators.newer.commits) == ("broker-0", 1)

    [owners] = summary.owners
    assert (owners.first_consumers, owners.second_consumers) == (("c-1",), ("c-2",))
    # A coordinator is a pair of the broker and its leader epoch.
    assert owners.first_coordinator == ("broker-2", 0)
    assert owners.second_coordinator == ("broker-0", 1)
    assert (owners.to_us, owners.healed_us, owners.records_both) == (63 * S, 59_900_000, 10)

    [processing] = summary.processing
    assert processing.records == 5 + 4 + 30 + 31  # c-0, c-3, c-1, c-2: the table `processing`
    assert processing.repeated == 2 + 30  # by c-3 and by c-2

    # Two commits of one member timed out, and one commit of one member was not sent.
    errors = [(row.error, row.commits, row.members) for row in summary.commit_errors]
    assert errors == [("REQUEST_TIMED_OUT", 2, 1), ("COORDINATOR_NOT_AVAILABLE", 1, 1)]

    fault = analysed.fault("split", "cut-0")
    assert [rebalance.headline for rebalance in fault.rebalances] == [
        "1 rebalance: join of c-2",
        "1 rebalance: join of c-1",
    ]
    assert fault.rebalances[0].after_us == 20 * S  # from the fault at 10 s to the join at 30 s
    # All of the following is about c-0. It noticed the fault by a timeout, and left the old
    # coordinator after two of its commits had timed out there: pairs of timeouts and members.
    assert fault.noticed_by == (("REQUEST_TIMED_OUT", 1),)
    assert fault.left_after == ((2, 1),)  # after two timeouts: one member
    # The old coordinator, broker-2, named itself as coordinator to one member.
    assert fault.told_by_old == 1
    # The cells of a measure: number of members with a value, number of members without one, median,
    # p90 and p99 (empty, because they need more members), maximum.
    cells_by_measure = {name: cells for name, *cells in fault.rows("client")}
    assert cells_by_measure["old named itself"] == ["1", "1", "1", "", "", "1"]
    assert cells_by_measure["timeouts at old"] == ["2", "", "0", "", "", "2"]


def test_summary_of_a_fault_that_moved_nothing_has_no_phases(analysed: AnalysedRuns) -> None:
    """The phases measure a change of coordinator, and the coordinator of `stuck` never changes."""
    fault = analysed.fault("stuck", "cut-0")
    assert fault.rows("broker") == ()
    assert fault.rows("client") == ()
    assert [row[0] for row in fault.rows("gap")] == ["processing gap"]
    assert fault.rebalance_count == 7  # the seven rows of the table `rebalances`, tested above
