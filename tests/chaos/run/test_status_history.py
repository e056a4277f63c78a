"""Facts that a run keeps from earlier status queries: totals of members, last known leaders.

A run queries the status of its cluster again and again. A node that is down or cut off does not
answer. So a single status may lack a member, or all partitions if no controller answers. And a
member that was restarted counts from 0 again. So the run keeps what it knew before.
"""

from chaos.run.status_history import StatusHistory
from cluster.runtime import ClusterStatus, MemberStatus, PartitionStatus
from protocol.ids import BrokerId, NodeName, TopicPartition


def member(*, consumed: int, committed: int) -> MemberStatus:
    """Return the status of a member with these numbers of consumed records and commits."""
    return MemberStatus(
        group_id="readers",
        member_id="m",
        generation=1,
        state="STABLE",
        coordinator=BrokerId(0),
        assigned=(),
        records_consumed=consumed,
        commits_acknowledged=committed,
    )


def history_of(*queries: dict[str, MemberStatus]) -> StatusHistory:
    """Return the history after these queries. Each query has the members that answered."""
    history = StatusHistory()
    for members in queries:
        members_by_node = {NodeName(name): status for name, status in members.items()}
        history.observe(ClusterStatus(members=members_by_node))
    return history


def test_totals_of_a_killed_member_are_kept_across_incarnations() -> None:
    """A member counts from 0 again after a restart. The totals include what it did before.

    In both histories c-0 is killed after 90 records and 9 commits. In the second history c-0
    returns.
    """
    while_killed = history_of(
        {"c-0": member(consumed=90, committed=9), "c-1": member(consumed=50, committed=5)},
        {"c-1": member(consumed=60, committed=6)},
    )
    after_restart = history_of(
        {"c-0": member(consumed=90, committed=9), "c-1": member(consumed=50, committed=5)},
        {"c-0": member(consumed=4, committed=0), "c-1": member(consumed=70, committed=7)},
        {"c-0": member(consumed=10, committed=1), "c-1": member(consumed=80, committed=8)},
    )

    assert while_killed.records_consumed == 90 + 60
    assert while_killed.commits_acknowledged == 9 + 6
    # After its restart c-0 has 10 records and 1 commit, in addition to those before the kill.
    assert after_restart.records_consumed == 90 + 10 + 80
    assert after_restart.commits_acknowledged == 9 + 1 + 8


def test_last_named_leaders_are_kept_until_others_are_named() -> None:
    """If no controller answers, as in the third query, the last known leaders are used.

    The status of such a query has no partitions, but may have other facts, such as
    `records_produced`.
    """
    partition = TopicPartition("orders", 0)

    def led_by(broker: int) -> ClusterStatus:
        partition_status = PartitionStatus(
            leader=BrokerId(broker), leader_epoch=0, replicas=(BrokerId(0),), isr=(BrokerId(0),)
        )
        return ClusterStatus(partitions={partition: partition_status})

    history = StatusHistory()
    for status in (led_by(0), led_by(1), ClusterStatus(records_produced=7)):
        history.observe(status)

    without_controller = ClusterStatus(records_produced=8)
    completed = history.with_last_partitions(without_controller)
    assert completed.partitions[partition].leader == 1
    assert completed.records_produced == 8
    assert history.with_last_partitions(led_by(2)).partitions[partition].leader == 2
