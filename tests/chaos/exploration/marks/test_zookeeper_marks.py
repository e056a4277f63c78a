"""Coverage marks of groups that coordinate over ZooKeeper.

A mark is the name of a rare situation that a run may reach. As in test_marks, each mark has a
"story" here: a short list of trace rows whose last row reaches the mark. Most functions below make
one row of a story. The docstring of such a function says what has happened when the row is written.

The stories are about the group `old`, whose consumers C0 and C1 coordinate over the ZooKeeper
servers S1 and S2. To own its share of the partitions, a consumer makes an attempt: it reads the
list of members (its "view"), computes its share, and claims each partition by creating an owner
node in ZooKeeper.

In rows of ZooKeeper the column `offset` has the number of a transaction (zxid). Ids such as ZK-38
are rules of docs/kafka/ZOOKEEPER_CONSUMER.md.
"""

import pytest

from chaos.checkers.context import CheckContext, ZooKeeperGroupExpectation
from chaos.exploration.marks.registry import MARKS, ZOOKEEPER_MARKS, CoverageMarks, expected_marks
from protocol.causes import PositionCause
from protocol.trace import TraceKind
from tests.support.builders.rows import Columns, Rows

CONTEXT = CheckContext(
    zookeeper_groups={
        "old": ZooKeeperGroupExpectation(consumers=("consumer-old-0", "consumer-old-1"))
    },
    in_virtual_time=True,
)
S1, S2, C0, C1 = "zookeeper-1", "zookeeper-2", "consumer-old-0", "consumer-old-1"
OWNER = "/consumers/old/owners/orders/0"
"""Path of the owner node of orders-0."""
OFFSET = "/consumers/old/offsets/orders/0"
"""Path of the node with the committed offset of orders-0."""

StoryRow = tuple[float, str, TraceKind, Columns]
"""Seconds, node, kind and columns of a row."""


def txn(time_s: float, session: str, op: str, *, zxid: int, **detail: object) -> StoryRow:
    """S1 applies a transaction of a session."""
    columns: Columns = {"offset": zxid, "detail": {"session": session, "op": op, **detail}}
    return (time_s, S1, TraceKind.ZOOKEEPER_TXN_APPLIED, columns)


def connection_state(time_s: float, new_state: str, server: str = S1) -> StoryRow:
    """C0's connection gets another state. C0 has seen transactions up to zxid 5."""
    detail: dict[str, object] = {"session": "0x1", "state": new_state}
    columns: Columns = {"peer": server, "offset": 5, "detail": detail}
    return (time_s, C0, TraceKind.ZOOKEEPER_CLIENT_STATE, columns)


def step(time_s: float, node: str, kind: TraceKind, **detail: object) -> StoryRow:
    """A consumer has taken a step of its attempt. `kind` says which step."""
    return (time_s, node, kind, {"group": "old", "member": f"m{node[-1]}", "detail": detail})


def consumed(time_s: float) -> StoryRow:
    """C0 processes the record at offset 4 of orders-0."""
    detail: dict[str, object] = {"count": 1, "last": 4}
    columns: Columns = {"group": "old", "partition": "orders-0", "offset": 4, "detail": detail}
    return (time_s, C0, TraceKind.RECORDS_CONSUMED, columns)


def view(time_s: float, node: str, *members: str, zxid: int) -> StoryRow:
    """A consumer computes its share from these members. Its list of members is of `zxid`."""
    detail: dict[str, object] = {"members": members, "partitions": ["orders-0"]}
    columns: Columns = {"group": "old", "member": "m", "offset": zxid, "detail": detail}
    return (time_s, node, TraceKind.ZOOKEEPER_VIEW, columns)


def attempt_ended(time_s: float, *, done: bool, cause: str | None = None) -> StoryRow:
    """An attempt of C0 ends: with its share claimed (`done`), or with a failure (`cause`)."""
    detail: dict[str, object] = {"attempt": 0, "done": done, "conflicts": 0}
    columns: Columns = {"group": "old", "member": "m0", "detail": detail, "cause_text": cause}
    return (time_s, C0, TraceKind.ZOOKEEPER_ATTEMPT_ENDED, columns)


