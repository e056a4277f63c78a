"""Effects of an administrator's orders: which rows a coordinator must write after an order.

An order is for example the deletion of a group. If the coordinator answers an order with success,
the effects of the order must be in the trace.

The group `g` of these tests reads the topics `t`, with two partitions, and `u`, with one. broker-0
is the coordinator of `g`. The function `stored` returns rows of offsets that broker-0 stores, and
`removed` returns rows of offsets that broker-0 removes. "Planted bug" in a docstring names a bug
that the test would find.
"""

from collections.abc import Sequence

import pytest

from chaos.checkers.context import CheckContext, GroupExpectation
from chaos.checkers.evidence.orders.group_effects import EFFECT_KINDS, GroupEffects
from tests.support.builders.rows import OFFSETS_0, Rows

ALL = ("t-0", "t-1", "u-0")
DELETED = "deleted by an administrator"
GROUP = GroupExpectation(
    consumers=("consumer-g-0",), offsets_partition=OFFSETS_0, commits=True, partitions=ALL
)


def missing_effect(
    before: Rows,
    order: str,
    after: Rows,
    *,
    members: Sequence[str] | None = None,
    is_undisturbed: bool = True,
) -> str | None:
    """Return which effect of an order is missing, or None if no effect is missing.

    The order begins between the rows `before` and the rows `after`.

    - `members` are the members that the order removes. None: they are not known.
    - `is_undisturbed` is True if no fault is in force.
    """
    effects = GroupEffects(CheckContext(groups={"g": GROUP}))
    for row in before.rows:
        if row.kind in EFFECT_KINDS:  # the only kinds that the checker passes on
            effects.observe(row)
    effects.begin("g", order, coordinator="broker-0", members=members)
    for row in after.rows:
        effects.observe(row)
    return effects.find_missing(is_undisturbed=is_undisturbed)


def stored(*partitions: str, member: str = "m-0", generation: int = 1) -> Rows:
    """Return rows of commits that broker-0 stores.

    The commit of an administrator has the empty member id and generation -1.
    """
    rows = Rows()
    for partition in partitions:
        rows.commit_stored(1, "broker-0", member, generation, append_id=5, partition=partition)
    return rows


def removed(*partitions: str, cause: str = DELETED) -> Rows:
    """Return rows of offsets that broker-0 removes."""
    rows = Rows()
    for partition in partitions:
        rows.offset_removed(2, cause=cause, partition=partition)
    return rows


@pytest.mark.parametrize(
    ("partitions", "expected"),
    [
        (ALL, None),
        # The order may be about one topic only.
        (("u-0",), None),
        (("t-0", "t-1"), None),
        (("t-0",), "no offset of t-1 was committed"),
        (("t-1", "u-0"), "no offset of t-0 was committed"),
        ((), "no offset was committed"),
    ],
)
def test_reset_commits_an_offset_of_each_partition_of_its_topics(
    partitions: tuple[str, ...], expected: str | None
) -> None:
    """Planted bug: the administrator's client finds no partition of a topic, or not all partitions.

    An offset is committed for each of `partitions`.
    """
    committed = stored(*partitions, member="", generation=-1)
    assert missing_effect(Rows(), "reset_offsets", committed) == expected


def test_commit_of_a_member_is_no_reset() -> None:
    """A commit by a member of the group, just after the order, is not the order's effect."""
    assert missing_effect(Rows(), "reset_offsets", stored(*ALL)) == "no offset was committed"


def test_reset_in_a_disturbed_cluster_commits_at_least_one_offset() -> None:
    """In a disturbed cluster a broker may not know all partitions yet.

    But if the broker knew no partition, the order would be refused.
    """
    one_offset = stored("t-0", member="", generation=-1)
    assert missing_effect(Rows(), "reset_offsets", one_offset, is_undisturbed=False) is None
    assert missing_effect(Rows(), "reset_offsets", Rows(), is_undisturbed=False) is not None


