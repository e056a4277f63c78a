"""Rules of a group: members, leader, protocols, pending ids. Mirrors Kafka's GroupMetadataTest.

The tests call the methods of a Group object directly, without a coordinator.

A rebalance of a group has two phases. In the join phase (state PreparingRebalance) each member
sends a JoinGroup with the assignment protocols that it supports. The coordinator parks each
JoinGroup, that is, answers it only when the phase ends. Then the group selects a protocol that all
members support, and begins its next generation. In the sync phase (state CompletingRebalance) each
member sends a SyncGroup, and gets its partitions with the answer.

A new client first gets a member id, and then joins with this id. In between, the id is pending.

Ids such as GM-22 are cases of Kafka's test, listed in docs/kafka/BEHAVIOUR.md 10.2. "BEHAVIOUR 4.3"
is a section of that page.
"""

import pytest

from coordinator.errors import UnknownServerError
from coordinator.group import Group
from coordinator.invariants import check_group
from coordinator.member import Member, ParkedJoin
from coordinator.replies import answer_parked_join, answer_parked_sync, fail_parked_join
from coordinator.states import GroupState
from coordinator.storage.offset_retention import expired_offsets
from coordinator.storage.offsets import CommittedOffset
from coordinator.turn import Turn
from coordinator.vote import scala_order
from protocol.causes import GroupStateCause, RebalanceCause
from protocol.errors import ErrorCode, IllegalTransition
from protocol.ids import RequestId, TopicPartition
from protocol.messages.group import JoinGroupResponse, SyncGroupResponse
from protocol.records.offsets import OffsetCommitValue
from tests.support.builders.requests import protocols, subscription
from tests.support.harness.coordinator_harness import CoordinatorHarness


def empty_group() -> Group:
    """Return a group "g" of offsets partition 0. It has been Empty since the time 0."""
    return Group("g", partition=0, state=GroupState.EMPTY, now_us=0)


def preparing(*members: Member) -> Group:
    """Return a group in PreparingRebalance with these members.

    Their JoinGroups are parked. The first JoinGroup has the request id 0, the next JoinGroup has 1,
    and so on.
    """
    group = empty_group()
    group.transition_to(
        GroupState.PREPARING_REBALANCE, now_us=0, cause=RebalanceCause.JOIN, trace=[]
    )
    for number, joining in enumerate(members):
        group.add(joining, ParkedJoin(request_id=RequestId(number), api_version=9))
    return group


def member(
    member_id: str = "m",
    *names: str,
    instance: str | None = None,
    protocol_type: str = "consumer",
    metadata: bytes | None = None,
    rebalance_timeout_ms: int = 60_000,
) -> Member:
    """Return a member that supports the protocols `names`, by default range and roundrobin."""
    return Member(
        member_id=member_id,
        group_instance_id=instance,
        client_id="c",
        client_host="h",
        rebalance_timeout_ms=rebalance_timeout_ms,
        session_timeout_ms=10_000,
        protocol_type=protocol_type,
        supported_protocols=protocols(*(names or ("range", "roundrobin")), metadata=metadata),
    )


def next_generation(group: Group) -> None:
    """End the join phase of a group, and begin its next generation."""
    group.init_next_generation(now_us=0, cause=GroupStateCause.ALL_JOINED, trace=[])


def test_select_protocol_follows_the_majority_of_first_choices() -> None:
    """Each member votes for the first protocol of its list. The protocol with most votes wins.

    GM-22: vote: majority of first choices
    """
    group = preparing(member("a", "range", "roundrobin"))
    assert group.select_protocol() == "range"
    group.add(member("b", "roundrobin", "range"))
    # Both protocols have one vote. Kafka does not promise which of them wins.
    assert group.select_protocol() in {"range", "roundrobin"}
    group.add(member("c", "roundrobin", "range"))
    assert group.select_protocol() == "roundrobin"


