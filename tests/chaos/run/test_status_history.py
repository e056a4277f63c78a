"""Facts that a run keeps from earlier status queries: totals of members, last known leaders.

The answer to a status query has only the members that answered, and partitions only if a controller
answered. An incarnation is one life of a node, between two restarts.
"""

from chaos.run.status_history import StatusHistory
from cluster.runtime import ClusterStatus, MemberStatus, PartitionStatus
from protocol.ids import BrokerId, NodeName, TopicPartition


def member(*, consumed: int, committed: int) -> MemberStatus:
    """Return a member's totals: records consumed, commits acknowledged."""
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
    """Return the history after these queries; each has the members that answered."""
    history = StatusHistory()
    for members in queries:
        named = {NodeName(name): status for name, status in members.items()}
        history.observe(ClusterStatus(members=named))
    return history


def test_totals_of_a_killed_member_are_kept_across_incarnations() -> None:
    """A member counts from 0 in each incarnation; the totals count all incarnations.

    In both histories c-0 is killed after 90 records. `away`: c-0 does not answer, and c-1 has 60,
    together 150. `back`: c-0 has 10 in its second incarnation, and c-1 has 80, together 180.
    """
    away = history_of(
        {"c-0": member(consumed=90, committed=9), "c-1": member(consumed=50, committed=5)},
        {"c-1": member(consumed=60, committed=6)},
    )
    back = history_of(
        {"c-0": member(consumed=90, committed=9), "c-1": member(consumed=50, committed=5)},
        {"c-0": member(consumed=4, committed=0), "c-1": member(consumed=70, committed=7)},
        {"c-0": member(consumed=10, committed=1), "c-1": member(consumed=80, committed=8)},
    )

    assert (away.records_consumed, away.commits_acknowledged) == (150, 15)
    assert (back.records_consumed, back.commits_acknowledged) == (180, 18)


def test_last_named_leaders_are_kept_until_others_are_named() -> None:
    """The kept leaders are used only if no controller answers, as in the third query."""
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
    assert (completed.partitions[partition].leader, completed.records_produced) == (1, 8)
    assert history.with_last_partitions(led_by(2)).partitions[partition].leader == 2
