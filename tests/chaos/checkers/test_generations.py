"""The generations checker judges commits and assignments by the generation that they belong to.

A violation is one of these:

1. The coordinator accepts a commit of a client that is no member of the current generation.
2. The number of a generation is not greater than that of the generation before.
3. Two members of one generation own the same partition.
4. A member gets or gives up partitions in another generation than the one that it has joined.

Each test writes the trace of a small group by hand, and lets the checker judge the trace. Where a
docstring says "Planted bug", it describes a bug of a coordinator or a consumer that would leave
such a trace. The first number of each row is its time in seconds.
"""

import pytest

from chaos.checkers.context import CheckContext, GroupExpectation
from chaos.checkers.generations import Generations
from protocol.trace import TraceKind
from results_schema.results import CheckOutcome, CheckReport
from tests.support.builders.rows import OFFSETS_0, Rows

# The consumers of the group, and the ids that they have as its members.
C0, C1 = "consumer-g-0", "consumer-g-1"
M0, M1 = f"{C0}-id", f"{C1}-id"
CONTEXT = CheckContext(
    groups={"g": GroupExpectation(consumers=(C0, C1), offsets_partition=OFFSETS_0, commits=True)}
)


def check(rows: Rows) -> CheckReport:
    """Return the checker's report of the rows.

    `seen` of the report counts the cases that the checker had to judge.
    """
    checker = Generations(CONTEXT)
    for row in rows.rows:
        checker.observe(row)
    return checker.finish()


def stable_group() -> Rows:
    """Return rows of the group g, whose coordinator is broker-0.

    In generation 1, M0 has t-0, and M1 has t-1.
    """
    rows = Rows()
    rows.load_started(0.1, "broker-0", leader_epoch=0)
    rows.member_added(1, "broker-0", M0)
    rows.member_added(1.1, "broker-0", M1)
    rows.generation_started(4, "broker-0", generation=1, members=(M0, M1))
    rows.assigned(4.1, C0, names=["t-0"], peer="broker-0")
    rows.assigned(4.1, C1, names=["t-1"], peer="broker-0")
    return rows


def commit(rows: Rows, time_s: float, member: str, generation: int) -> None:
    """Let broker-0 accept a commit, and store it 2 ms later.

    The coordinator accepts a commit when it begins to append the commit to its log. The checker
    does not look at the offset of this append, so all commits have the same `base_offset`.
    """
    append_id = rows.append_started(time_s, "broker-0", leader_epoch=0, base_offset=5)
    rows.commit_stored(
        time_s + 0.002, "broker-0", member, generation=generation, append_id=append_id
    )


def test_commits_of_current_members_pass() -> None:
    """Each of the two members commits once in its generation."""
    rows = stable_group()
    commit(rows, 5, M0, generation=1)
    commit(rows, 5.1, M1, generation=1)

    report = check(rows)

    assert report.outcome is CheckOutcome.PASS
    assert report.seen["offsets_judged"] == 2
    assert report.seen["partitions_assigned_in_all_generations"] == 2


def test_commit_of_an_older_generation_is_found() -> None:
    """Planted bug: the coordinator accepts the commit of a member that has missed a rebalance.

    Kafka refuses such a commit, because the commit names an older generation. A user of the lab can
    switch this refusal off with the guard `generation_check`.
    """
    rows = stable_group()
    rows.generation_started(10, "broker-0", generation=2, members=(M0, M1))
    commit(rows, 11, M0, generation=1)

    report = check(rows)

    assert report.outcome is CheckOutcome.VIOLATED
    (finding,) = report.findings
    assert "in generation 1 while the group was in generation 2" in finding.summary
    assert [row.kind for row in finding.evidence] == [
        TraceKind.GENERATION_STARTED,
        TraceKind.COMMIT_STORED,
    ]