def test_select_protocol_breaks_a_tie_in_scalas_hash_order() -> None:
    """With equal votes, Kafka takes the protocol that comes first in a Scala hash map.

    So our coordinator computes the order of that map, to make the same choice. `scala_order` puts
    names into the order that they have in a map with the keys `among`. The orders here are known
    from recordings of a real Kafka: `vote-tie` shows "a" before "b", and `fuzz-0088` shows
    roundrobin before range.
    """
    assert scala_order(["b", "a"], among=["b", "a"]) == ["a", "b"]
    group = preparing(member("m", "range", "roundrobin"), member("n", "roundrobin", "range"))
    assert group.select_protocol() == "roundrobin"


def test_scala_order_puts_names_with_equal_hash_bits_last() -> None:
    """Scala's map is a tree. On its first level the names are ordered by five bits of their hashes.

    Names with the same five bits go into a subtree, which orders them by the next five bits. On
    each level the subtrees come after the single names. Here range and sticky have the same first
    five bits, so they come last.
    """
    names = ["sticky", "range", "roundrobin", "cooperative-sticky"]
    assert scala_order(names, among=names) == [
        "cooperative-sticky",
        "roundrobin",
        "range",
        "sticky",
    ]


def test_scala_order_is_by_hashes_of_32_bits() -> None:
    """The hashes of the names are numbers of 32 bits, as in Scala.

    Here the hashes are 0x5423dd79 (assignor-27) and 0x23f2b8d9 (assignor-4). The lowest five bits
    of both hashes are the same. The next five bits decide: they are 11 for assignor-27, and 6 for
    assignor-4.
    """
    names = ["assignor-27", "assignor-4"]
    assert scala_order(names, among=names) == ["assignor-4", "assignor-27"]


def test_select_protocol_takes_only_what_all_support() -> None:
    """A protocol that one member does not support cannot win, even if most members prefer it.

    GM-24: vote among common protocols only
    """
    group = preparing(member("a", "range", "roundrobin"), member("b", "roundrobin", "blah"))
    assert group.select_protocol() == "roundrobin"
    # Three of four members prefer range, but b does not support it.
    group.add(member("c", "range", "roundrobin"))
    group.add(member("d", "range", "roundrobin"))
    assert group.select_protocol() == "roundrobin"


def test_select_protocol_without_members_raises() -> None:
    """Without members there is no protocol to select, so only a bug can call this method.

    GM-23: vote without members
    """
    with pytest.raises(IllegalTransition, match="no members"):
        empty_group().select_protocol()


def test_member_that_lists_a_protocol_twice_fails_the_join_phase() -> None:
    """Kafka counts how often each protocol is listed by the members.

    If the count equals the number of members, Kafka takes the protocol as supported by all. Here
    the only member lists range twice, so the count is 2. No protocol counts as supported by all,
    and Kafka throws at the end of the join phase.
    """
    group = preparing(member("a", "range", "range"))
    with pytest.raises(UnknownServerError):
        next_generation(group)


def test_group_supports_a_join_that_lists_a_protocol_of_every_member() -> None:
    """A client may join with the group's protocol type, and a protocol that all members support.

    An Empty group accepts any protocol type and any protocols. Only an empty protocol type and an
    empty list of protocols are refused.

    GM-25: which protocols a group supports
    """
    assert empty_group().supports_protocols("consumer", ("any",))
    assert not empty_group().supports_protocols("", ("any",))
    assert not empty_group().supports_protocols("consumer", ())

    group = preparing(member("a", "range", "roundrobin"))
    assert group.supports_protocols("consumer", ("roundrobin", "foo"))
    assert group.supports_protocols("consumer", ("range", "foo"))
    assert not group.supports_protocols("consumer", ("foo", "bar"))

    # From now on roundrobin is the only protocol that all members support.
    group.add(member("b", "roundrobin", "blah"))
    assert group.supports_protocols("consumer", ("roundrobin", "foo"))
    assert not group.supports_protocols("connect", ("roundrobin", "foo"))
    assert not group.supports_protocols("consumer", ("range", "foo"))


