"""The check *zookeeper* judges whether a ZooKeeper ensemble keeps its promises to its clients.

For example, all servers must apply the same transactions in the same order. A transaction is one
write, and its number is its zxid. The consumers of old Kafka versions rely on these promises: a
consumer claims a partition by the creation of a znode, the owner node. This znode is ephemeral,
which means that the end of the consumer's session removes it.

The tests write their traces by hand: the rows that servers and clients would have recorded. Ids
such as ZK-02 are rules of docs/kafka/ZOOKEEPER_CONSUMER.md, and the tests quote the words of these
rules.
"""

import pytest

from chaos.checkers.context import CheckContext, GroupExpectation, ZooKeeperGroupExpectation
from chaos.checkers.registry import CHECKERS, CheckSuite
from chaos.checkers.zookeeper import ZooKeeper
from protocol.trace import TraceKind
from results_schema.results import CheckOutcome, CheckReport
from tests.support.builders.rows import OFFSETS_0, Rows

CONTEXT = CheckContext(
    zookeeper_groups={"old": ZooKeeperGroupExpectation(consumers=("consumer-old-0",))},
    in_virtual_time=True,
)
S1, S2 = "zookeeper-1", "zookeeper-2"
C0 = "consumer-old-0"
OWNER = "/consumers/old/owners/orders/0"
"""Path of the znode by which a consumer of the group `old` claims the partition orders-0."""


class EnsembleRows:
    """Rows of an ensemble, 0.1 s apart. The checker observes each row when it is added."""

    def __init__(self, context: CheckContext = CONTEXT) -> None:
        self.checker = ZooKeeper(context)
        self._rows = Rows(self.checker.observe)
        self._time_s = 0.0

    def add(self, node: str, kind: TraceKind, **columns: object) -> None:
        """Add a row, 0.1 s after the last row."""
        self._time_s += 0.1
        self._rows.add(self._time_s, node, kind, **columns)  # type: ignore[arg-type]

    def apply_txn(self, server: str, op: str, path: str | None = None, *, zxid: int) -> None:
        """Let a server apply the transaction `zxid`, a write of the session 0x1.

        `op` is the kind of the write, such as "create". A node that is created or changed is the
        owner node of the consumer old_x-0. Its data is the name of this consumer.
        """
        detail: dict[str, object] = {"session": "0x1", "op": op}
        if path is not None:
            detail["path"] = path
        if op in ("create", "setData"):
            detail["data"] = "old_x-0"
        if op == "create":
            detail["ephemeral"] = True
        self.add(server, TraceKind.ZOOKEEPER_TXN_APPLIED, offset=zxid, detail=detail)

    def change_state(self, state: str, server: str | None, *, zxid: int) -> None:
        """Change the state of C0's connection to `server`.

        `zxid` is the newest transaction that C0 has seen.
        """
        detail: dict[str, object] = {"session": "0x1", "state": state}
        self.add(C0, TraceKind.ZOOKEEPER_CLIENT_STATE, peer=server, offset=zxid, detail=detail)

    def fire_watch(self, server: str, zxid: int) -> None:
        """Let the server notify C0 that the transaction `zxid` has changed what C0 watches."""
        detail: dict[str, object] = {"type": "NodeChildrenChanged", "path": "/consumers/old/ids"}
        self.add(server, TraceKind.ZOOKEEPER_WATCH_FIRED, peer=C0, offset=zxid, detail=detail)

    def deliver_event(self, server: str, zxid: int) -> None:
        """Deliver the event of a watch to C0.

        `zxid` is the newest transaction that C0 has seen in an answer before the event.
        """
        detail: dict[str, object] = {"type": "NodeChildrenChanged", "path": "/consumers/old/ids"}
        self.add(C0, TraceKind.ZOOKEEPER_EVENT_RECEIVED, peer=server, offset=zxid, detail=detail)

    def meet_owner(self, owner: str | None, zxid: int) -> None:
        """Let C0 fail to claim orders-0, because the partition has an owner node already.

        C0 then reads this node to learn the owner. `owner` is None if the node is gone by then.
        `zxid` is the newest transaction that C0 has seen.
        """
        self.add(
            C0,
            TraceKind.ZOOKEEPER_CLAIM_CONFLICT,
            group="old",
            member="old_y",
            partition="orders-0",
            offset=zxid,
            detail={"owner": owner},
        )

    def finish(self) -> CheckReport:
        """Return the report of the checker."""
        return self.checker.finish()


def opened(context: CheckContext = CONTEXT) -> EnsembleRows:
    """Return rows of two servers that have applied two transactions.

    Transaction 0x1 opens the session 0x1. In transaction 0x2 this session claims a partition.
    """
    rows = EnsembleRows(context)
    for server in (S1, S2):
        rows.apply_txn(server, "createSession", zxid=1)
        rows.apply_txn(server, "create", OWNER, zxid=2)
    return rows


def summaries(rows: EnsembleRows) -> list[str]:
    """Return the summaries of the findings."""
    return [finding.summary for finding in rows.finish().findings]


