"""The tables group_states, messages, verdicts and figures against traces worked out by hand.

The files traces/talk.txt and traces/crash.txt have the events of two runs, with times in seconds
and comments. To see why a test expects its rows, read the trace beside it. In `talk` broker-1
coordinates group g until 40 s, and then broker-2 does. The fault crash-0 kills the member c-1 at
20 s. A third trace, `crowd`, is so long that tests/support/worlds/crowd.py makes it.

`analysed.table` reads a table as a dict. Its last arguments are the columns that become the key:

    analysed.table("talk", "verdicts", "check")
    -> {("fencing",): {"outcome": "nothing_seen", ...}, ("ownership",): {...}}
"""

import pytest

from tests.support.builders.trace_builder import read_table
from tests.support.worlds.analysed_runs import AnalysedRuns
from tests.support.worlds.crowd import CLIENTS, PER_CLIENT

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

PREPARING, COMPLETING = "PreparingRebalance", "CompletingRebalance"
REBALANCING, UNAVAILABLE = "REBALANCE_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE"


def test_group_states_follow_the_group_on_each_coordinator(analysed: AnalysedRuns) -> None:
    """A state ends with the next state, the unload, the broker's death or the run's end.

    The number of members is that at the beginning of the state: three at 20.51 s, when c-2 joins,
    and two at 30 s, when c-1 has been removed. At 46.2 s broker-2 loads the group after a restart.
    The trace does not tell how many members were loaded. So the number is None until the next
    generation is Stable. At 48.5 s broker-2 unloads the group, and until 49 s the group has no
    state.
    """
    rows = read_table(analysed.directories["talk"], "group_states")
    columns = ("leader_epoch", "state", "generation", "members", "from_us", "to_us", "length_us")
    states: dict[object, list[object]] = {}
    for row in sorted(rows, key=lambda row: row["from_us"]):
        assert (row["group"], row["partition"]) == ("g", "__consumer_offsets-0")
        # The incarnation counts the lives of the broker's process, from 0.
        coordinator = (row["broker"], row["incarnation"])
        states.setdefault(coordinator, []).append([row[column] for column in columns])
    assert states == {
        ("broker-1", 0): [
            [1, PREPARING, 0, 1, 1_000_000, 4_000_000, 3_000_000],
            [1, COMPLETING, 1, 2, 4_000_000, 4_100_000, 100_000],
            [1, "Stable", 1, 2, 4_100_000, 20_510_000, 16_410_000],
            [1, PREPARING, 1, 3, 20_510_000, 30_000_000, 9_490_000],
            [1, COMPLETING, 2, 2, 30_000_000, 30_200_000, 200_000],
            [1, "Stable", 2, 2, 30_200_000, 40_000_000, 9_800_000],
            [1, "Dead", 2, 0, 40_000_000, 40_000_000, 0],
        ],
        ("broker-2", 0): [[2, "Stable", 2, 2, 40_200_000, 45_000_000, 4_800_000]],
        ("broker-2", 1): [
            [3, "Stable", 2, None, 46_200_000, 47_000_000, 800_000],
            [3, PREPARING, 2, None, 47_000_000, 48_000_000, 1_000_000],
            [3, COMPLETING, 3, None, 48_000_000, 48_500_000, 500_000],
            [3, "Stable", 3, 1, 49_000_000, None, 1_000_000],
        ],
    }
    causes = {row["from_us"]: row["cause"] for row in rows}
    assert causes[4_000_000] == "initial rebalance delay over"
    assert causes[40_200_000] is None  # broker-2 loaded the group in this state