def test_commit_of_a_removed_member_is_found_with_its_removal() -> None:
    """Planted bug: the coordinator does not check that the committer is a member."""
    rows = stable_group()
    rows.member_removed(8, "broker-0", M1)
    rows.generation_started(10, "broker-0", generation=2, members=(M0,))
    commit(rows, 11, M1, generation=2)

    report = check(rows)

    assert report.outcome is CheckOutcome.VIOLATED
    (finding,) = report.findings
    assert "of which it was no member" in finding.summary
    assert TraceKind.MEMBER_REMOVED in [row.kind for row in finding.evidence]


def test_commit_accepted_before_a_rebalance_and_stored_after_it_passes() -> None:
    """The coordinator may wait up to 5 s until all replicas have a commit that it has accepted.

    The checker judges the commit by the members at the time when it was accepted, and not at the
    time when it was stored.
    """
    rows = stable_group()
    # The coordinator accepts M0's commit, and then M0 leaves.
    append_id = rows.append_started(9.9, "broker-0", leader_epoch=0, base_offset=5)
    rows.member_removed(9.95, "broker-0", M0, "leave")
    rows.generation_started(10, "broker-0", generation=2, members=(M1,))
    rows.commit_stored(12, "broker-0", M0, generation=1, append_id=append_id)

    assert check(rows).outcome is CheckOutcome.PASS


def test_member_of_the_old_generation_that_rejoins_may_still_commit() -> None:
    """The old generation stays valid while the group is in PreparingRebalance.

    In this state the members rejoin, and the new generation has not begun yet. So the commit of M0
    in generation 1 is right.
    """
    rows = stable_group()
    rows.add(9, "broker-0", TraceKind.REBALANCE_STARTED, group="g", generation=1)
    rows.group_state(9, "broker-0", "Stable", "PreparingRebalance", generation=1)
    commit(rows, 9.1, M0, generation=1)

    assert check(rows).outcome is CheckOutcome.PASS


def accept_in_transaction(rows: Rows, time_s: float, member: str, generation: int) -> None:
    """Let the coordinator accept an offset that the member commits in a transaction.

    The offset is stored only at the end of the transaction.
    """
    append_id = rows.append_started(time_s, "broker-0", leader_epoch=0, base_offset=5)
    rows.add(
        time_s + 0.002,
        "broker-0",
        TraceKind.TXN_COMMIT_PENDING,
        correlation_id=append_id,
        group="g",
        member=member,
        partition="t-0",
        offset=100,
        generation=generation,
    )


def test_commit_in_a_transaction_is_judged_at_its_acceptance() -> None:
    """The coordinator accepts the commit at 5 s, when M0 is a member of generation 1.

    The commit is stored when the transaction ends, at 7 s. By then M0 is no member any more, but
    the commit is right.
    """
    rows = stable_group()
    accept_in_transaction(rows, 5, M0, generation=1)
    rows.member_removed(6, "broker-0", M0)
    rows.generation_started(6.1, "broker-0", generation=2, members=(M1,))
    # The end of the transaction stores the commit.
    rows.add(
        7,
        "broker-0",
        TraceKind.COMMIT_STORED,
        group="g",
        member=M0,
        partition="t-0",
        offset=100,
        generation=1,
    )

    report = check(rows)

    assert report.outcome is CheckOutcome.PASS
    assert report.seen["offsets_judged"] == 1


def test_commit_in_a_transaction_of_an_older_generation_is_found() -> None:
    """Planted bug: the coordinator accepts a TxnOffsetCommit of a member that missed a rebalance.

    Since KIP-447 this request names the generation, so that the coordinator can refuse it.
    """
    rows = stable_group()
    rows.generation_started(10, "broker-0", generation=2, members=(M0, M1))
    accept_in_transaction(rows, 11, M0, generation=1)

    report = check(rows)

    assert report.outcome is CheckOutcome.VIOLATED
    assert "in generation 1 while the group was in generation 2" in report.findings[0].summary


