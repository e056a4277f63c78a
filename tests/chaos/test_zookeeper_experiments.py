"""Experiments that compare a group on ZooKeeper with a group that has a coordinator.

Two groups read the same topic and suffer the same faults. The group `new` has a coordinator, as in
today's Kafka. The group `old` works as in old versions of Kafka, without a coordinator. When the
members change, each member makes an attempt, which has these steps:

1. The member releases its old partitions.
2. It reads the list of members from ZooKeeper (its "view"), and computes its share of the
   partitions.
3. It claims each partition of its share by creating an owner node in ZooKeeper. If the owner node
   of another member is still there, this is a conflict, and the attempt fails.

Each test plays one of the shipped experiments in virtual time, and looks at its trace: the rows
that the nodes wrote about what they did. The faults are in the files of the folder experiments/.
Ids such as ZK-92 are rules of docs/kafka/ZOOKEEPER_CONSUMER.md.
"""

from functools import cache
from typing import NamedTuple

import pytest

from chaos.checkers.context import detail_of
from chaos.experiment.loader import load_experiment
from cluster.runtime import DRIVER
from protocol.trace import TraceKind, TraceRow
from tests.support.worlds.acceptance import VirtualRun, play_virtual

SECOND = 1_000_000
pytestmark = pytest.mark.slow


class View(NamedTuple):
    """The list of members from which a consumer computes its share."""

    time_us: int
    """The time at which the consumer computed its share."""
    members: tuple[str, ...]


class Deletion(NamedTuple):
    """A session deletes an owner node that another session has created."""

    time_us: int
    session: str
    """The session that deleted the node."""
    creator: str
    """The session that had created the node."""


@cache
def played(name: str) -> VirtualRun:
    """Play a shipped experiment, and return the run. A second call returns the same run."""
    return play_virtual(load_experiment(name).experiment, seed=3)


def injected_us(run: VirtualRun) -> int:
    """Return the time at which the first fault was injected."""
    return next(
        row.time_us
        for row in run.rows
        if row.node == DRIVER and row.kind == TraceKind.FAULT_INJECTED
    )


def since_fault(run: VirtualRun, kind: TraceKind, group: str | None = None) -> list[TraceRow]:
    """Return the rows of a kind from the first fault on, of one group or of all groups."""
    since_us = injected_us(run)
    return [
        row
        for row in run.rows
        if row.kind == kind and row.time_us >= since_us and group in (None, row.group)
    ]


def of_whole_run(run: VirtualRun, kind: TraceKind) -> list[TraceRow]:
    """Return all rows of a kind, including those from before the first fault."""
    return [row for row in run.rows if row.kind == kind]


@pytest.mark.parametrize("name", ["herd_effect", "zookeeper_restart", "zookeeper_zombie"])
def test_experiment_breaks_no_promise(name: str) -> None:
    """The old design leads to double processing and to conflicts.

    A run only measures the double processing and the conflicts. They are no violations, because the
    old consumers do not promise to avoid them.
    """
    assert played(name).results.verdict == "pass"


def test_same_seed_is_the_same_run() -> None:
    """The shortest experiment is played twice in this process, with the same seed.

    Other tests compare runs of several processes (tests/architecture/test_determinism.py).
    """
    name = "zookeeper_zombie"
    second = play_virtual(load_experiment(name).experiment, seed=3)
    assert second.digest == played(name).digest


