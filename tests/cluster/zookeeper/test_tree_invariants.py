"""The check of a ZooKeeper tree finds each way in which the tree can contradict itself.

Each znode is listed as a child of its parent. An ephemeral znode belongs to a session, its owner,
and cannot have children. The tree also has a list of the ephemeral znodes of each session.
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


def parent_does_not_list_its_child(tree: ZnodeTree) -> None:
    del tree._znodes["/owners"].children["t"]


def listed_child_does_not_exist(tree: ZnodeTree) -> None:
    tree._znodes[ROOT].children["nothing"] = None


def parent_does_not_exist(tree: ZnodeTree) -> None:
    del tree._znodes["/owners/t"]


def parent_has_an_owner(tree: ZnodeTree) -> None:
    tree._znodes["/owners/t"].ephemeral_owner = OWNER


def ephemeral_znode_has_lost_its_owner(tree: ZnodeTree) -> None:
    tree._znodes["/owners/t/0"].ephemeral_owner = NO_SESSION


def list_of_the_owner_is_lost(tree: ZnodeTree) -> None:
    tree._ephemerals.clear()


def test_undamaged_tree_passes() -> None:
    """The check must not report damage where there is none."""
    check_tree(tree_of_three())


@pytest.mark.parametrize(
    ("damage", "invariant"),
    [
        (parent_does_not_list_its_child, "parent_names_its_child"),
        (listed_child_does_not_exist, "parent_names_its_child"),
        (parent_does_not_exist, "parent_names_its_child"),
        (parent_has_an_owner, "ephemerals_have_no_children"),
        (ephemeral_znode_has_lost_its_owner, "owners_list_their_znodes"),
        (list_of_the_owner_is_lost, "owners_list_their_znodes"),
    ],
)
def test_damage_violates_an_invariant(damage: Callable[[ZnodeTree], None], invariant: str) -> None:
    """The check raises an error with the name of the broken invariant."""
    tree = tree_of_three()
    damage(tree)
    with pytest.raises(InvariantViolation) as raised:
        check_tree(tree)
    assert raised.value.name == invariant