def event_received(time_s: float, zxid: int) -> StoryRow:
    """C0 gets an event. `zxid` is the newest transaction that C0 has seen."""
    detail: dict[str, object] = {"type": "NodeChildrenChanged", "path": "/consumers/old/ids"}
    return (time_s, C0, TraceKind.ZOOKEEPER_EVENT_RECEIVED, {"offset": zxid, "detail": detail})


def server_state(time_s: float, new_state: str, epoch: int | None) -> StoryRow:
    """S1 changes its state in the ensemble. The leader has `epoch`, or is missing (None)."""
    columns: Columns = {"leader_epoch": epoch, "detail": {"state": new_state}}
    return (time_s, S1, TraceKind.ZOOKEEPER_STATE, columns)


def committed_position(time_s: float, offset: int) -> StoryRow:
    """C0 begins to read orders-0 at a committed offset."""
    columns: Columns = {"group": "old", "partition": "orders-0", "offset": offset}
    return (time_s, C0, TraceKind.POSITION_RESET, {**columns, "cause": PositionCause.COMMITTED})


def gave_up(during: str) -> tuple[StoryRow, ...]:
    """Return a story of one row: C0 gives up after its fourth and last attempt."""
    return (step(1, C0, TraceKind.ZOOKEEPER_GAVE_UP, attempts=4, during=during),)


# The sessions are 0x1 of C0, and 0x2 of C1.
BOTH_HAVE_SESSIONS = (
    txn(0, "0x1", "createSession", zxid=1),
    txn(0, "0x2", "createSession", zxid=2),
)
C0_COMMITTED_20 = (
    *BOTH_HAVE_SESSIONS,
    txn(1, "0x1", "create", zxid=3, path=OFFSET, data="20", ephemeral=False),
)
STORIES: dict[str, tuple[StoryRow, ...]] = {
    "gave_up_starting": gave_up("starting"),
    "gave_up_running": gave_up("running"),
    # C0 processes a record more than a second after the end of its session.
    "processed_without_a_session": (
        *BOTH_HAVE_SESSIONS,
        connection_state(1, "SyncConnected"),
        txn(2, "0x1", "closeSession", zxid=3),
        consumed(3.5),
    ),
    # Two consumers compute from different lists of members.
    "views_apart": (view(1, C0, "m0", zxid=7), view(2, C1, "m0", "m1", zxid=7)),
    # S1 has applied a transaction, and S2 notifies C0 of it 0.2 s later. It does not matter what
    # the transaction has changed.
    "heard_late": (
        txn(1, "0x1", "error", zxid=3),
        (
            1.2,
            S2,
            TraceKind.ZOOKEEPER_WATCH_FIRED,
            {"peer": C0, "offset": 3, "detail": {"type": "NodeDeleted", "path": "/x"}},
        ),
    ),
    # C0 reads the list of members. When it then reads the node of m1, this node is gone.
    "member_vanished_between_reads": (
        attempt_ended(1, done=False, cause="NoNode /consumers/old/ids/m1"),
    ),
    # C0's claim fails because of an owner node of C1, whose process is dead.
    "owner_was_dead": (
        step(1, C1, TraceKind.ZOOKEEPER_ATTEMPT_STARTED, attempt=0),
        (2, "driver", TraceKind.NODE_KILLED, Columns(peer=C1)),
        step(3, C0, TraceKind.ZOOKEEPER_CLAIM_CONFLICT, owner="m1-0"),
    ),
    # The session of C1 deletes the owner node of C0.
    "owner_node_of_another_deleted": (
        *BOTH_HAVE_SESSIONS,
        txn(1, "0x1", "create", zxid=3, path=OWNER, data="m0-0", ephemeral=True),
        txn(2, "0x2", "delete", zxid=4, path=OWNER),
    ),
    # C1 commits offset 9, although C0 has committed 20.
    "offset_set_back_in_zookeeper": (
        *C0_COMMITTED_20,
        txn(2, "0x2", "setData", zxid=4, path=OFFSET, data="9"),
    ),
    "session_at_another_server": (
        connection_state(1, "SyncConnected"),
        connection_state(2, "Disconnected"),
        connection_state(3, "SyncConnected", server=S2),
    ),
    # The event comes 0.01 s after the connection, so the change happened before the connection.
    "event_at_reconnection": (connection_state(1, "SyncConnected"), event_received(1.01, zxid=5)),
    # An attempt ends, and the next one begins at the same time.
    "change_within_a_rebalance": (
        attempt_ended(1, done=True),
        step(1, C0, TraceKind.ZOOKEEPER_ATTEMPT_STARTED, attempt=0),
    ),
    # C0 begins to read at 9, although 20 is committed.
    "position_behind_a_commit": (
        *C0_COMMITTED_20,
        committed_position(2, offset=9),
        step(3, C0, TraceKind.PARTITIONS_ASSIGNED, partitions=["orders-0"]),
    ),
    "lost_with_its_session": (step(1, C0, TraceKind.PARTITIONS_LOST, partitions=["orders-0"]),),
    # The session expires at 1 s. A commit that began at 0.9 s ends at 2 s.
    "committed_after_an_expiry": (
        connection_state(1, "Expired"),
        (
            2,
            C0,
            TraceKind.ZOOKEEPER_OFFSET_COMMITTED,
            {"group": "old", "offset": 9, "detail": {"store": "kafka", "begun_us": 900_000}},
        ),
    ),
    "ensemble_elected_again": (
        server_state(1, "LEADING", epoch=1),
        server_state(2, "LEADING", epoch=2),
    ),
    # C0 processes a record while S1 looks for a leader.
    "group_without_an_ensemble": (
        server_state(1, "LEADING", epoch=1),
        server_state(2, "LOOKING", epoch=None),
        consumed(3),
    ),
}


