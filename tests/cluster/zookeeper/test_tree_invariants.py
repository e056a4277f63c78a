"""The check of a ZooKeeper tree finds each way in which the tree can contradict itself.

A znode is an entry of the tree. An ephemeral znode belongs to a session, its owner, and cannot have
children.
"""

from collections.abc import Callable

import pytest

from cluster.zookeeper.invariants import check_tree
from cluster.zookeeper.znodes import ROOT, ZnodeTree
from protocol.errors import InvariantViolation
from protocol.messages.zookeeper import NO_SESSION, SessionId, Zxid

OWNER = SessionId(7)


def tree_of_three() -> ZnodeTree:
    """Return a tree with /owners, /owners/t, and /owners/t/0, which belongs to a session."""
    tree = ZnodeTree([("/owners", ""), ("/owners/t", "")])
    tree.create("/owners/t/0", "me", OWNER, Zxid(1))
    return tree


# Each of these functions damages the tree in one way, which its name says.


def forget_the_child(tree: ZnodeTree) -> None:
    del tree._znodes["/owners"].children["t"]


def name_a_child_that_does_not_exist(tree: ZnodeTree) -> None:
    tree._znodes[ROOT].children["nothing"] = None


def lose_the_parent(tree: ZnodeTree) -> None:
    del tree._znodes["/owners/t"]


def own_the_parent(tree: ZnodeTree) -> None:
    tree._znodes["/owners/t"].ephemeral_owner = OWNER


def own_nothing(tree: ZnodeTree) -> None:
    tree._znodes["/owners/t/0"].ephemeral_owner = NO_SESSION


def forget_the_owner(tree: ZnodeTree) -> None:
    tree._ephemerals.clear()


def test_whole_tree_passes() -> None:
    """The check must not report damage where there is none."""
    check_tree(tree_of_three())


@pytest.mark.parametrize(
    ("damage", "invariant"),
    [
        (forget_the_child, "parent_names_its_child"),
        (name_a_child_that_does_not_exist, "parent_names_its_child"),
        (lose_the_parent, "parent_names_its_child"),
        (own_the_parent, "ephemerals_have_no_children"),
        (own_nothing, "owners_list_their_znodes"),
        (forget_the_owner, "owners_list_their_znodes"),
    ],
)
def test_damage_is_named(damage: Callable[[ZnodeTree], None], invariant: str) -> None:
    """The check raises an error with the name of the broken invariant."""
    tree = tree_of_three()
    damage(tree)
    with pytest.raises(InvariantViolation) as raised:
        check_tree(tree)
    assert raised.value.name == invariant