def test_next_generation_selects_a_protocol_of_the_present_members() -> None:
    """The member first listed range, and then roundrobin. The group selects roundrobin.

    The member owes a SyncGroup of the old generation: it has not sent this SyncGroup
    (`pending_sync_members`). In the new generation no member owes a SyncGroup yet, because no
    JoinGroup has been answered.

    GM-29: next generation with members
    GM-58: next generation: nobody owes one yet
    """
    group = preparing(member("a", "range"))
    group.add_pending_sync_member("a")
    group.update_member(
        group.members["a"],
        protocols("roundrobin"),
        rebalance_timeout_ms=1,
        session_timeout_ms=1,
        parked=group.members["a"].awaiting_join,
    )
    next_generation(group)
    assert group.generation_id == 1
    assert group.protocol_name == "roundrobin"
    assert group.state is GroupState.COMPLETING_REBALANCE
    assert not group.pending_sync_members


def test_next_generation_without_members_makes_the_group_empty() -> None:
    """The generation increases, but there is no protocol, and no SyncGroup to wait for.

    GM-30: next generation without members
    """
    group = preparing()
    next_generation(group)
    assert group.generation_id == 1
    assert group.protocol_name is None
    assert group.state is GroupState.EMPTY


def test_subscribed_topics_are_known_from_the_next_generation_on() -> None:
    """Before the first generation the topics are None: the group may be subscribed to any topic.

    From then on the topics are the union of the members' subscriptions. A group without members is
    subscribed to no topics.

    GM-27: subscribed topics of a consumer group
    """
    group = preparing(
        member("a", metadata=subscription("foo")), member("b", metadata=subscription("bar", "foo"))
    )
    assert group.subscribed_topics is None
    assert group.is_subscribed_to("anything")

    next_generation(group)
    assert group.subscribed_topics == {"foo", "bar"}
    assert not group.is_subscribed_to("baz")

    group.transition_to(
        GroupState.PREPARING_REBALANCE, now_us=0, cause=RebalanceCause.JOIN, trace=[]
    )
    group.remove("a")
    group.remove("b")
    next_generation(group)
    assert group.subscribed_topics == frozenset()


def test_subscribed_topics_of_truncated_bytes_are_unknown() -> None:
    """If the bytes end too early, the group counts as subscribed to every topic, as in Kafka.

    GM-27: subscribed topics of a consumer group
    MM-28: load: subscription that cannot be read
    """
    group = preparing(member("a", metadata=b"\x00"))
    next_generation(group)
    assert group.subscribed_topics is None


def test_subscribed_topics_of_another_protocol_type_are_unknown() -> None:
    """The coordinator can read only subscriptions of the protocol type "consumer".

    GM-28: subscribed topics of another protocol type
    """
    group = preparing(member("a", protocol_type="connect", metadata=subscription("foo")))
    next_generation(group)
    assert group.subscribed_topics is None


def test_next_generation_with_unreadable_bytes_fails_after_its_increment() -> None:
    """The bytes of the subscription say that billions of topics follow. Kafka refuses such bytes.

    So the end of the join phase fails half way: the generation has changed, but not the state
    (BEHAVIOUR 0.1).
    """
    group = preparing(member("a", metadata=b"meta-c1"))
    with pytest.raises(UnknownServerError):
        next_generation(group)
    assert (group.generation_id, group.state) == (1, GroupState.PREPARING_REBALANCE)


def test_update_member_changes_its_timeouts_and_that_of_the_group() -> None:
    """The rebalance timeout of a group is the largest of its members' rebalance timeouts.

    GM-39: member's new timeouts count
    """
    group = preparing(member("a", rebalance_timeout_ms=60_000))
    group.update_member(
        group.members["a"],
        protocols("range"),
        rebalance_timeout_ms=90_000,
        session_timeout_ms=20_000,
        parked=None,
    )
    assert group.rebalance_timeout_ms == 90_000
    assert group.members["a"].session_timeout_ms == 20_000
    # `parked=None` has unparked the JoinGroup of the member.
    assert group.members_awaiting_join == 0
    check_group(group)