def test_ensemble_that_keeps_its_order_passes() -> None:
    """Each of these steps is legal.

    1. C0 gets the event of transaction 0x3 before an answer that shows 0x3.
    2. C0 fails to claim a partition. The owner node exists, but is gone when C0 reads it. A second
       claim fails, too, and C0 reads the owner.
    3. S2 has not applied as much as S1. S2 restarts, and applies all transactions again.
    """
    rows = opened()
    # 1. C0 has seen nothing newer than 0x2 when the event comes.
    rows.change_state("SyncConnected", S1, zxid=0)
    rows.fire_watch(S1, zxid=3)
    rows.apply_txn(S1, "delete", OWNER, zxid=3)
    rows.deliver_event(S1, zxid=2)
    # 2. Two claims fail.
    rows.meet_owner(owner=None, zxid=3)
    rows.apply_txn(S1, "create", OWNER, zxid=4)
    rows.meet_owner(owner="old_x-0", zxid=4)
    # 3. S2 had applied 0x1 and 0x2 before its restart. Now it applies all four transactions.
    rows.add(S2, TraceKind.NODE_STARTED, incarnation=1, detail={"role": "zookeeper"})
    rows.apply_txn(S2, "createSession", zxid=1)
    rows.apply_txn(S2, "create", OWNER, zxid=2)
    rows.apply_txn(S2, "delete", OWNER, zxid=3)
    rows.apply_txn(S2, "create", OWNER, zxid=4)
    rows.change_state("SyncConnected", S2, zxid=4)
    rows.apply_txn(S2, "closeSession", zxid=5)

    report = rows.finish()
    assert report.outcome is CheckOutcome.PASS
    assert report.seen["transactions"] == 5
    assert report.seen["owners_met"] == 2


def test_server_that_applies_another_transaction_than_the_first_is_found() -> None:
    """ZK-02: each server applies commits in zxid order.

    So transaction 0x3 must be the same on both servers. Here it is a delete on S1, and a write on
    S2.
    """
    rows = opened()
    rows.apply_txn(S1, "delete", OWNER, zxid=3)
    rows.apply_txn(S2, "setData", OWNER, zxid=3)

    assert summaries(rows) == ["zookeeper-2 applied 0x3 out of the ensemble's order"]


def test_server_that_skips_a_transaction_is_found() -> None:
    """ZK-02: each server applies commits in zxid order.

    Here S2 applies 0x4, but not 0x3 before it.
    """
    rows = opened()
    rows.apply_txn(S1, "delete", OWNER, zxid=3)
    rows.apply_txn(S1, "create", OWNER, zxid=4)
    rows.apply_txn(S2, "create", OWNER, zxid=4)

    assert summaries(rows) == ["zookeeper-2 applied 0x4 out of the ensemble's order"]


@pytest.mark.parametrize(
    ("op", "path", "problem"),
    [
        ("create", OWNER, f"create {OWNER}, which exists"),
        ("delete", f"{OWNER}1", f"delete {OWNER}1, which does not exist"),
        ("setData", f"{OWNER}1", f"setData {OWNER}1, which does not exist"),
    ],
)
def test_transaction_that_contradicts_the_existing_nodes_is_found(
    op: str, path: str, problem: str
) -> None:
    """ZK-45: a claim is exclusive as long as the holder's session lives.

    So no server may apply the creation of a node that exists (OWNER), or a write to a node that
    does not exist (here OWNER with another digit at its end).
    """
    rows = opened()
    rows.apply_txn(S1, op, path, zxid=3)

    assert summaries(rows) == [f"a transaction that may not be: {problem}"]


def test_write_of_an_ended_session_is_found() -> None:
    """ZK-12: the end of a session removes all its ephemerals in one step.

    So no ephemeral node of the session may be created afterwards.
    """
    rows = opened()
    rows.apply_txn(S1, "closeSession", zxid=3)
    rows.apply_txn(S1, "create", OWNER, zxid=4)

    (summary,) = summaries(rows)
    assert summary.endswith(f"create {OWNER} of session 0x1, which is not open")


def test_owner_node_that_outlives_its_session_is_found() -> None:
    """ZK-12: applying the end of a session removes all its ephemerals.

    The session that claimed orders-0 ends with 0x3. Nevertheless C0, which has seen 0x3, meets the
    owner node of this session.
    """
    rows = opened()
    rows.apply_txn(S1, "closeSession", zxid=3)
    rows.meet_owner(owner="old_x-0", zxid=3)

    (summary,) = summaries(rows)
    assert summary == (
        "consumer-old-0 met an owner node of orders-0 that was not there: of a session that was "
        "over"
    )