def test_simple_consumer_may_commit_only_to_an_empty_group() -> None:
    """A simple consumer commits without being a member, as an administrator's tool does.

    Its requests have the member id "" and the generation -1.
    """
    empty_group = stable_group()
    empty_group.member_removed(8, "broker-0", M0)
    empty_group.member_removed(8, "broker-0", M1)
    empty_group.group_state(8, "broker-0", "PreparingRebalance", "Empty", generation=2)
    commit(empty_group, 9, "", generation=-1)
    assert check(empty_group).outcome is CheckOutcome.PASS

    group_with_members = stable_group()
    commit(group_with_members, 9, "", generation=-1)
    assert check(group_with_members).outcome is CheckOutcome.VIOLATED


def test_generation_that_decreases_is_found() -> None:
    """Planted bug: the coordinator counts from 1 again after the group was empty."""
    rows = stable_group()
    rows.generation_started(10, "broker-0", generation=2, members=(M0, M1))
    rows.generation_started(20, "broker-0", generation=1, members=(M0, M1))

    report = check(rows)

    assert report.outcome is CheckOutcome.VIOLATED
    assert "generation 1 follows generation 2 at broker-0" in report.findings[0].summary


def test_generation_that_begins_twice_is_found() -> None:
    """Planted bug: the coordinator completes a rebalance, but does not increase the generation."""
    rows = stable_group()
    rows.generation_started(10, "broker-0", generation=1, members=(M0, M1))

    report = check(rows)

    assert report.outcome is CheckOutcome.VIOLATED
    assert "generation 1 began twice" in report.findings[0].summary


def test_deleted_group_counts_from_the_beginning() -> None:
    """A new group of the same name is another group, so it begins with generation 1 again."""
    rows = stable_group()
    # All members have left, which has made generation 2. Then the group is deleted.
    rows.group_state(8, "broker-0", "Empty", "Dead", generation=2)
    rows.member_added(9, "broker-0", M0)
    rows.generation_started(12, "broker-0", generation=1, members=(M0,))
    rows.assigned(12.1, C0, names=["t-0", "t-1"], peer="broker-0")

    assert check(rows).outcome is CheckOutcome.PASS


def test_answer_of_a_deleted_group_is_distinguished_from_its_namesake() -> None:
    """A deleted group and a new group of the same name both assign t-1 in a generation 1.

    1. In the deleted group t-1 is assigned to M1. But the process of M1, C1, is paused before it
       reads this answer of the coordinator.
    2. In the new group t-1 is assigned to the member "new".
    3. C1 resumes, and only now reads the answer of the deleted group.

    This is no violation. The checker distinguishes the two groups by the ids of their members.
    """
    rows = stable_group()
    rows.group_state(8, "broker-0", "Empty", "Dead", generation=2)
    rows.member_added(9, "broker-0", "new")
    rows.generation_started(12, "broker-0", generation=1, members=("new",))
    rows.assigned(12.1, C0, names=["t-0", "t-1"], peer="broker-0", member="new")
    # M1 reads the old answer.
    rows.assigned(13, C1, names=["t-1"], peer="broker-0", member=M1)

    assert check(rows).outcome is CheckOutcome.PASS


def test_both_sides_of_a_split_brain_may_have_equal_generations() -> None:
    """In a split brain two brokers coordinate the group, and each counts its own generations.

    So both have a generation 2. In a real cluster one coordinator reached generation 14 while the
    other one was in generation 2 (section two-lineages of docs/kafka/MEASURED_FAILOVER.md).
    """
    rows = stable_group()
    # The old coordinator, broker-0, goes on with the generations 2 to 7.
    for number in range(2, 8):
        rows.generation_started(10 + number, "broker-0", generation=number, members=(M0, M1))
    # The new coordinator, broker-1, loads generation 1 at 18 s. It gets no request of the two
    # members, so it removes them at the end of their sessions (18 s + 45 s). For a third member,
    # "late-id", it starts generation 2.
    rows.load_started(17.9, "broker-1", leader_epoch=1)
    rows.group_loaded(18, "broker-1", generation=1, members=(M0, M1))
    rows.member_removed(63, "broker-1", M0)
    rows.member_removed(63, "broker-1", M1)
    rows.generation_started(63.1, "broker-1", generation=2, members=("late-id",))
    # Each coordinator assigns both partitions in its own generation 2.
    rows.assigned(64, "consumer-g-2", names=["t-0", "t-1"], generation=2, peer="broker-1")
    rows.assigned(64.1, C0, names=["t-0"], generation=2, peer="broker-0")
    rows.assigned(64.1, C1, names=["t-1"], generation=2, peer="broker-0")

    report = check(rows)

    assert report.outcome is CheckOutcome.PASS
    assert report.seen["generations"] == 8  # 1 to 7 at broker-0, and 2 at broker-1


