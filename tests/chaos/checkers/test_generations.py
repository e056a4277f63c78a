"""The generations checker finds illegal commits, repeated generations and shared partitions.

A generation is the group between two rebalances. Only its members may commit in it, each partition
has one owner, and the next generation has a greater number. A static member has a configured
instance id, which keeps its place through a restart. A coordinator that takes a group over loads it
from a log, and unloads it when it is replaced. "Planted bug" in a docstring names a bug that the
test would find.
"""

import pytest

from chaos.checkers.context import CheckContext, GroupExpectation
from chaos.checkers.generations import Generations
from protocol.trace import TraceKind
from results_schema.results import CheckOutcome, CheckReport
from tests.support.builders.rows import OFFSETS_0, Rows

C0, C1 = "consumer-g-0", "consumer-g-1"
M0, M1 = f"{C0}-id", f"{C1}-id"
CONTEXT = CheckContext(
    groups={"g": GroupExpectation(consumers=(C0, C1), offsets_partition=OFFSETS_0, commits=True)}
)


def check(rows: Rows) -> CheckReport:
    checker = Generations(CONTEXT)
    for row in rows.rows:
        checker.observe(row)
    return checker.finish()


def stable_group() -> Rows:
    """Return rows of group g at broker-0: generation 1, M0 with t-0 and M1 with t-1."""
    rows = Rows()
    rows.load_started(0.1, "broker-0", leader_epoch=0)
    rows.member_added(1, "broker-0", M0)
    rows.member_added(1.1, "broker-0", M1)
    rows.generation_started(4, "broker-0", generation=1, members=(M0, M1))
    rows.assigned(4.1, C0, names=["t-0"], peer="broker-0")
    rows.assigned(4.1, C1, names=["t-1"], peer="broker-0")
    return rows


def commit(rows: Rows, time_s: float, member: str, generation: int) -> None:
    """Let broker-0 accept a commit (begin its append), and store it 2 ms later."""
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
    """Planted bug: the guard `generation_check` is off (a check that Kafka makes).

    So a member that missed a rebalance may commit.
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
    """A commit may wait up to 5 s until all replicas have it; it is judged when it was accepted."""
    rows = stable_group()
    append_id = rows.append_started(9.9, "broker-0", leader_epoch=0, base_offset=5)
    rows.member_removed(9.95, "broker-0", M0, "leave")
    rows.generation_started(10, "broker-0", generation=2, members=(M1,))
    rows.commit_stored(12, "broker-0", M0, generation=1, append_id=append_id)

    assert check(rows).outcome is CheckOutcome.PASS


def test_member_of_the_old_generation_that_rejoins_may_still_commit() -> None:
    """The old generation is valid while the members rejoin (state PreparingRebalance)."""
    rows = stable_group()
    rows.add(9, "broker-0", TraceKind.REBALANCE_STARTED, group="g", generation=1)
    rows.group_state(9, "broker-0", "Stable", "PreparingRebalance", generation=1)
    commit(rows, 9.1, M0, generation=1)

    assert check(rows).outcome is CheckOutcome.PASS


def accept_in_transaction(rows: Rows, time_s: float, member: str, generation: int) -> None:
    """Let the coordinator accept an offset of the member's transaction; it is not stored yet."""
    rows.add(
        time_s + 0.002,
        "broker-0",
        TraceKind.TXN_COMMIT_PENDING,
        correlation_id=rows.append_started(time_s, "broker-0", leader_epoch=0, base_offset=5),
        group="g",
        member=member,
        partition="t-0",
        offset=100,
        generation=generation,
    )


def test_commit_in_a_transaction_is_judged_at_its_acceptance() -> None:
    """The commit is accepted at 5 s, in generation 1.

    Only at 7 s the transaction's marker, the record that ends the transaction, stores it.
    """
    rows = stable_group()
    accept_in_transaction(rows, 5, M0, generation=1)
    rows.member_removed(6, "broker-0", M0)
    rows.generation_started(6.1, "broker-0", generation=2, members=(M1,))
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
    """Planted bug: TxnOffsetCommit of a member that missed a rebalance (KIP-447)."""
    rows = stable_group()
    rows.generation_started(10, "broker-0", generation=2, members=(M0, M1))
    accept_in_transaction(rows, 11, M0, generation=1)

    report = check(rows)

    assert report.outcome is CheckOutcome.VIOLATED
    assert "in generation 1 while the group was in generation 2" in report.findings[0].summary