@pytest.mark.parametrize(
    ("partitions", "expected"),
    [
        (ALL, None),
        # The order may be about one topic only, or the members may still read the other topic.
        (("u-0",), None),
        (("t-0", "t-1"), None),
        (("t-1", "u-0"), "the stored offset of t-0 was kept"),
        # The offset of t-1 was kept, and that of u-0. So no topic is without stored offsets.
        (("t-0",), "the stored offsets of each topic were kept"),
        ((), "the stored offsets of each topic were kept"),
    ],
)
def test_deletion_removes_the_stored_offsets_of_a_topic(
    partitions: tuple[str, ...], expected: str | None
) -> None:
    """Planted bug: the coordinator answers NONE and keeps the offset of a partition."""
    assert missing_effect(stored(*ALL), "delete_offsets", removed(*partitions)) == expected


def test_deletion_needs_no_removal_of_what_is_not_stored() -> None:
    """The offset of t-0 is removed before the order, and that of t-1 expires just after it."""
    before = stored("t-0", "t-1")
    before.rows.extend(removed("t-0").rows)
    assert missing_effect(before, "delete_offsets", removed("t-1", cause="expired")) is None


@pytest.mark.parametrize("forgotten_by", ["load", "death of the group"])
def test_offset_that_may_be_lost_needs_no_removal(forgotten_by: str) -> None:
    """The offset may be gone if it was stored before a load, or in a group that has died since.

    A load means that a coordinator reads the groups of a partition from the partition's log. This
    log may lack the offset.
    """
    before = stored(*ALL)
    if forgotten_by == "load":
        before.load_started(2, "broker-0", leader_epoch=3)
    else:
        before.group_state(2, "broker-0", "Empty", "Dead", cause=DELETED)
    assert missing_effect(before, "delete_offsets", Rows()) is None


def test_deletion_in_a_disturbed_cluster_is_not_judged() -> None:
    """A coordinator that was replaced may have answered, while its successor has the offsets."""
    before = stored(*ALL)
    assert missing_effect(before, "delete_offsets", Rows(), is_undisturbed=False) is None


def test_removal_of_members_removes_each_of_them() -> None:
    """m-1 leaves, which counts as its removal. Then m-0 must be removed, too.

    If the members are not known, no effect is demanded.
    """
    rows = Rows()
    rows.member_removed(2, "broker-0", "m-1", "leave")
    members = ("m-0", "m-1")
    assert missing_effect(Rows(), "remove_members", rows, members=members) == "m-0 was not removed"
    rows.member_removed(2, "broker-0", "m-0", "leave")
    assert missing_effect(Rows(), "remove_members", rows, members=members) is None
    assert missing_effect(Rows(), "remove_members", Rows(), members=None) is None


@pytest.mark.parametrize(("cause", "is_missing"), [(DELETED, False), ("expired", True)])
def test_deletion_of_a_group_makes_it_dead(cause: str, *, is_missing: bool) -> None:
    """The group must die because it was deleted, not because it expired.

    This effect is demanded even in a disturbed cluster. If the group had expired before, the order
    would have been refused with GROUP_ID_NOT_FOUND.
    """
    rows = Rows()
    rows.group_state(2, "broker-0", "Empty", "Dead", cause=cause)
    effect = missing_effect(Rows(), "delete_group", rows, is_undisturbed=False)
    assert effect == ("the group was not deleted" if is_missing else None)


def test_rows_of_another_group_are_no_effect() -> None:
    """The order is about group h, and the rows are about group g."""
    effects = GroupEffects(CheckContext(groups={"g": GROUP, "h": GROUP}))
    effects.begin("h", "reset_offsets", coordinator="broker-0", members=None)
    for row in stored(*ALL, member="", generation=-1).rows:
        effects.observe(row)
    assert effects.find_missing(is_undisturbed=True) == "no offset was committed"
