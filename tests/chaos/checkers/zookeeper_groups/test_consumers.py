"""The check *zookeeper consumers* judges the steps of each consumer that ZooKeeper coordinates.

The consumers of old Kafka versions had no group coordinator. Each of them computed its own share of
the partitions, in a sequence of steps that is called an attempt here:

1. It gives up the partitions that it has (the release).
2. It reads the list of the group's members (the view).
3. It computes its share from the view.
4. It claims each partition of its share, by the creation of a znode.

When the members change, ZooKeeper notifies each consumer, which then begins the next attempt.

The tests write their traces by hand: the rows that consumers and servers would have recorded. Ids
such as ZK-43 are rules of docs/kafka/ZOOKEEPER_CONSUMER.md, and the tests quote the words of these
rules. In the rules the steps of an attempt have numbers such as R5.
"""

from chaos.checkers.context import CheckContext, ZooKeeperGroupExpectation
from chaos.checkers.zookeeper_groups.consumers import NOTICE_US, ZooKeeperConsumers
from protocol.trace import TraceKind
from results_schema.results import CheckOutcome, CheckReport
from tests.support.builders.rows import Columns, Rows

CONTEXT = CheckContext(
    zookeeper_groups={
        "old": ZooKeeperGroupExpectation(consumers=("consumer-old-0", "consumer-old-1"))
    },
    in_virtual_time=True,
)
SERVER, C0, C1 = "zookeeper-1", "consumer-old-0", "consumer-old-1"
IDS = "/consumers/old/ids"
"""Path below which the members of the group `old` register, for example /consumers/old/ids/m0."""
ALLOWED_S = NOTICE_US / 1e6 + 6
"""A consumer must have heard of a change after this time: NOTICE_US, and its session of 6 s."""


class GroupRows:
    """Rows of a group of two consumers. The checker observes each row when it is added.

    - C0 has session 0x1, and is registered as the member m0.
    - C1 has session 0x2, and is not registered at first. A test that needs a change of the members
      lets C1 register as m1.

    Both consumers are connected to the same server, SERVER. Each row comes 0.1 s after the row
    before it.
    """

    def __init__(self) -> None:
        self.checker = ZooKeeperConsumers(CONTEXT)
        self._rows = Rows(self.checker.observe)
        self.time_s = 0.0
        self.zxid = 0  # the number of the last transaction
        for session, node in (("0x1", C0), ("0x2", C1)):
            self.apply_txn(session, "createSession")
            detail: dict[str, object] = {"session": session, "state": "SyncConnected"}
            self.add(node, TraceKind.ZOOKEEPER_CLIENT_STATE, peer=SERVER, detail=detail)
        self.apply_txn("0x1", "create", f"{IDS}/m0")

    def add(self, node: str, kind: TraceKind, **columns: object) -> None:
        """Add a row, 0.1 s after the last row."""
        self.time_s += 0.1
        self._rows.add(self.time_s, node, kind, **columns)  # type: ignore[arg-type]

    def apply_txn(self, session: str, op: str, path: str | None = None) -> None:
        """Let the server apply the next transaction, a write of `session`.

        `op` is the kind of the write, such as "create", and `path` the znode that it changes.
        """
        self.zxid += 1
        detail: dict[str, object] = {"session": session, "op": op}
        if path is not None:
            detail |= {"path": path}
        if op == "create":
            detail |= {"data": "x", "ephemeral": True}
        self.add(SERVER, TraceKind.ZOOKEEPER_TXN_APPLIED, offset=self.zxid, detail=detail)

    def add_step(self, kind: TraceKind, offset: int | None = None, **detail: object) -> None:
        """Add a row of C0, which says that the member m0 takes a step."""
        common: Columns = {"group": "old", "member": "m0", "offset": offset}
        self.add(C0, kind, **common, detail=detail)

    def begin_attempt(self, attempt: int = 0) -> None:
        """Begin an attempt of C0, which has seen all transactions so far.

        `attempt` is 0 for the first attempt after a notification, and 1 for its first retry.
        """
        self.add_step(TraceKind.ZOOKEEPER_ATTEMPT_STARTED, self.zxid, attempt=attempt)

    def compute_from(self, *members: str) -> None:
        """Let C0 compute its share from a view that has these members."""
        self.add_step(
            TraceKind.ZOOKEEPER_VIEW, self.zxid, members=members, partitions=("orders-0",)
        )

    def claim(self) -> None:
        """Let C0 claim orders-0, which ends its attempt."""
        self.apply_txn("0x1", "create", "/consumers/old/owners/orders/0")
        self.add_step(TraceKind.ZOOKEEPER_ATTEMPT_ENDED, attempt=0, done=True, conflicts=0)
        self.add_step(TraceKind.PARTITIONS_ASSIGNED, partitions=("orders-0",))

    def expire(self) -> None:
        """Let C0's session expire, and let C0 learn of it."""
        self.apply_txn("0x1", "closeSession")
        detail: dict[str, object] = {"session": "0x1", "state": "Expired"}
        self.add(C0, TraceKind.ZOOKEEPER_CLIENT_STATE, peer=SERVER, detail=detail)

    def end_commit(self, begun_us: int) -> None:
        """End a commit of C0 that began at `begun_us`."""
        self.add(
            C0,
            TraceKind.ZOOKEEPER_OFFSET_COMMITTED,
            group="old",
            member="m0",
            partition="orders-0",
            offset=7,
            detail={"store": "zookeeper", "begun_us": begun_us},
        )

    def forget_claim(self) -> None:
        """Let C0 claim orders-0, and forget this claim in its next attempt.

        A consumer keeps a list of the partitions that it has claimed. When a new session begins,
        the list is emptied, although the owner nodes of these partitions still exist. The row
        PARTITIONS_LOST says so.
        """
        self.begin_attempt()
        self.compute_from("m0")
        self.claim()
        self.begin_attempt()
        self.add_step(TraceKind.PARTITIONS_LOST, partitions=("orders-0",))

    def heal_and_wait(self) -> None:
        """Heal all faults, wait one second longer than ALLOWED_S, and end the run."""
        self.add("driver", TraceKind.RUN_STAGE, detail={"stage": "liveness"})
        self.time_s += ALLOWED_S + 1
        self.add("driver", TraceKind.RUN_STAGE, detail={"stage": "stopping"})

    def finish(self) -> CheckReport:
        """Return the report of the checker."""
        return self.checker.finish()