def test_simple_consumer_may_commit_only_to_an_empty_group() -> None:
    """A simple consumer, such as an administrator's tool, has member id "" and generation -1."""
    rows = stable_group()
    rows.member_removed(8, "broker-0", M0)
    rows.member_removed(8, "broker-0", M1)
    rows.group_state(8, "broker-0", "PreparingRebalance", "Empty", generation=2)
    commit(rows, 9, "", generation=-1)
    assert check(rows).outcome is CheckOutcome.PASS

    rows = stable_group()
    commit(rows, 9, "", generation=-1)
    assert check(rows).outcome is CheckOutcome.VIOLATED


def test_generation_that_decreases_is_found() -> None:
    """Planted bug: a counter that is reset when the group becomes Empty."""
    rows = stable_group()
    rows.generation_started(10, "broker-0", generation=2, members=(M0, M1))
    rows.generation_started(20, "broker-0", generation=1, members=(M0, M1))

    report = check(rows)

    assert report.outcome is CheckOutcome.VIOLATED
    assert "generation 1 follows generation 2 at broker-0" in report.findings[0].summary


def test_generation_that_begins_twice_is_found() -> None:
    """Planted bug: a join phase that completes without an increment."""
    rows = stable_group()
    rows.generation_started(10, "broker-0", generation=1, members=(M0, M1))

    report = check(rows)

    assert report.outcome is CheckOutcome.VIOLATED
    assert "generation 1 began twice" in report.findings[0].summary


def test_deleted_group_counts_from_the_beginning() -> None:
    """A new group of the same name is another group, so it begins with generation 1 again."""
    rows = stable_group()
    rows.group_state(8, "broker-0", "Empty", "Dead", generation=2)
    rows.member_added(9, "broker-0", M0)
    rows.generation_started(12, "broker-0", generation=1, members=(M0,))
    rows.assigned(12.1, C0, names=["t-0", "t-1"], peer="broker-0")

    assert check(rows).outcome is CheckOutcome.PASS


def test_answer_of_a_deleted_group_is_distinguished_from_its_namesake() -> None:
    """A resumed member (M1) reads an old answer, which is from generation 1 of the deleted group.

    The new group of the same name also has a generation 1, which assigns t-1 to another member. The
    checker distinguishes the groups by the ids of their members.
    """
    rows = stable_group()
    rows.group_state(8, "broker-0", "Empty", "Dead", generation=2)
    rows.member_added(9, "broker-0", "new")
    rows.generation_started(12, "broker-0", generation=1, members=("new",))
    rows.assigned(12.1, C0, names=["t-0", "t-1"], peer="broker-0", member="new")
    rows.assigned(13, C1, names=["t-1"], peer="broker-0", member=M1)

    assert check(rows).outcome is CheckOutcome.PASS


def test_both_sides_of_a_split_brain_may_have_equal_generations() -> None:
    """Each coordinator counts its own generations of the group, so both have a generation 2.

    In a real cluster one coordinator reached generation 14 while the other one was in generation 2
    (section two-lineages of docs/kafka/MEASURED_FAILOVER.md).
    """
    rows = stable_group()
    # The old coordinator, broker-0, goes on with the generations 2 to 7.
    for number in range(2, 8):
        rows.generation_started(10 + number, "broker-0", generation=number, members=(M0, M1))
    # The new one, broker-1, loads generation 1, expires both members after a session (18 s + 45 s),
    # and starts generation 2.
    rows.load_started(17.9, "broker-1", leader_epoch=1)
    rows.group_loaded(18, "broker-1", generation=1, members=(M0, M1))
    rows.member_removed(63, "broker-1", M0)
    rows.member_removed(63, "broker-1", M1)
    rows.generation_started(63.1, "broker-1", generation=2, members=("late-id",))
    # In both generations 2 the partitions are assigned.
    rows.assigned(64, "consumer-g-2", names=["t-0", "t-1"], generation=2, peer="broker-1")
    rows.assigned(64.1, C0, names=["t-0"], generation=2, peer="broker-0")
    rows.assigned(64.1, C1, names=["t-1"], generation=2, peer="broker-0")

    report = check(rows)

    assert report.outcome is CheckOutcome.PASS
    assert report.seen["generations"] == 8  # 1 to 7 at broker-0, and 2 at broker-1


