"""Invariants of a ZooKeeper server between two events. Each check raises InvariantViolation.

A leader has two databases: the present database, and the *projected* database, which is the state
after all proposals. Ids such as ZK-12 are rules in docs/kafka/ZOOKEEPER_CONSUMER.md.
"""

from cluster.zookeeper.client_requests import ClientRequests
from cluster.zookeeper.database import ZooKeeperDatabase
from cluster.zookeeper.server import ServerCore
from cluster.zookeeper.znodes import ROOT, ZnodeTree
from protocol.errors import InvariantViolation
from protocol.messages.zookeeper import NO_SESSION


def check_server(core: ServerCore) -> None:
    """Check tree, sessions, clients and logs of one server."""
    check_tree(core.database.tree)
    check_owners(core.database)
    check_clients(core.clients)
    if core.database.last_zxid > core.log.last_zxid:
        raise InvariantViolation(
            "applied_is_logged",
            f"applied up to {core.database.last_zxid:#x}, logged up to {core.log.last_zxid:#x}",
        )
    leading = core.leading
    if leading is not None and leading.is_established:
        if leading.projected.last_zxid != core.log.last_zxid:
            raise InvariantViolation(
                "projected_is_the_log",
                f"projected {leading.projected.last_zxid:#x}, logged {core.log.last_zxid:#x}",
            )
        check_owners(leading.projected)


def check_tree(tree: ZnodeTree) -> None:
    """Check the parents and the owners of all znodes.

    Every znode has a parent. The parent has the znode's name in its list of children, and is not
    ephemeral. An ephemeral znode has an owner, which is the session that created it. The tree's
    list of each owner's znodes is complete.
    """
    owned: dict[int, list[str]] = {}  # owner -> the paths of its znodes
    named = 0  # number of names in all lists of children
    for path, owner, children in tree.entries():
        if owner != NO_SESSION:
            owned.setdefault(owner, []).append(path)
            if children:
                raise InvariantViolation("ephemerals_have_no_children", path)
        named += len(children)
        prefix = "/" if path == ROOT else f"{path}/"
        for name in children:
            if f"{prefix}{name}" not in tree:
                raise InvariantViolation("parent_names_its_child", f"{prefix}{name}")
    # Each name in a list of children stands for an existing znode (checked above), and no znode is
    # named twice. So each znode has a parent if there are as many names as znodes. The root, which
    # has no parent, does not count.
    if named != len(tree.paths()) - 1:
        raise InvariantViolation("parent_names_its_child", f"{named} named of {tree.paths()}")
    listed = {owner: sorted(tree.ephemerals(owner)) for owner in tree.owners()}
    if listed != {owner: sorted(paths) for owner, paths in owned.items()}:
        raise InvariantViolation("owners_list_their_znodes", f"listed {listed}, owned {owned}")


def check_owners(database: ZooKeeperDatabase) -> None:
    """Check that no ephemeral znode has outlived its session (ZK-12)."""
    for owner in database.tree.owners():
        if owner not in database.sessions:
            raise InvariantViolation(
                "ephemerals_end_with_their_session",
                f"{database.tree.ephemerals(owner)} of {owner:#x}, which is over",
            )


def check_clients(clients: ClientRequests) -> None:
    """Check that each session is on at most one connection."""
    for session_id, connection in clients.connections.items():
        if clients.sessions.get(connection) != session_id:
            raise InvariantViolation(
                "session_is_on_one_connection",
                f"{session_id:#x} on {connection}, which has {clients.sessions.get(connection)}",
            )
    # A second connection of a session would be one more entry in `sessions`, not in `connections`.
    if len(clients.sessions) != len(clients.connections):
        raise InvariantViolation("session_is_on_one_connection", f"{clients.sessions}")