def test_partition_assigned_to_two_members_of_one_generation_is_found() -> None:
    """Planted bug: the assignor gives t-1 to both members."""
    rows = stable_group()
    rows.generation_started(10, "broker-0", generation=2, members=(M0, M1))
    rows.assigned(10.1, C0, names=["t-0", "t-1"], generation=2, peer="broker-0")
    rows.assigned(10.1, C1, names=["t-1"], generation=2, peer="broker-0")

    report = check(rows)

    assert report.outcome is CheckOutcome.VIOLATED
    (finding,) = report.findings
    assert finding.partition == "t-1"
    assert [row.kind for row in finding.evidence] == [
        TraceKind.GENERATION_STARTED,
        TraceKind.PARTITIONS_ASSIGNED,
        TraceKind.PARTITIONS_ASSIGNED,
    ]


def test_loaded_generation_with_another_assignment_is_found() -> None:
    """Planted bug: a new coordinator loads a generation, but not its assignment.

    In generation 1, t-0 belongs to M0. The new coordinator, broker-1, loads generation 1, but then
    gives t-0 to M1.
    """
    rows = stable_group()
    rows.load_started(17.9, "broker-1", leader_epoch=1)
    rows.group_loaded(18, "broker-1", generation=1, members=(M0, M1))
    rows.assigned(19, C1, names=["t-0"], generation=1, peer="broker-1")

    assert check(rows).outcome is CheckOutcome.VIOLATED


def test_generation_of_a_lost_group_differs_from_a_later_one_of_the_same_number() -> None:
    """A group that was lost with its log may begin another generation 1, with a new member.

    In the first generation 1, t-0 belongs to M0. Then broker-1 loads a generation 1 with a single
    member, to which it assigns t-0:

    - If this member is `new-id`, broker-1 has loaded the second generation 1, in which t-0 had no
      owner yet. The assignment is right.
    - If this member is M1, broker-1 has loaded the first generation 1. The assignment is wrong.

    The file tests/corpus/generation_begun_again_and_never_acknowledged.yaml is an experiment with a
    second generation 1.
    """
    for member, outcome in (("new-id", CheckOutcome.PASS), (M1, CheckOutcome.VIOLATED)):
        rows = stable_group()
        # broker-0 loads its log, which has lost the group.
        rows.load_started(20, "broker-0", leader_epoch=4)
        if member == "new-id":
            rows.generation_started(25, "broker-0", generation=1, members=("new-id",))
        rows.load_started(40, "broker-1", leader_epoch=6)
        rows.group_loaded(40.1, "broker-1", generation=1, members=(member,))
        rows.assigned(41, C0, names=["t-0"], peer="broker-1", member=member)

        assert check(rows).outcome is outcome


def test_restarted_static_member_keeps_its_partitions() -> None:
    """A static member is known by its `group.instance.id`, here i-0.

    When it restarts, it gets a new member id. But the generation and the partitions of the static
    member stay the same.
    """
    rows = Rows()
    rows.load_started(0.1, "broker-0", leader_epoch=0)
    rows.member_added(1, "broker-0", "old", instance="i-0")
    rows.generation_started(4, "broker-0", generation=1, members=("old",))
    rows.assigned(4.1, C0, names=["t-0"], peer="broker-0", member="old")
    # The restart: the id `new` replaces the id `old` in generation 1.
    replaced = "static member i-0 replaced"
    rows.member_removed(20, "broker-0", "old", replaced, instance="i-0")
    rows.member_added(20, "broker-0", "new", generation=1, instance="i-0")
    rows.assigned(20.1, C0, names=["t-0"], peer="broker-0", member="new")
    commit(rows, 21, "new", generation=1)

    report = check(rows)

    assert report.outcome is CheckOutcome.PASS
    assert report.seen["offsets_judged"] == 1