def test_messages_around_a_fault_include_waiting_and_unanswered_ones(
    analysed: AnalysedRuns,
) -> None:
    """The table has a window: from 1 s before the fault to 1 s after the group is stable again.

    Here the window is from 19 s to 31.2 s. A row is a request with its answer, and has four times:
    the sender sends (`sent_us`), the receiver receives, the receiver answers, and the sender's wait
    ends (`ended_us`). A time is None if the trace does not have it.

    - The commit sent at 18.5 s belongs to the window, because its answer comes within the window.
    - The JoinGroups of c-0 and c-2 wait until the session of c-1 ends at 30 s.
    - The heartbeat of c-1 is answered at 20.001 s, but c-1 is dead by then, so its wait never ends.
    - The second lookup of c-3 seems to arrive before it is sent, because the clocks of the two
      machines differ.
    """
    rows = analysed.table("talk", "messages", "from_node", "api", "sent_us")
    columns = ("correlation_id", "received_us", "answered_us", "ended_us", "outcome")
    exchanges = {key: [row[column] for column in columns] for key, row in rows.items()}
    assert exchanges == {
        ("c-0", "OffsetCommit", 18_500_000): [3, None, None, 19_300_000, "NONE"],
        ("c-0", "OffsetCommit", 20_600_000): [4, None, None, 20_620_000, "NONE"],
        ("c-0", "Heartbeat", 21_200_000): [2, 21_210_000, 21_210_000, 21_220_000, REBALANCING],
        ("c-0", "JoinGroup", 22_000_000): [6, 22_010_000, 30_010_000, 30_020_000, "NONE"],
        ("c-0", "SyncGroup", 30_300_000): [8, None, None, 30_310_000, "NONE"],
        ("c-0", "SyncGroup", 31_200_000): [9, None, None, 31_400_000, "NONE"],
        ("c-1", "Heartbeat", 19_999_000): [9, 20_000_000, 20_001_000, None, "no answer"],
        ("c-2", "JoinGroup", 20_500_000): [2, 20_510_000, 30_010_000, 30_020_000, "NONE"],
        ("c-3", "FindCoordinator", 25_000_000): [0, None, None, 25_010_000, UNAVAILABLE],
        ("c-3", "FindCoordinator", 25_200_000): [2, 25_199_000, None, 25_220_000, "NONE"],
        ("c-3", "FindCoordinator", 25_300_000): [3, None, None, 25_320_000, "NONE"],
        ("c-3", "FindCoordinator", 26_000_000): [2, 26_010_000, None, 26_020_000, "DISCONNECTED"],
        ("admin-0", "OffsetFetch", None): [0, 27_000_000, 27_010_000, None, "no answer"],
        ("broker-0", "Fetch", 19_400_000): [7, 19_410_000, 19_900_000, 19_910_000, "NONE"],
    }
    assert {row["fault"] for row in rows.values()} == {"crash-0"}


def test_equal_messages_are_one_row_unless_they_change_the_group(
    analysed: AnalysedRuns,
) -> None:
    """Three equal commits are one row; each SyncGroup, which changes the group, has its own row.

    Two lookups with answers that name different coordinators are two rows, too.
    """
    rows = analysed.table("talk", "messages", "from_node", "api", "sent_us")
    # `purpose` is what the sender uses the connection for. `named` is the coordinator that the
    # answer names. A row stands for `repeats` equal requests; their last answer came at
    # `last_ended_us`.
    columns = ("to_node", "purpose", "member", "named", "repeats", "last_ended_us")
    exchanges = {key: [row[column] for column in columns] for key, row in rows.items()}
    commit = exchanges["c-0", "OffsetCommit", 20_600_000]
    assert commit == ["broker-1", "coordinator", "c-0-a", None, 3, 30_030_000]
    lookups = [
        exchanges["c-3", "FindCoordinator", sent_us]
        for sent_us in (25_000_000, 25_200_000, 25_300_000)
    ]
    assert lookups == [
        ["broker-0", "bootstrap", None, None, 2, 25_110_000],
        ["broker-0", "client", None, "broker-1", 1, 25_220_000],
        ["broker-0", "client", None, "broker-2", 1, 25_320_000],
    ]
    *_, repeats, last_ended_us = exchanges["c-1", "Heartbeat", 19_999_000]
    assert (repeats, last_ended_us) == (1, None)  # c-1 died before the answer came
    assert exchanges["admin-0", "OffsetFetch", None] == ["broker-1", None, None, None, 1, None]


