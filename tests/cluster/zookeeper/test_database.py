"""The tree and the sessions of a ZooKeeper server: the effects of writes, and refused writes.

Each write has a number, its zxid. First the leader prepares the write: it decides whether the write
is refused. Then every server applies the write to its tree of znodes. To open or to end a session
is also a write. In these tests the id of a session is the zxid of the write that opened the
session. The end of a session removes its ephemeral znodes.

Ids such as ZK-01 name rules of docs/kafka/ZOOKEEPER_CONSUMER.md, which the docstrings quote.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.zookeeper.database import ZooKeeperDatabase
from cluster.zookeeper.invariants import check_owners, check_tree
from cluster.zookeeper.znodes import Change
from protocol.errors import SimulationError
from protocol.messages.zookeeper import (
    NO_SESSION,
    CloseSessionRequest,
    ConnectRequest,
    CreateRequest,
    DeleteRequest,
    KeeperError,
    SessionId,
    SetDataRequest,
    Stat,
    WatchType,
    ZooKeeperWrite,
    Zxid,
)
from protocol.messages.zookeeper_quorum import ErrorTxn, ServerId, Txn

INITIAL = (("/owners", ""),)
"""Paths and data of the znodes at the start."""


class Writer:
    """A leader without other servers: it prepares each write, and applies it at once.

    After each write it also checks the invariants of the tree.
    """

    def __init__(self) -> None:
        self.database = ZooKeeperDatabase(INITIAL)
        self.zxid = 0

    def write(
        self, request: ZooKeeperWrite, session: int = NO_SESSION
    ) -> tuple[KeeperError, tuple[Change, ...]]:
        """Carry out a write. Return its error, and the changes of which watches would be told."""
        self.zxid += 1
        body = self.database.prepare(SessionId(session), request)
        if isinstance(request, ConnectRequest):
            session = self.zxid  # the write opens this session
        changes = self.database.apply(
            Txn(
                zxid=Zxid(self.zxid),
                session_id=SessionId(session),
                server_id=ServerId(1),
                request_number=self.zxid,
                body=body,
            )
        )
        check_tree(self.database.tree)
        check_owners(self.database)
        error = body.error if isinstance(body, ErrorTxn) else KeeperError.NONE
        return error, changes

    def open_session(self) -> int:
        """Open a session, and return its id."""
        self.write(ConnectRequest(timeout_ms=6_000))
        return self.zxid


def test_znode_keeps_versions_owner_and_the_zxids_of_its_changes() -> None:
    """Each znode has data, a version, `ephemeralOwner`, czxid, mzxid, pzxid, cversion (ZK-01)."""
    writer = Writer()
    session = writer.open_session()  # the write with zxid 1
    writer.write(CreateRequest(path="/owners/t", data="a"), session)
    writer.write(SetDataRequest(path="/owners/t", data="b"), session)
    writer.write(CreateRequest(path="/owners/t/0", data="me", ephemeral=True), session)

    # The znode was created by write 2, its data changed by write 3, and its children by write 4.
    # `version` counts the changes of the data, `cversion` those of the children.
    assert writer.database.tree.stat("/owners/t") == Stat(
        czxid=Zxid(2), mzxid=Zxid(3), pzxid=Zxid(4), version=1, cversion=1
    )
    owned = writer.database.tree.stat("/owners/t/0")
    assert owned is not None
    assert owned.ephemeral_owner == session


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (CreateRequest(path="/owners"), KeeperError.NodeExists),
        (CreateRequest(path="/nowhere/x"), KeeperError.NoNode),
        (CreateRequest(path="/owners/mine/x"), KeeperError.NoChildrenForEphemerals),
        (CreateRequest(path="owners"), KeeperError.BadArguments),
        (CreateRequest(path="/owners//x"), KeeperError.BadArguments),
        (DeleteRequest(path="/nowhere"), KeeperError.NoNode),
        (DeleteRequest(path="/owners"), KeeperError.NotEmpty),
        (DeleteRequest(path="/owners/mine", version=7), KeeperError.BadVersion),
        (DeleteRequest(path="/"), KeeperError.BadArguments),
        (SetDataRequest(path="/nowhere", data=""), KeeperError.NoNode),
        (SetDataRequest(path="/owners/mine", data="", version=1), KeeperError.BadVersion),
    ],
)
def test_refused_write_has_a_zxid_and_changes_nothing(
    request_: ZooKeeperWrite, error: KeeperError
) -> None:
    """A write that fails, such as `create` of an existing path, still takes a zxid (ZK-08).

    /owners/mine is an ephemeral znode of version 0, and the only child of /owners.
    """
    writer = Writer()
    session = writer.open_session()
    writer.write(CreateRequest(path="/owners/mine", ephemeral=True), session)
    tree = writer.database.tree
    znodes_before = {path: (tree.data(path), tree.stat(path)) for path in tree.paths()}

    assert writer.write(request_, session) == (error, ())

    znodes_after = {path: (tree.data(path), tree.stat(path)) for path in tree.paths()}
    assert znodes_after == znodes_before
    assert writer.database.last_zxid == writer.zxid


def test_delete_ignores_the_owner_of_an_ephemeral_node() -> None:
    """Any session can delete any other's ephemeral node (ZK-08)."""
    writer = Writer()
    owner, other_session = writer.open_session(), writer.open_session()
    writer.write(CreateRequest(path="/owners/0", data="owner", ephemeral=True), owner)

    error, _changes = writer.write(DeleteRequest(path="/owners/0"), other_session)

    assert error is KeeperError.NONE
    assert "/owners/0" not in writer.database.tree