def test_commits_at_a_coordinator_that_has_loaded_the_group_are_judged() -> None:
    """The coordinator has loaded a group whose only member is M0.

    So the checker can judge commits. Once the coordinator has unloaded the group, the checker does
    not know the members of the group any more, and only counts a commit.
    """
    rows = Rows()
    rows.load_started(0.1, "broker-0", leader_epoch=0)
    rows.group_loaded(0.2, "broker-0", generation=7, members=(M0,))
    commit(rows, 1, M0, generation=7)
    commit(rows, 2, M1, generation=7)  # the only finding, because M1 is no member
    rows.unloaded(3, "broker-0", leader_epoch=1)
    commit(rows, 4, M0, generation=7)  # not judged

    report = check(rows)

    assert report.findings_total == 1
    assert report.seen["offsets_judged"] == 2
    assert report.seen["offsets_of_unknown_start"] == 1


def test_run_without_members_reports_that_nothing_was_judged() -> None:
    """Without members nothing can break the promise. So the outcome must not be PASS."""
    assert check(Rows()).outcome is CheckOutcome.NOTHING_SEEN


# -- rows that members write when they get or give up partitions --


def complete_join(rows: Rows, time_s: float, generation: int) -> None:
    """Let C0 complete a join: it is now the member M0 of `generation`."""
    rows.member_state(time_s, C0, "STABLE", before="COMPLETING_REBALANCE", generation=generation)


def test_partitions_of_the_joined_generation_pass() -> None:
    """C0 gets and revokes t-0 in generation 1. It gets and loses t-0 in generation 2.

    Each of these rows names the generation that C0 had joined at this time.
    """
    rows = stable_group()
    complete_join(rows, 5, generation=1)
    rows.assigned(5, C0, names=["t-0"], peer="broker-0")
    rows.revoked(9, C0)
    rows.generation_started(10, "broker-0", generation=2, members=(M0, M1))
    complete_join(rows, 10.1, generation=2)
    rows.assigned(10.1, C0, names=["t-0"], generation=2, peer="broker-0")
    rows.revoked(12, C0, lost=True, generation=2)

    assert check(rows).outcome is CheckOutcome.PASS


@pytest.mark.parametrize(("member", "generation"), [(M0, 1), ("", -1), (M1, 2)])
def test_assignment_under_another_identity_than_the_joined_one_is_found(
    member: str, generation: int
) -> None:
    """Planted bug: a consumer gets partitions under an old generation or another member id.

    C0 has joined generation 2 as M0. The row by which it gets partitions must name this member id
    and this generation.
    """
    rows = stable_group()
    complete_join(rows, 10.1, generation=2)
    rows.assigned(10.2, C0, generation=generation, member=member)

    (finding,) = check(rows).findings

    assert finding.summary == (
        f"{C0} gets partitions as {member or 'nobody'} in generation {generation}, but is {M0} in "
        "generation 2"
    )
    assert [row.kind for row in finding.evidence] == [
        TraceKind.MEMBER_STATE,
        TraceKind.PARTITIONS_ASSIGNED,
    ]


@pytest.mark.parametrize("lost", [False, True])
def test_partitions_given_up_under_another_generation_are_found(*, lost: bool) -> None:
    """Planted bug: a consumer gives up its partitions only after it has joined the next generation.

    C0 got its partitions in generation 1, and gives them up in generation 2.
    """
    rows = stable_group()
    rows.revoked(6, C0, lost=lost, generation=2)

    (finding,) = check(rows).findings

    assert "gives up partitions as" in finding.summary