def test_partition_assigned_to_two_members_of_one_generation_is_found() -> None:
    """Planted bug: an assignor that shares a partition."""
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


def test_generation_loaded_by_a_new_coordinator_keeps_its_assignment() -> None:
    """Planted bug: after a failover the same generation has another assignment.

    M0 has t-0 in generation 1, and the new coordinator assigns t-0 to M1.
    """
    rows = stable_group()
    rows.load_started(17.9, "broker-1", leader_epoch=1)
    rows.group_loaded(18, "broker-1", generation=1, members=(M0, M1))
    rows.assigned(19, C1, names=["t-0"], generation=1, peer="broker-1")

    assert check(rows).outcome is CheckOutcome.VIOLATED


def test_generation_of_a_lost_group_differs_from_a_later_one_of_the_same_number() -> None:
    """After the loss of the log a group may begin another generation 1, with a new member.

    Later broker-1 loads a generation 1, and assigns t-0 to its member:

    - If the member is `new-id`, broker-1 has loaded the other generation 1, in which t-0 is free.
    - If the member is M1, broker-1 has loaded the first generation 1, in which t-0 belongs to M0.

    The file tests/corpus/generation_begun_again_and_never_acknowledged.yaml plays such a run.
    """
    for member, outcome in (("new-id", CheckOutcome.PASS), (M1, CheckOutcome.VIOLATED)):
        rows = stable_group()
        rows.load_started(20, "broker-0", leader_epoch=4)
        if member == "new-id":
            rows.generation_started(25, "broker-0", generation=1, members=("new-id",))
        rows.load_started(40, "broker-1", leader_epoch=6)
        rows.group_loaded(40.1, "broker-1", generation=1, members=(member,))
        rows.assigned(41, C0, names=["t-0"], peer="broker-1", member=member)

        assert check(rows).outcome is outcome


def test_restarted_static_member_keeps_its_partitions() -> None:
    """The restart changes the member id, but neither the generation nor the partitions."""
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
    """A commit is judged by the loaded members; after the unload no members are known."""
    rows = Rows()
    rows.load_started(0.1, "broker-0", leader_epoch=0)
    rows.group_loaded(0.2, "broker-0", generation=7, members=(M0,))
    commit(rows, 1, M0, generation=7)
    commit(rows, 2, M1, generation=7)  # M1 is no member: the one finding
    rows.unloaded(3, "broker-0", leader_epoch=1)
    commit(rows, 4, M0, generation=7)

    report = check(rows)

    assert report.findings_total == 1
    assert report.seen["offsets_judged"] == 2
    assert report.seen["offsets_of_unknown_start"] == 1


def test_run_without_members_reports_that_nothing_was_judged() -> None:
    """Without members nothing can break the promise, so the outcome must not be a pass."""
    assert check(Rows()).outcome is CheckOutcome.NOTHING_SEEN


# -- members in their own rows --


def complete_join(rows: Rows, time_s: float, generation: int) -> None:
    """Let C0 complete a join: it is now the member M0 of `generation`."""
    rows.member_state(time_s, C0, "STABLE", before="COMPLETING_REBALANCE", generation=generation)


def test_partitions_of_the_joined_generation_pass() -> None:
    """The member gets and gives up partitions in generation 1, then gets some in generation 2."""
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
    """Planted bug: a member has the identity of an earlier join, or no identity.

    C0 has joined generation 2 as M0.
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
    """Planted bug: a revocation names the generation of the next join.

    C0 gives up partitions of generation 1 as a member of generation 2. With `lost` it loses them
    instead of revoking them.
    """
    rows = stable_group()
    rows.revoked(6, C0, lost=lost, generation=2)

    (finding,) = check(rows).findings

    assert "gives up partitions as" in finding.summary