def test_end_of_a_session_removes_all_its_ephemerals_in_one_step() -> None:
    """Each removal fires the watches of its path and the child watches of its parent (ZK-12)."""
    writer = Writer()
    ended_session, other_session = writer.open_session(), writer.open_session()
    writer.write(CreateRequest(path="/owners/0", ephemeral=True), ended_session)
    writer.write(CreateRequest(path="/owners/1", ephemeral=True), other_session)
    writer.write(CreateRequest(path="/owners/2", ephemeral=True), ended_session)

    _error, changes = writer.write(CloseSessionRequest(), ended_session)

    assert changes == (
        Change(WatchType.NODE_DELETED, "/owners/0"),
        Change(WatchType.NODE_CHILDREN_CHANGED, "/owners"),
        Change(WatchType.NODE_DELETED, "/owners/2"),
        Change(WatchType.NODE_CHILDREN_CHANGED, "/owners"),
    )
    assert writer.database.tree.children("/owners") == ("1",)


def test_write_of_an_ended_session_is_refused() -> None:
    """After its end the session is gone for good, with ephemerals and watches (ZK-15)."""
    writer = Writer()
    session = writer.open_session()
    writer.write(CloseSessionRequest(), session)

    error, _changes = writer.write(CreateRequest(path="/owners/0", ephemeral=True), session)

    assert error is KeeperError.SessionExpired


def test_transaction_is_applied_once_and_in_order() -> None:
    """All writes have one total order, the zxid: a zxid is never applied twice (ZK-01)."""
    writer = Writer()
    writer.open_session()
    writer.zxid -= 1  # the next write has the same zxid as the last one

    with pytest.raises(SimulationError):
        writer.write(ConnectRequest(timeout_ms=6_000))


PATHS = tuple(f"/owners{rest}" for rest in ("", "/a", "/b", "/a/x", "/a/x/y"))
# Random writes. There are few paths, so the writes often meet at the same path.
WRITES = st.one_of(
    st.builds(CreateRequest, path=st.sampled_from(PATHS), ephemeral=st.booleans()),
    st.builds(DeleteRequest, path=st.sampled_from(PATHS)),
    st.builds(SetDataRequest, path=st.sampled_from(PATHS), data=st.sampled_from("uv")),
    st.just(CloseSessionRequest()),
    st.just(ConnectRequest(timeout_ms=6_000)),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(WRITES, st.integers(0, 3)), max_size=40))
def test_tree_equals_a_plain_model_of_paths_and_owners(
    writes: list[tuple[ZooKeeperWrite, int]],
) -> None:
    """Random writes have the same effects on the tree as on a simple model.

    The model is a dict from each path to its data and owner, for example
    `{"/": ("", 0), "/owners": ("", 0), "/owners/a": ("u", 3)}`. Session 3 owns /owners/a, and 0
    means no owner.
    """
    writer = Writer()
    model: dict[str, tuple[str, int]] = {"/": ("", 0), "/owners": ("", 0)}
    open_sessions: list[int] = []
    never_opened = 99  # the id of no session, because there are at most 40 writes
    for request, number in writes:
        # The drawn number chooses one of the open sessions.
        session = open_sessions[number % len(open_sessions)] if open_sessions else never_opened
        error, _changes = writer.write(request, session)
        if isinstance(request, ConnectRequest):
            open_sessions.append(writer.zxid)
        else:
            is_permitted = _write_into_model(model, open_sessions, session, request)
            is_written = error is KeeperError.NONE
            assert is_written == is_permitted

        # Read the whole tree in the form of the model.
        tree = writer.database.tree
        data_and_owners = {
            path: (tree.data(path), stat.ephemeral_owner)
            for path in tree.paths()
            if (stat := tree.stat(path))
        }
        assert data_and_owners == model


def _write_into_model(
    model: dict[str, tuple[str, int]],
    open_sessions: list[int],
    session: int,
    request: ZooKeeperWrite,
) -> bool:
    """Write into the model and return True if the write is permitted. Otherwise return False."""
    if session not in open_sessions:
        return False
    match request:
        case CreateRequest(path=path, data=data, ephemeral=ephemeral):
            parent = path.rpartition("/")[0] or "/"
            if path in model or parent not in model:
                return False
            # A parent with an owner is ephemeral, so it cannot have children.
            _data, owner_of_parent = model[parent]
            if owner_of_parent != 0:
                return False
            model[path] = (data, session if ephemeral else 0)
        case DeleteRequest(path=path):
            if path not in model or any(other.startswith(f"{path}/") for other in model):
                return False
            del model[path]
        case SetDataRequest(path=path, data=data):
            if path not in model:
                return False
            model[path] = (data, model[path][1])
        case CloseSessionRequest():
            open_sessions.remove(session)
            for path in [path for path, (_data, owner) in model.items() if owner == session]:
                del model[path]
        case ConnectRequest():
            raise AssertionError("the test itself opens sessions")
    return True