def test_rebalance_timeout_without_members_is_zero() -> None:
    """No member has a timeout that could be the largest, so the result is 0 (BEHAVIOUR 4.8)."""
    assert empty_group().rebalance_timeout_ms == 0


def test_removing_the_leader_elects_a_remaining_member() -> None:
    """A group has a leader exactly while it has members (BEHAVIOUR 4.3)."""
    group = preparing(member("a"), member("b"))
    assert group.leader_id == "a"
    group.remove("a")
    assert group.leader_id == "b"
    group.remove("b")
    assert group.leader_id is None
    check_group(group)


@pytest.mark.parametrize(
    "leaves", [True, False], ids=["the leader leaves", "the leader does not rejoin"]
)
def test_successor_of_a_leader_follows_the_hash_order_of_ids(leaves: bool) -> None:
    """The hashes of the member ids decide who becomes leader, not the order of their arrival.

    Kafka promises no particular successor (BEHAVIOUR 0). The test tries ten sets of ids with three
    members each. If the same ids arrive in reversed order, the same member must be elected. And the
    oldest, the middle and the newest member must each be elected at least once.
    """

    def successor(ids: list[str]) -> str | None:
        group = preparing(member("leader"), *(member(member_id) for member_id in ids))
        if leaves:
            group.remove("leader")
        else:
            group.unpark_join(group.members["leader"])
            assert group.elect_joined_leader()
        return group.leader_id

    elected_ages = set()
    for run in range(10):
        ids = [f"{age}-{run}" for age in ("old", "middle", "new")]
        elected = successor(ids)
        assert elected is not None
        assert successor(ids[::-1]) == elected
        elected_ages.add(elected.split("-")[0])
    assert elected_ages == {"old", "middle", "new"}


def test_elect_joined_leader_prefers_the_leader_then_any_joined_member() -> None:
    """A leader that has not rejoined is replaced by a member that has rejoined (BEHAVIOUR 3.2).

    A member has rejoined if its JoinGroup is parked.
    """
    group = preparing(member("a"), member("b"), member("c"))
    assert group.elect_joined_leader()
    assert group.leader_id == "a"

    # Only b has rejoined.
    group.unpark_join(group.members["a"])
    group.unpark_join(group.members["c"])
    assert group.elect_joined_leader()
    assert group.leader_id == "b"

    # No member has rejoined, so no member can be elected.
    group.unpark_join(group.members["b"])
    assert not group.elect_joined_leader()


def test_replaced_static_member_keeps_leadership_instance_and_assignment() -> None:
    """A static member that restarts gets a new member id, here b instead of a.

    Parked requests of a must be answered, too. A story in scenarios/static.txt shows this.

    GM-41: replacing a static member: leader, instance, parked requests
    """
    group = preparing(member("a", instance="i"))
    group.members["a"].assignment = b"mine"
    group.replace_static_member("i", "a", "b")
    assert list(group.members) == ["b"]
    assert group.leader_id == "b"
    assert group.static_members == {"i": "b"}
    assert group.members["b"].assignment == b"mine"
    check_group(group)


def test_replace_unknown_static_member_raises() -> None:
    """No member has the instance id `i`, so only a bug can ask for a replacement.

    GM-40: replacing a static member that is none
    """
    with pytest.raises(IllegalTransition, match="no member to replace"):
        empty_group().replace_static_member("i", "a", "b")


def test_add_same_instance_twice_raises_and_changes_nothing() -> None:
    """Two members cannot have the same instance id.

    GM-53: the same instance id twice
    """
    group = preparing(member("a", instance="i"))
    with pytest.raises(IllegalTransition, match="instance i"):
        group.add(member("b", instance="i"))
    assert list(group.members) == ["a"]
    check_group(group)