def summaries(rows: GroupRows) -> list[str]:
    """Return the summaries of the findings."""
    return [finding.summary for finding in rows.finish().findings]


def test_consumer_that_reads_releases_and_is_notified_passes() -> None:
    """C0 makes two legal attempts.

    1. During the first attempt, C1 registers as m1. C0 may read its view before or after this
       registration, so its view may lack m1, as it does here.
    2. The second attempt begins after the registration, so its view must have m1. Before C0 reads
       this view, it must release orders-0.
    """
    rows = GroupRows()
    # The first attempt.
    rows.begin_attempt()
    rows.apply_txn("0x2", "create", f"{IDS}/m1")
    rows.compute_from("m0")
    rows.claim()
    # The second attempt, which begins with the release.
    rows.begin_attempt()
    rows.apply_txn("0x1", "delete", "/consumers/old/owners/orders/0")
    rows.compute_from("m0", "m1")
    rows.claim()
    rows.heal_and_wait()

    report = rows.finish()
    assert report.outcome is CheckOutcome.PASS
    assert report.seen["views"] == 2


def test_retry_that_uses_members_of_an_earlier_attempt_is_found() -> None:
    """ZK-43: the child list used for the assignment is that of R6 at that moment.

    R6 is the step of an attempt that reads the members. The second attempt begins after m1 has
    registered, so it cannot have read a list without m1.
    """
    rows = GroupRows()
    rows.begin_attempt()
    rows.apply_txn("0x2", "create", f"{IDS}/m1")
    rows.compute_from("m0")
    rows.begin_attempt(attempt=1)
    rows.compute_from("m0")

    assert summaries(rows) == [
        "consumer-old-0 computed from members of old that it cannot have read in this attempt"
    ]