def reached(story: tuple[StoryRow, ...]) -> tuple[str, ...]:
    """Return the marks that a story reaches."""
    marks = CoverageMarks(CONTEXT)
    rows = Rows(marks.observe)
    for time_s, node, kind, columns in story:
        rows.add(time_s, node, kind, **columns)
    return marks.reached()


def test_every_mark_of_zookeeper_has_a_story_and_a_description() -> None:
    """A story shows that its mark can be reached."""
    assert sorted(STORIES) == sorted(ZOOKEEPER_MARKS)
    assert all(MARKS[name] for name in ZOOKEEPER_MARKS)


@pytest.mark.parametrize("name", sorted(ZOOKEEPER_MARKS))
def test_mark_is_reached_by_the_last_row_of_its_story(name: str) -> None:
    """The rows before the last do not reach the mark, so the last row is needed."""
    assert name in reached(STORIES[name])
    assert name not in reached(STORIES[name][:-1])


def test_marks_of_zookeeper_are_expected_only_where_one_of_them_is_reached() -> None:
    """In a space (a set of experiments) without an ensemble no run can reach a mark of ZooKeeper.

    `expected_marks` takes the marks that a search has reached, and returns the marks that it should
    reach. It returns the marks of ZooKeeper only if the search has reached one of them. Of the two
    marks in this test, `heard_late` is a mark of ZooKeeper, and `two_owners` is not.
    """
    assert not set(ZOOKEEPER_MARKS) & set(expected_marks(["two_owners"]))
    assert set(ZOOKEEPER_MARKS) < set(expected_marks(["heard_late"]))


def test_rebalance_given_up_in_a_new_session_counts_as_that_of_a_running_consumer() -> None:
    """ZK-38: a running consumer only logs the exception, also in a new session.

    So a consumer that gives up in a new session counts as running, and not as starting.
    """
    assert "gave_up_running" in reached(gave_up("new session"))
    assert "gave_up_starting" not in reached(gave_up("new session"))
