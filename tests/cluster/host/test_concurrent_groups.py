"""Fifty groups with twenty-five members each, which all send requests at the same time.

The tests follow those with which Kafka looks for deadlocks between the threads of its coordinator.
Our coordinator has no threads. Here the requests take random times instead, so that they arrive in
a random order. Each of them must be answered once, and must leave its group in a legal state. A
line such as "CO-1: ..." says which scenario of docs/kafka/BEHAVIOUR.md 10.4 a test repeats.

    errors = await groups.all_do(ClientMember.join)  # let all members join at the same time
    errors["group-1"]  # the error codes of the answers, such as [NONE, NONE, ...]
"""

import pytest

from protocol.errors import ErrorCode
from tests.support.worlds.concurrent_groups import (
    GROUPS,
    MEMBERS,
    ClientMember,
    ConcurrentGroups,
    group_ids,
)

pytestmark = pytest.mark.slow
NONE = ErrorCode.NONE
ALL_FINE = {group_id: [NONE] * MEMBERS for group_id in group_ids()}
"""The error codes, by group, if every member has succeeded."""


async def join_and_sync(groups: ConcurrentGroups) -> None:
    """Let all members join and sync, so that every group is in the state Stable."""
    assert await groups.all_do(ClientMember.join) == ALL_FINE

    for group_id in group_ids():
        answers = [
            member.joined
            for member in groups.members
            if member.group_id == group_id and member.joined is not None
        ]
        assert len(answers) == MEMBERS
        # The initial rebalance delay lets all members join in the first generation.
        assert {answer.generation_id for answer in answers} == {1}
        (leader,) = {answer.leader for answer in answers}
        # The leader assigns the partitions, so only the answer to the leader lists the members.
        members_in_answer = {
            answer.member_id: len(answer.members) for answer in answers if answer.members
        }
        assert members_in_answer == {leader: MEMBERS}

    assert await groups.all_do(ClientMember.sync) == ALL_FINE
    described = await groups.described()
    assert {group.group_state for group in described.values()} == {"Stable"}


async def leave(groups: ConcurrentGroups) -> None:
    """Let every member leave, so that every group is Empty."""
    assert await groups.all_do(ClientMember.leave) == ALL_FINE
    described = await groups.described()
    assert {(g.group_state, len(g.members)) for g in described.values()} == {("Empty", 0)}


@pytest.mark.parametrize("seed", [1, 2])
def test_operations_in_order_by_all_members_at_once(seed: int) -> None:
    """Each operation succeeds, and the committed offsets can be fetched.

    CO-1: 50 groups of 25: all operations in order, concurrently
    """
    groups = ConcurrentGroups(seed=seed)

    async def main() -> None:
        await join_and_sync(groups)
        # Before the first commit a fetch finds no offset, which is not an error.
        assert await groups.all_do(ClientMember.fetch) == ALL_FINE
        assert await groups.all_do(ClientMember.commit) == ALL_FINE
        assert await groups.all_do(ClientMember.heartbeat) == ALL_FINE
        # Ask only five members of each group; `members` has one group after the other.
        for member in groups.members[:: MEMBERS // 5]:
            # The offset that a member commits is its own index.
            assert await member.fetched() == (NONE, member.index)
        await leave(groups)

    groups.run(main())


def test_transactional_commits_by_all_members_at_once() -> None:
    """Each member commits its offset in a transaction of its own.

    The offset counts when the transaction's marker is written into the offsets partition. Until
    then a fetch of stable offsets is refused, and the member repeats it.

    CO-2: same with transactional commits
    """
    groups = ConcurrentGroups(seed=3)

    async def main() -> None:
        await join_and_sync(groups)
        assert await groups.all_do(ClientMember.commit_in_a_transaction) == ALL_FINE
        assert await groups.all_do(ClientMember.fetch_stable) == ALL_FINE
        assert await groups.all_do(ClientMember.heartbeat) == ALL_FINE
        await leave(groups)

    groups.run(main())


@pytest.mark.parametrize("seed", [4, 5])
def test_operations_in_random_order_by_all_members_at_once(seed: int) -> None:
    """In a random order some operations fail, but each request is answered with a legal error.

    Each member does six operations in a shuffled order, and waits up to 0.3 s before each of them.
    At the end all members leave, and every group must be Empty.

    CO-3: same in random interleavings
    """
    # The rebalance timeout is short, because a rebalance waits for members that do not rejoin.
    # `delay_ms` is Kafka's group.initial.rebalance.delay.ms.
    groups = ConcurrentGroups(seed=seed, rebalance_timeout_ms=5_000, delay_ms=100)
    operations = (
        ClientMember.join,
        ClientMember.sync,
        ClientMember.fetch,
        ClientMember.commit,
        ClientMember.heartbeat,
        ClientMember.leave,
    )
    legal_errors = {
        NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.REBALANCE_IN_PROGRESS,
    }

    async def main() -> None:
        errors = await groups.all_do_each(operations, shuffled=True, pause_us=300_000)
        answers_by_group = {group_id: len(codes) for group_id, codes in errors.items()}
        assert answers_by_group == {group_id: MEMBERS * len(operations) for group_id in group_ids()}
        all_errors = {error for codes in errors.values() for error in codes}
        assert all_errors <= legal_errors
        # A member that has not joined yet gets UNKNOWN_MEMBER_ID. If this error occurred, the order
        # was really shuffled.
        assert {NONE, ErrorCode.UNKNOWN_MEMBER_ID} <= all_errors
        # Members that are not in their group get an error here, which does not matter.
        await groups.all_do(ClientMember.leave)
        described = await groups.described()
        assert {(g.group_state, len(g.members)) for g in described.values()} == {("Empty", 0)}

    groups.run(main())


def test_groups_of_at_most_one_member_accept_the_first() -> None:
    """Each group accepts the first member that joins, and refuses all others.

    CO-4: 50 groups of at most one member, all join at once
    """
    groups = ConcurrentGroups(seed=6, max_size=1)
    one_accepted = [NONE] + [ErrorCode.GROUP_MAX_SIZE_REACHED] * (MEMBERS - 1)

    async def main() -> None:
        errors = await groups.all_do(ClientMember.join)
        assert len(errors) == GROUPS
        for codes in errors.values():
            assert sorted(codes) == sorted(one_accepted)
        described = await groups.described()
        assert {len(group.members) for group in described.values()} == {1}

    groups.run(main())