def test_zombie_processes_what_another_owns_and_its_offsets_go_back() -> None:
    """A zombie processes records of partitions that others own by now (ZK-92, ZK-66).

    A zombie is a member whose session has ended, but which does not know this. Here a member is cut
    off from ZooKeeper. When its session ends, other members take its partitions. The zombie keeps
    processing until the cut ends.
    """
    run = played("zookeeper_zombie")
    cut_us = injected_us(run)
    (expired,) = since_fault(run, TraceKind.ZOOKEEPER_SESSION_EXPIRED)
    # A session lasts 6 s from its last ping, which came at most 2 s before the cut. ZooKeeper looks
    # for ended sessions every 2 s (tickTime). So the session ends 4 to 8 s after the cut.
    assert 4 * SECOND <= expired.time_us - cut_us <= 8 * SECOND

    # The zombie and the new owners process the same partitions. This lasts from 1 s after the end
    # of the session to the end of the cut, which is 20 s long.
    zombie = "consumer-old-1"
    processed = [
        row
        for row in since_fault(run, TraceKind.RECORDS_CONSUMED, "old")
        if expired.time_us + SECOND < row.time_us < cut_us + 20 * SECOND
    ]
    by_zombie = {row.partition for row in processed if row.node == zombie}
    by_others = {row.partition for row in processed if row.node != zombie}
    processed_by_two = by_zombie & by_others
    # The 16 partitions were shared by 4 members. So the zombie's share is 4 partitions.
    assert len(processed_by_two) == 4

    # Only the zombie commits an offset that is less than the last committed offset.
    last_offsets: dict[str | None, int] = {}
    nodes_that_went_back = set()
    for row in since_fault(run, TraceKind.ZOOKEEPER_OFFSET_COMMITTED, "old"):
        if row.offset is not None:
            if row.offset < last_offsets.get(row.partition, 0):
                nodes_that_went_back.add(row.node)
            last_offsets[row.partition] = row.offset
    assert nodes_that_went_back == {zombie}


def test_coordinator_refuses_the_commits_of_a_member_that_goes_on_processing() -> None:
    """A coordinator refuses the commits of a zombie: it fences commits, not processing (ZK-67).

    The member cannot know that it was removed. Processing of records already fetched may go on
    (ZK-93).
    """
    run = played("zookeeper_zombie")
    # No committed offset of the group goes back. Partition -> its last committed offset.
    committed: dict[str | None, int] = {}
    for row in since_fault(run, TraceKind.COMMIT_STORED, "new"):
        if row.offset is not None:
            assert row.offset >= committed.get(row.partition, 0)
            committed[row.partition] = row.offset

    # The member is cut off for 20 s. It is removed after its session of 6 s, so from 10 s on it is
    # certainly no member any more.
    processed_while_cut_off = [
        row
        for row in since_fault(run, TraceKind.RECORDS_CONSUMED, "new")
        if row.node == "consumer-new-1"
        and 10 * SECOND < row.time_us - injected_us(run) < 20 * SECOND
    ]
    assert processed_while_cut_off != []
    assert since_fault(run, TraceKind.COMMIT_FAILED, "new") != []


def test_replaced_member_conflicts_until_the_dead_session_has_ended() -> None:
    """Until the session of a dead member ends, nobody can claim its partitions (ZK-49, ZK-50).

    Each attempt to claim them fails with a conflict. Not even the member that replaces the dead one
    can claim them.
    """
    run = played("zookeeper_restart")
    (expired,) = since_fault(run, TraceKind.ZOOKEEPER_SESSION_EXPIRED)
    attempts = [
        detail_of(row) for row in since_fault(run, TraceKind.ZOOKEEPER_ATTEMPT_ENDED, "old")
    ]
    conflicts = since_fault(run, TraceKind.ZOOKEEPER_CLAIM_CONFLICT, "old")
    early_conflicts = [row for row in conflicts if row.time_us < expired.time_us]
    # The owner in a conflict is a consumer id, such as "old_consumer-old-1-...". The name of the
    # node follows the last "_". The text is cut to the length of `dead`, because more follows.
    dead = "consumer-old-1"
    owners = {
        str(detail_of(row)["owner"]).rpartition("_")[2][: len(dead)] for row in early_conflicts
    }

    assert dead in owners
    assert sum(not attempt["done"] for attempt in attempts) >= 2
    # The new group needs one generation for the new member, and one or two when the killed member
    # comes back.
    generations = {row.generation for row in since_fault(run, TraceKind.GENERATION_STARTED, "new")}
    assert len(generations) <= 3