def test_add_member_with_other_protocols_raises_and_changes_nothing() -> None:
    """The JoinGroup handler refuses a member without a common protocol, so only a bug adds it."""
    group = preparing(member("a", "range"))
    with pytest.raises(IllegalTransition, match="does not support"):
        group.add(member("b", "blah", instance="i"))
    assert list(group.members) == ["a"]
    assert group.static_members == {}  # the instance id was not stored
    check_group(group)


def test_pending_id_becomes_a_member_or_is_removed() -> None:
    """An id is no longer pending when its client joins with it, or when it is removed.

    GM-50: a member's id cannot become pending
    GM-51: pending id that becomes a member is pending no more
    GM-52: removed id is pending no more
    """
    group = preparing()
    group.add_pending_member("a")
    group.add(member("a"))
    assert not group.pending_members

    with pytest.raises(IllegalTransition, match="member already"):
        group.add_pending_member("a")

    group.add_pending_member("b")
    group.remove("b")
    assert not group.pending_members


def test_only_members_can_owe_a_sync_group() -> None:
    """The group keeps the ids of the members that have not sent their SyncGroup yet.

    GM-54: who is no member cannot owe a SyncGroup
    GM-55: who is no member cannot have sent one
    GM-56: member owes a SyncGroup until it sends it
    GM-57: removed member owes none
    """
    group = preparing(member("a"))
    for method in (group.add_pending_sync_member, group.remove_pending_sync_member):
        with pytest.raises(IllegalTransition, match="no member"):
            method("unknown")
    group.add_pending_sync_member("a")
    group.remove_pending_sync_member("a")
    assert not group.pending_sync_members

    group.add_pending_sync_member("a")
    group.remove("a")
    assert not group.pending_sync_members


def test_join_phase_waits_for_members_and_for_pending_ids() -> None:
    """All members have joined when each member's JoinGroup is parked, and no id is pending.

    A group without members has nothing to wait for.

    GM-42: parked JoinGroup is answered once
    """
    group = preparing(member("a"))
    assert group.has_all_members_joined

    group.add_pending_member("b")
    assert not group.has_all_members_joined
    group.remove("b")

    group.unpark_join(group.members["a"])
    assert not group.has_all_members_joined
    group.remove("a")
    assert group.has_all_members_joined


def test_second_parked_join_replaces_the_first() -> None:
    """A member that sends JoinGroup twice gets no answer to its first request (BEHAVIOUR 0.1)."""
    group = preparing(member("a"))
    group.park_join(group.members["a"], ParkedJoin(request_id=RequestId(7), api_version=9))
    assert group.members_awaiting_join == 1
    parked = group.unpark_join(group.members["a"])
    assert parked is not None
    assert parked.request_id == 7
    assert group.unpark_join(group.members["a"]) is None
    assert group.members_awaiting_join == 0


def test_member_metadata_is_not_listed_while_a_rebalance_is_prepared() -> None:
    """In PreparingRebalance the subscriptions of the members may still change (BEHAVIOUR 4.9)."""
    with pytest.raises(IllegalTransition, match="PreparingRebalance"):
        preparing(member("a")).current_member_metadata()


# -- answers to parked requests --


def new_turn() -> Turn:
    """Return a turn: an object in which the coordinator collects its replies to one input."""
    return Turn(CoordinatorHarness().coordinator._shared, 0)


def test_parked_join_is_answered_once_and_no_longer_counted() -> None:
    """A second answer finds no parked JoinGroup, and does nothing.

    GM-42: parked JoinGroup is answered once
    GM-44: no JoinGroup parked: nothing is answered
    """
    group = preparing(member("a"), member("b"))
    turn = new_turn()
    response = JoinGroupResponse(generation_id=1, member_id="a")
    for _ in range(2):
        answer_parked_join(turn, group, group.members["a"], response)
        replies = [(reply.request_id, reply.response) for reply in turn.result.replies]
        assert replies == [(0, response)]  # the JoinGroup of `a` has the request id 0
        assert group.members_awaiting_join == 1
        assert not group.has_all_members_joined
    assert group.members["a"].awaiting_join is None


