"""Fifty groups of twenty-five members at once, with random latencies (BEHAVIOUR 10.4).

Kafka's test looks for deadlocks between threads; here it is the order of arrival that is drawn:
no operation may fail, be answered twice or never, or leave a group in a state of its own.
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


async def join_and_sync(groups: ConcurrentGroups) -> None:
    """Bring every group to Stable, with one leader who knows all members."""
    assert await groups.all_do(ClientMember.join) == ALL_FINE
    for group_id in group_ids():
        answers = [m.joined for m in groups.members if m.group_id == group_id]
        joined = [each for each in answers if each is not None]
        assert len(joined) == MEMBERS
        assert {each.generation_id for each in joined} == {1}
        (leader,) = {each.leader for each in joined}
        lists = {each.member_id: len(each.members) for each in joined if each.members}
        assert lists == {leader: MEMBERS}
    assert await groups.all_do(ClientMember.sync) == ALL_FINE
    described = await groups.described()
    assert {group.group_state for group in described.values()} == {"Stable"}


async def leave(groups: ConcurrentGroups) -> None:
    """Let everyone leave, which empties every group."""
    assert await groups.all_do(ClientMember.leave) == ALL_FINE
    described = await groups.described()
    assert {(g.group_state, len(g.members)) for g in described.values()} == {("Empty", 0)}


@pytest.mark.parametrize("seed", [1, 2])
def test_operations_in_order_by_all_members_at_once(seed: int) -> None:
    """Each is fine, and what was committed is fetched.

    CO-1: 50 groups of 25: all operations in order, concurrently
    """
    groups = ConcurrentGroups(seed=seed)

    async def main() -> None:
        await join_and_sync(groups)
        assert await groups.all_do(ClientMember.fetch) == ALL_FINE
        assert await groups.all_do(ClientMember.commit) == ALL_FINE
        assert await groups.all_do(ClientMember.heartbeat) == ALL_FINE
        for member in groups.members[:: MEMBERS // 5]:
            assert await member.fetched() == (NONE, member.index)
        await leave(groups)

    groups.run(main())


def test_transactional_commits_by_all_members_at_once() -> None:
    """Each in a transaction of its own; the markers let them count.

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
    """Whatever comes first, every request is answered, and with what a member may be told.

    Then everyone joins once more, and every group is as if nothing had been.

    CO-3: same in random interleavings
    """
    groups = ConcurrentGroups(seed=seed, rebalance_timeout_ms=5_000, delay_ms=100)
    operations = (
        ClientMember.join,
        ClientMember.sync,
        ClientMember.fetch,
        ClientMember.commit,
        ClientMember.heartbeat,
        ClientMember.leave,
    )
    may_be_told = {
        NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.REBALANCE_IN_PROGRESS,
    }

    async def main() -> None:
        errors = await groups.all_do_each(operations, shuffled=True, pause_us=300_000)
        assert {group_id: len(each) for group_id, each in errors.items()} == {
            group_id: MEMBERS * len(operations) for group_id in group_ids()
        }
        told = {error for each in errors.values() for error in each}
        assert told <= may_be_told
        assert {NONE, ErrorCode.UNKNOWN_MEMBER_ID} <= told
        await groups.all_do(ClientMember.leave)
        described = await groups.described()
        assert {(g.group_state, len(g.members)) for g in described.values()} == {("Empty", 0)}

    groups.run(main())


def test_groups_of_one_member_that_all_want_to_be() -> None:
    """Whoever comes first, and nobody else.

    CO-4: 50 groups of at most one member, all join at once
    """
    groups = ConcurrentGroups(seed=6, max_size=1)
    one = sorted([NONE, *[ErrorCode.GROUP_MAX_SIZE_REACHED] * (MEMBERS - 1)])

    async def main() -> None:
        errors = await groups.all_do(ClientMember.join)
        assert [sorted(each) for each in errors.values()] == [one] * GROUPS
        described = await groups.described()
        assert {len(group.members) for group in described.values()} == {1}

    groups.run(main())