def test_join_on_zookeeper_notifies_all_members_at_once() -> None:
    """Herd effect: every consumer wakes for every change (ZK-29).

    ZooKeeper notifies all members of the old group within a few tens of milliseconds. A member of
    the new group hears of a change only at its next heartbeat (ZK-80).
    """
    run = played("herd_effect")
    joined_us = next(
        row.time_us
        for row in run.rows
        if row.kind == TraceKind.NODE_STARTED and row.node == "consumer-old-7"
    )

    # consumer-old-7 is the eighth member of the old group. Its join notifies all seven other
    # members, the last one at most 100 ms after the first.
    notifications = [
        row
        for row in of_whole_run(run, TraceKind.ZOOKEEPER_WATCH_FIRED)
        if joined_us <= row.time_us < joined_us + SECOND
    ]
    assert {row.peer for row in notifications} == {f"consumer-old-{index}" for index in range(7)}
    first_us = min(row.time_us for row in notifications)
    assert all(row.time_us - first_us < SECOND // 10 for row in notifications)

    # The new member of the new group joins at the same time. heartbeat.interval.ms is 2 s, so
    # within 4 s each member has heard of the rebalance, and joins again.
    rejoined = {
        row.node
        for row in of_whole_run(run, TraceKind.REQUEST_SENT)
        if row.api == "JoinGroup"
        and row.node.startswith("consumer-new-")
        and joined_us <= row.time_us < joined_us + 4 * SECOND
    }
    assert rejoined == {f"consumer-new-{index}" for index in range(8)}


def views_of(run: VirtualRun) -> dict[str, list[View]]:
    """Return the views of each consumer of the old group, in order of time."""
    views: dict[str, list[View]] = {}
    for row in since_fault(run, TraceKind.ZOOKEEPER_VIEW, "old"):
        view = View(row.time_us, tuple(detail_of(row)["members"]))
        views.setdefault(row.node, []).append(view)
    return views


def test_members_at_different_servers_see_different_groups_and_agree_in_the_end() -> None:
    """Members at quick servers compute three times before those at the slow server (ZK-71, ZK-95).

    A ninth member joins the group. At this time the messages of ZooKeeper's leader reach the server
    zookeeper-1 with a delay of 400 ms. So the members that are connected to zookeeper-1 hear of the
    new member later than the others. In the end all members compute from the same view, without the
    help of an operator.
    """
    run = played("zookeeper_split_view")
    assert run.results.verdict == "pass"

    # Consumer -> the server that notified it for the first time, and when.
    notified: dict[str | None, tuple[str, int]] = {}
    for row in since_fault(run, TraceKind.ZOOKEEPER_WATCH_FIRED):
        notified.setdefault(row.peer, (row.node, row.time_us))
    old_members = [notified[f"consumer-old-{index}"] for index in range(8)]
    first_us = min(time_us for _, time_us in old_members)
    late_servers = {server for server, time_us in old_members if time_us > first_us + SECOND // 5}
    delays_us = {time_us - first_us for server, time_us in old_members if server in late_servers}
    slow_members = {name for name, (server, _) in notified.items() if server in late_servers}
    assert late_servers == {"zookeeper-1"}
    # The slow server notifies its members 400 to 500 ms later. 400 ms are the delay, and up to
    # 100 ms are for everything else.
    assert all(SECOND * 2 // 5 <= delay_us <= SECOND // 2 for delay_us in delays_us)

    # The quick members compute several times before the first slow one does.
    views = views_of(run)
    slow_computed_us = min(views[name][0].time_us for name in views if name in slow_members)
    newcomer = "consumer-old-8"
    quick_members = [name for name in views if name not in slow_members and name != newcomer]
    early_views = [
        [view for view in views[name] if view.time_us < slow_computed_us] for name in quick_members
    ]
    assert max(len(views_of_member) for views_of_member in early_views) >= 3
    # The quick members saw the group without the newcomer (8 members) and with it (9).
    sizes_seen = {len(view.members) for views_of_member in early_views for view in views_of_member}
    assert sizes_seen == {8, 9}
    # Before a slow member computes, it commits and releases its partitions. Each of these writes
    # waits for the slow link.
    assert slow_computed_us - first_us > 5 * SECOND

    # In the end all members have the same view. The new group needed one generation.
    last_members = {views_of_member[-1].members for views_of_member in views.values()}
    assert len(last_members) == 1
    assert len(since_fault(run, TraceKind.GENERATION_STARTED, "new")) == 1


def test_split_views_cost_conflicts_and_a_member_that_gives_up() -> None:
    """Members with different views claim the same partitions, and one gives up (ZK-38, ZK-96).

    A partition never has two owner nodes, because the second claim is a conflict. The newcomer
    gives up while it starts, and its program starts it again.
    """
    run = played("zookeeper_split_view")
    conflicts = since_fault(run, TraceKind.ZOOKEEPER_CLAIM_CONFLICT, "old")
    gave_up = [
        detail_of(row)["during"] for row in since_fault(run, TraceKind.ZOOKEEPER_GAVE_UP, "old")
    ]
    successful_attempts = [
        row
        for row in since_fault(run, TraceKind.ZOOKEEPER_ATTEMPT_ENDED, "old")
        if detail_of(row)["done"]
    ]

    # When this was measured with Kafka 1.1.1, there were 34 conflicts, and the last attempt ended
    # after 40.5 s.
    assert len(conflicts) >= 30
    assert "starting" in gave_up
    assert 20 * SECOND <= successful_attempts[-1].time_us - injected_us(run) <= 45 * SECOND


def test_late_release_deletes_the_owner_nodes_of_other_members() -> None:
    """ZooKeeper deletes a node without regard to its owner or session (ZK-74, ZK-23, ZK-08).

    1. A slow member is cut off in the midst of its release, and its session ends.
    2. Other members claim the partitions of the slow member.
    3. In its next session the slow member continues the release. Within half a second it deletes
       the owner nodes of the other members.
    """
    run = played("zookeeper_late_release")
    assert run.results.verdict == "pass"
    (expired,) = since_fault(run, TraceKind.ZOOKEEPER_SESSION_EXPIRED)
    old_session = detail_of(expired)["session"]
    creators: dict[str, str] = {}  # path of an owner node -> the session that created it
    deletions: list[Deletion] = []
    # Every server writes a row for every transaction, but only the first row of each transaction is
    # used here. The number of the transaction (zxid) is in the column `offset`.
    last_zxid = 0
    for row in run.rows:
        zxid = row.offset or 0
        if row.kind != TraceKind.ZOOKEEPER_TXN_APPLIED or zxid <= last_zxid:
            continue
        last_zxid = zxid
        txn = detail_of(row)
        if txn["op"] == "create" and "/owners/" in txn["path"]:
            creators[txn["path"]] = txn["session"]
        elif txn["op"] == "delete" and txn["path"] in creators:
            creator = creators[txn["path"]]
            if creator != txn["session"]:
                deletions.append(Deletion(row.time_us, txn["session"], creator))

    # Such a deletion may cause further deletions: a member that lost its owner node may release the
    # partition later, and so delete the node of the next owner. So the test looks only at the
    # deletions of one session, which was the first to delete a node of another session.
    first_deleter = deletions[0].session
    deletion_times_us = [
        deletion.time_us for deletion in deletions if deletion.session == first_deleter
    ]
    assert len(deletion_times_us) >= 10
    assert deletion_times_us[-1] - deletion_times_us[0] < SECOND // 2
    # The ended session of the slow member did not delete the nodes, nor had it created them.
    creators_of_deleted = {deletion.creator for deletion in deletions}
    assert old_session not in {first_deleter, *creators_of_deleted}
    assert since_fault(run, TraceKind.ZOOKEEPER_GAVE_UP, "old") != []