def test_parked_join_that_fails_is_answered_once_with_the_given_member_id() -> None:
    """At the second error no JoinGroup is parked any more, so the member gets only the first error.

    GM-44: no JoinGroup parked: nothing is answered
    """
    group = preparing(member("a"))
    turn = new_turn()
    for error in (ErrorCode.NOT_COORDINATOR, ErrorCode.UNKNOWN_MEMBER_ID):
        fail_parked_join(turn, group, group.members["a"], "given id", error)
    assert [reply.response for reply in turn.result.replies] == [
        JoinGroupResponse(error_code=ErrorCode.NOT_COORDINATOR, member_id="given id")
    ]


def test_parked_sync_is_answered_once_and_the_caller_learns_whether_it_was() -> None:
    """At the second call no SyncGroup is parked any more, so there is nothing to answer.

    GM-46: parked SyncGroup is answered once
    GM-47: no SyncGroup parked: nothing is answered
    """
    group = preparing(member("a"))
    group.members["a"].awaiting_sync = RequestId(7)
    turn = new_turn()
    response = SyncGroupResponse(assignment=b"mine")
    assert answer_parked_sync(turn, group, group.members["a"], response) is True
    assert answer_parked_sync(turn, group, group.members["a"], response) is False
    replies = [(reply.request_id, reply.response) for reply in turn.result.replies]
    assert replies == [(7, response)]


def test_offsets_of_a_rebalancing_or_just_emptied_group_do_not_expire() -> None:
    """The retention of an Empty group's offsets counts from the time at which it became Empty.

    Here the retention is one day.

    - Day 0: the offset is committed.
    - Day 5: the last member leaves the group, and it becomes Empty.
    - Day 6: the offset expires, unless the group has members again.
    - Day 9: while the group rebalances, it keeps all its offsets. When it is Stable, it keeps the
      offsets of the topics to which its members subscribe. Member b subscribes to the topic.

    GM-26: offsets do not expire right after the group was emptied, nor while it rebalances
    """
    day_ms = 24 * 3_600_000
    group = preparing(member("a", metadata=subscription("bar")))
    old = OffsetCommitValue(offset=1, commit_timestamp_ms=0)
    group.offsets.load(TopicPartition("foo", 0), CommittedOffset(0, old))

    def expired_count(now_ms: int) -> int:
        return len(expired_offsets(group, now_ms=now_ms, retention_ms=day_ms))

    # The only member leaves, and the join phase ends without members. So the group becomes Empty.
    group.remove("a")
    group.init_next_generation(
        now_us=5 * day_ms * 1_000, cause=GroupStateCause.ALL_JOINED, trace=[]
    )
    assert (group.state, expired_count(5 * day_ms)) == (GroupState.EMPTY, 0)
    assert expired_count(6 * day_ms - 1) == 0
    assert expired_count(6 * day_ms) == 1

    group.transition_to(
        GroupState.PREPARING_REBALANCE, now_us=0, cause=RebalanceCause.JOIN, trace=[]
    )
    group.add(member("b", metadata=subscription("foo")))
    assert expired_count(9 * day_ms) == 0

    group.init_next_generation(now_us=0, cause=GroupStateCause.ALL_JOINED, trace=[])
    assert (group.state, expired_count(9 * day_ms)) == (GroupState.COMPLETING_REBALANCE, 0)
    group.transition_to(
        GroupState.STABLE, now_us=0, cause=GroupStateCause.ASSIGNMENT_STORED, trace=[]
    )
    assert expired_count(9 * day_ms) == 0