def test_messages_of_many_clients_are_bounded_to_whole_exchanges(analysed: AnalysedRuns) -> None:
    """The table keeps at most 400 requests around a fault, and takes one client after the other.

    In this trace each of 150 clients sends the same four requests. c-077 sends two requests more: a
    JoinGroup that is refused, before its other JoinGroup, and a LeaveGroup at the end.

    The table begins with the clients that sent the first request of some kind and outcome. c-000
    sent the first of each usual request, and c-077 the only two others. All other clients follow in
    the order of their names, until the table is full.
    """
    rows = read_table(analysed.directories["crowd"], "messages")
    assert len(rows) == 400
    assert CLIENTS * PER_CLIENT + 2 > 400, "the trace has more requests than the table may have"
    requests_of_client: dict[str, list[tuple[str, str]]] = {}
    for row in sorted(rows, key=lambda row: row["sent_us"]):
        requests_of_client.setdefault(row["from_node"], []).append((row["api"], row["outcome"]))
    usual = [
        ("Heartbeat", "DISCONNECTED"),
        ("FindCoordinator", "NONE"),
        ("JoinGroup", "NONE"),
        ("Heartbeat", "NONE"),
    ]
    refused, left = ("JoinGroup", "NOT_COORDINATOR"), ("LeaveGroup", "NONE")
    assert requests_of_client.pop("c-077") == [*usual[:2], refused, *usual[2:], left]
    # 400 rows = 6 of c-077 + 4 of each of 98 other clients + 2 of the next client.
    complete = [client for client, requests in requests_of_client.items() if requests == usual]
    assert complete == [f"c-{index:03}" for index in range(99) if index != 77]
    cut_short = [
        requests for client, requests in requests_of_client.items() if client not in complete
    ]
    assert cut_short == [usual[:2]]


def test_messages_of_a_trace_without_messages_are_none(analysed: AnalysedRuns) -> None:
    """A run with --no-trace records failed requests, but no other messages."""
    assert read_table(analysed.directories["pause"], "messages") == []


def test_verdicts_list_the_checks_with_their_run(analysed: AnalysedRuns) -> None:
    """The table has a row for each check in the run's results.json.

    The check `ownership` has three findings, although results.json lists only one of them, as an
    example. The seed of the run is 11.
    """
    rows = analysed.table("talk", "verdicts", "check")
    columns = ("outcome", "findings", "note", "verdict", "runtime", "seed", "experiment")
    of_run = ["violated", "ray", 11, "talk"]  # the last four columns, equal in each row of a run
    assert {key: [row[column] for column in columns] for key, row in rows.items()} == {
        ("fencing",): ["nothing_seen", 0, "no epoch moved", *of_run],
        ("ownership",): ["violated", 3, "", *of_run],
    }


@pytest.mark.parametrize(
    ("run", "verdict"),
    [("pause", None), ("crash", None), ("stuck", "unknown")],
    ids=["torn manifest", "no results", "no checks"],
)
def test_verdicts_of_a_run_without_checks_are_one_row_of_nulls(
    analysed: AnalysedRuns, run: str, verdict: str | None
) -> None:
    """The row of nulls lets a query over many runs count the runs without a verdict."""
    (row,) = read_table(analysed.directories[run], "verdicts")
    assert row.pop("run") == analysed.summaries[run].run
    assert row.pop("verdict") == verdict
    assert set(row.values()) == {None}


def test_percentiles_of_a_crash_are_null_without_enough_samples(
    analysed: AnalysedRuns,
) -> None:
    """Two members are enough for a median (p50), but not for p90 and p99.

    The median of two values is the lower one. Only one of the two members had to join again, so
    `join` has one sample, and one is missing.
    """
    rows = analysed.table("crash", "figures", "measure")
    columns = ("chain", "is_time", "samples", "missing", "p50", "p90", "p99", "max")
    figures = {key[0]: [row[column] for column in columns] for key, row in rows.items()}
    no_p90_p99 = [None, None]
    assert figures["detect"] == ["broker", True, 1, 0, 7_700_000, *no_p90_p99, 7_700_000]
    assert figures["bytes read"] == ["broker", False, 1, 0, 24_000, *no_p90_p99, 24_000]
    assert figures["rediscover"] == ["client", True, 2, 0, 7_748_000, *no_p90_p99, 7_970_000]
    assert figures["join"] == ["client", True, 1, 1, 80_000, *no_p90_p99, 80_000]
    assert figures["longest wait"] == ["client", True, 0, 2, None, *no_p90_p99, None]
    assert figures["processing gap"] == ["gap", True, 2, 1, 150_000, *no_p90_p99, 8_000_000]
    assert {(row["fault"], row["kind"]) for row in rows.values()} == {("f1", "crash")}