def test_new_session_may_see_an_older_state_than_the_last_one() -> None:
    """Within one session a client never reads an older state than before (ZK-05).

    A new session may read an older state than the session before it. Here C0 computes from a view
    with m0 in its new session 0x3, although the end of C0's first session has removed m0.
    """
    rows = GroupRows()
    rows.apply_txn("0x2", "create", f"{IDS}/m1")
    rows.begin_attempt()
    rows.expire()
    rows.apply_txn("0x3", "createSession")
    detail: dict[str, object] = {"session": "0x3", "state": "SyncConnected"}
    rows.add(C0, TraceKind.ZOOKEEPER_CLIENT_STATE, peer=SERVER, detail=detail)
    rows.compute_from("m0", "m1")

    assert summaries(rows) == []


def test_consumer_that_computes_before_its_release_is_found() -> None:
    """ZK-41: everything is given up in R5 before anything is known.

    R5 is the release of the old partitions. The second attempt computes a share, but has not
    released orders-0.
    """
    rows = GroupRows()
    rows.begin_attempt()
    rows.compute_from("m0")
    rows.claim()
    rows.begin_attempt()
    rows.compute_from("m0")

    assert summaries(rows) == [
        "consumer-old-0 computed a new share while it still owned partitions of the last one"
    ]


def test_owner_nodes_that_a_new_session_forgot_are_not_released() -> None:
    """ZK-32: nor does `resetState` take the lock: what it forgets, no release deletes.

    `resetState` is the method of the old consumer that empties its list of claimed partitions when
    a new session begins. Afterwards the consumer cannot release these partitions. So it may compute
    a new share while its old owner node still exists.
    """
    rows = GroupRows()
    rows.forget_claim()
    rows.compute_from("m0")

    assert summaries(rows) == []


def test_forgotten_owner_node_is_no_part_of_the_next_release() -> None:
    """ZK-32: what `resetState` made an attempt forget stays at the next release.

    The next attempt releases orders-1, but not the forgotten orders-0.
    """
    rows = GroupRows()
    rows.forget_claim()
    # The attempt after the loss goes on, and claims orders-1.
    rows.apply_txn("0x1", "create", "/consumers/old/owners/orders/1")
    rows.add_step(TraceKind.PARTITIONS_ASSIGNED, partitions=("orders-1",))
    # The next attempt releases orders-1 only, and computes.
    rows.begin_attempt()
    rows.apply_txn("0x1", "delete", "/consumers/old/owners/orders/1")
    rows.compute_from("m0")

    assert summaries(rows) == []


def test_member_that_is_never_notified_of_a_change_is_found() -> None:
    """ZK-18: states are skipped, changes are never missed for good.

    After m1 has registered, C0 should begin an attempt within ALLOWED_S, but it begins none.
    """
    rows = GroupRows()
    rows.begin_attempt()
    rows.compute_from("m0")
    rows.claim()
    rows.apply_txn("0x2", "create", f"{IDS}/m1")
    rows.heal_and_wait()

    (summary,) = summaries(rows)
    # The sentence goes on with the time that C0 had, which is 16 s (ALLOWED_S) or a little more.
    assert summary.startswith("consumer-old-0 never heard of the last change of old, within 1")


def test_unregistered_member_needs_no_notification() -> None:
    """ZK-56: fetchers run on without registration, for ever.

    C0's registration as m0 is deleted. Without a registration C0 need not hear of m1.
    """
    rows = GroupRows()
    rows.begin_attempt()
    rows.compute_from("m0")
    rows.claim()
    rows.apply_txn("0x2", "create", f"{IDS}/m1")
    rows.apply_txn("0x2", "delete", f"{IDS}/m0")
    rows.heal_and_wait()

    assert summaries(rows) == []


def test_commit_of_an_expired_session_is_found_unless_it_was_begun_before() -> None:
    """ZK-55: after the expiry nothing is committed.

    ZK-66: a commit that waited is carried out in the new session. So the first commit here is
    legal, because it began before the session of C0 expired. The second commit began after the
    expiry, and is a finding.
    """
    rows = GroupRows()
    rows.begin_attempt()
    rows.compute_from("m0")
    rows.claim()
    begun_before_us = round(rows.time_s * 1e6)
    rows.expire()
    rows.add_step(TraceKind.PARTITIONS_LOST, partitions=("orders-0",))
    rows.end_commit(begun_before_us)
    assert rows.checker.findings == []

    begun_after_us = round(rows.time_s * 1e6)
    rows.end_commit(begun_after_us)

    assert summaries(rows) == [
        "consumer-old-0 committed a partition that it had lost with its session"
    ]