@pytest.mark.parametrize("in_virtual_time", [True, False])
def test_client_that_reads_an_older_state_is_found(in_virtual_time: bool) -> None:
    """ZK-05: a server which has applied less refuses the session.

    C0 has seen 0x3. S2 accepts the session of C0, although S2 applies 0x3 only 0.1 s later. In real
    time the clocks of two machines may differ by 20 ms, but this cannot explain 0.1 s.
    """
    rows = opened(
        CheckContext(
            zookeeper_groups=CONTEXT.zookeeper_groups,
            in_virtual_time=in_virtual_time,
            clock_error_us=0 if in_virtual_time else 20_000,
        )
    )
    rows.apply_txn(S1, "delete", OWNER, zxid=3)
    rows.change_state("SyncConnected", S2, zxid=3)
    rows.apply_txn(S2, "delete", OWNER, zxid=3)

    assert summaries(rows) == [
        "zookeeper-2 took up the session of consumer-old-0, which had seen more than it"
    ]


def test_server_that_is_late_within_the_clock_error_is_not_judged() -> None:
    """By the clocks S2 accepts the session 0.1 s before it applies 0x3, as in the test above.

    But here the clocks may differ by 0.2 s. So perhaps S2 did apply 0x3 first.
    """
    rows = opened(CheckContext(zookeeper_groups=CONTEXT.zookeeper_groups, clock_error_us=200_000))
    rows.apply_txn(S1, "delete", OWNER, zxid=3)
    rows.change_state("SyncConnected", S2, zxid=3)
    rows.apply_txn(S2, "delete", OWNER, zxid=3)

    assert summaries(rows) == []


def test_event_after_the_answer_that_shows_its_change_is_found() -> None:
    """ZK-19: the event is delivered before any answer that shows the change.

    When C0 gets the event of 0x3, C0 has seen 0x3 in an answer already.
    """
    rows = opened()
    rows.apply_txn(S1, "delete", OWNER, zxid=3)
    rows.fire_watch(S1, zxid=3)
    rows.deliver_event(S1, zxid=3)

    assert summaries(rows) == [
        "consumer-old-0 had an answer that shows the change before the event on /consumers/old/ids"
    ]


def test_event_whose_row_comes_before_that_of_its_watch_does_not_shift_later_events() -> None:
    """In real time the clock of a server may be behind the client's clock.

    1. The client's row of the event of 0x3 comes before the server's row of the watch.
    2. The next event, of 0x5, must be compared with the watch of 0x5, not with that of 0x3. When it
       comes, C0 has seen 0x4.
    """
    rows = opened()
    rows.apply_txn(S1, "delete", OWNER, zxid=3)
    rows.deliver_event(S1, zxid=2)
    rows.fire_watch(S1, zxid=3)
    rows.apply_txn(S1, "error", zxid=4)
    rows.apply_txn(S1, "error", zxid=5)
    rows.fire_watch(S1, zxid=5)
    rows.deliver_event(S1, zxid=4)

    assert summaries(rows) == []


def test_event_that_comes_too_late_is_found_although_its_row_is_early() -> None:
    """As in the test before, the row of the event comes before the row of its watch.

    C0 has seen 0x3, the change itself, before the event.
    """
    rows = opened()
    rows.apply_txn(S1, "delete", OWNER, zxid=3)
    rows.deliver_event(S1, zxid=3)
    rows.fire_watch(S1, zxid=3)

    assert len(summaries(rows)) == 1


def test_event_of_a_closed_connection_is_not_awaited() -> None:
    """An event is lost if the connection is closed before it arrives.

    The client registers its watch again on the next connection (ZK-20), and gets a new event there.
    """
    rows = opened()
    # The event of 0x2 is lost with the connection.
    rows.fire_watch(S1, zxid=2)
    rows.change_state("Disconnected", server=None, zxid=4)
    # On the next connection C0 gets the event of 0x5. By then the newest transaction that C0 has
    # seen in an answer is 0x4, so the order is right. Two of the transactions are writes that
    # failed ("error"), because the test needs only their zxids.
    rows.apply_txn(S1, "delete", OWNER, zxid=3)
    rows.apply_txn(S1, "error", zxid=4)
    rows.change_state("SyncConnected", S1, zxid=4)
    rows.apply_txn(S1, "error", zxid=5)
    rows.fire_watch(S1, zxid=5)
    rows.deliver_event(S1, zxid=4)

    assert summaries(rows) == []


def test_runs_without_an_ensemble_have_none_of_its_checks() -> None:
    """Without an ensemble five checks are left out. A run with an ensemble has all checks.

    Three of the five are about the ensemble and its clients. The other two are about properties
    that a group may demand by `must_hold`. If a group demands a property, its check runs without an
    ensemble, too.
    """
    group = GroupExpectation(consumers=(), offsets_partition=OFFSETS_0, commits=False)
    without_ensemble = CheckSuite(CheckContext(groups={"g": group}))
    demanded_by_a_group = CheckSuite(
        CheckContext(groups={"g": group}, must_hold={"g": ("positions_never_go_back",)})
    )
    with_ensemble = CheckSuite(CONTEXT)

    assert len(without_ensemble.checkers) == len(CHECKERS) - 5
    assert demanded_by_a_group.checkers[-1].name == "positions_never_go_back"
    assert len(with_ensemble.checkers) == len(CHECKERS)
