"""The tree and the sessions of a ZooKeeper server: the effects of writes, and refused writes.

- A znode is an entry in the tree. An ephemeral znode belongs to the session that created it, and is
  removed at the end of this session.
- A zxid is the number of a write. The leader first prepares a write: it decides whether the write
  is refused. Then every server applies the write.
- A watch is a client's request for an event when a znode changes.
- Here the id of a session is the zxid of the write that opened the session; 0 is no session.
- Ids such as ZK-01 name rules of docs/kafka/ZOOKEEPER_CONSUMER.md, which docstrings quote.
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
    """Prepares and applies writes one after the other, as a leader without followers does."""

    def __init__(self) -> None:
        self.database = ZooKeeperDatabase(INITIAL)
        self.zxid = 0

    def write(
        self, request: ZooKeeperWrite, session: int = NO_SESSION
    ) -> tuple[KeeperError, tuple[Change, ...]]:
        """Carry out a write. Return its error, and the changes on which watches fire."""
        self.zxid += 1
        body = self.database.prepare(SessionId(session), request)
        opens = isinstance(request, ConnectRequest)
        changes = self.database.apply(
            Txn(
                zxid=Zxid(self.zxid),
                session_id=SessionId(self.zxid if opens else session),
                server_id=ServerId(1),
                request_number=self.zxid,
                body=body,
            )
        )
        check_tree(self.database.tree)
        check_owners(self.database)
        return (body.error if isinstance(body, ErrorTxn) else KeeperError.NONE, changes)

    def session(self) -> int:
        """Open a session, and return its id."""
        self.write(ConnectRequest(timeout_ms=6_000))
        return self.zxid


def test_znode_keeps_versions_owner_and_the_zxids_of_its_changes() -> None:
    """Each znode has data, a version, `ephemeralOwner`, czxid, mzxid, pzxid, cversion (ZK-01)."""
    writer = Writer()
    session = writer.session()  # the write with zxid 1
    writer.write(CreateRequest(path="/owners/t", data="a"), session)
    writer.write(SetDataRequest(path="/owners/t", data="b"), session)
    writer.write(CreateRequest(path="/owners/t/0", data="me", ephemeral=True), session)

    # czxid, mzxid and pzxid are the zxids of the creation, of the last change of the data, and of
    # the last change of the children. `version` counts changes of the data, `cversion` those of the
    # children.
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
    """A write that fails, such as `create` of an existing path, still takes a zxid (ZK-08)."""
    writer = Writer()
    session = writer.session()
    writer.write(CreateRequest(path="/owners/mine", ephemeral=True), session)
    tree = writer.database.tree
    before = {path: (tree.data(path), tree.stat(path)) for path in tree.paths()}

    assert writer.write(request_, session) == (error, ())

    assert {path: (tree.data(path), tree.stat(path)) for path in tree.paths()} == before
    assert writer.database.last_zxid == writer.zxid


def test_delete_ignores_the_owner_of_an_ephemeral_node() -> None:
    """Any session can delete any other's ephemeral node (ZK-08)."""
    writer = Writer()
    owner, other = writer.session(), writer.session()
    writer.write(CreateRequest(path="/owners/0", data="owner", ephemeral=True), owner)

    error, _changes = writer.write(DeleteRequest(path="/owners/0"), other)

    assert error is KeeperError.NONE
    assert "/owners/0" not in writer.database.tree


def test_end_of_a_session_removes_all_its_ephemerals_in_one_step() -> None:
    """Each removal fires the watches of its path and the child watches of its parent (ZK-12)."""
    writer = Writer()
    session, other = writer.session(), writer.session()
    for path, owner in (("/owners/0", session), ("/owners/1", other), ("/owners/2", session)):
        writer.write(CreateRequest(path=path, ephemeral=True), owner)

    _error, changes = writer.write(CloseSessionRequest(), session)

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
    session = writer.session()
    writer.write(CloseSessionRequest(), session)

    error, _changes = writer.write(CreateRequest(path="/owners/0", ephemeral=True), session)

    assert error is KeeperError.SessionExpired


def test_transaction_is_applied_once_and_in_order() -> None:
    """All writes have one total order, the zxid: a zxid is never applied twice (ZK-01)."""
    writer = Writer()
    writer.session()
    writer.zxid -= 1  # the next write gets the zxid of the last write again

    with pytest.raises(SimulationError):
        writer.write(ConnectRequest(timeout_ms=6_000))


PATHS = tuple(f"/owners{rest}" for rest in ("", "/a", "/b", "/a/x", "/a/x/y"))
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

    The model is a dict from path to (data, owner), without zxids and lists of children.
    """
    writer = Writer()
    model: dict[str, tuple[str, int]] = {"/": ("", 0), "/owners": ("", 0)}
    sessions: list[int] = []
    for request, number in writes:
        # The drawn number chooses an open session. Session 99 was never opened.
        session = sessions[number % len(sessions)] if sessions else 99
        error, _changes = writer.write(request, session)
        if isinstance(request, ConnectRequest):
            sessions.append(writer.zxid)
        else:
            is_permitted = _model_write(model, sessions, session, request)
            assert (error is KeeperError.NONE) is is_permitted

        tree = writer.database.tree
        owner_of = {
            path: stat.ephemeral_owner for path in tree.paths() if (stat := tree.stat(path))
        }
        assert {path: (tree.data(path), owner_of[path]) for path in tree.paths()} == model


def _model_write(
    model: dict[str, tuple[str, int]], sessions: list[int], session: int, request: ZooKeeperWrite
) -> bool:
    """Write into the model, and return True if the write is permitted."""
    if session not in sessions:
        return False
    match request:
        case CreateRequest(path=path, data=data, ephemeral=ephemeral):
            parent = path.rpartition("/")[0] or "/"
            # A parent with an owner is ephemeral, so it cannot have children.
            if path in model or parent not in model or model[parent][1]:
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
            sessions.remove(session)
            for path in [path for path, (_data, owner) in model.items() if owner == session]:
                del model[path]
        case ConnectRequest():
            raise AssertionError("opened by the test itself")
    return True
