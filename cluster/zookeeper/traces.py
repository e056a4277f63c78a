"""Trace events of ZooKeeper servers and their clients.

A trace row has the same columns for all kinds of events. In the rows of ZooKeeper, some columns
have other meanings than in Kafka's rows: `offset` is a zxid (the number of a transaction),
`leader_epoch` is the epoch of a ZooKeeper leader (each new leader increases it), and `peer` is the
node at the other end of the connection.
"""

from cluster.host.incoming_request import AcceptedConnection
from protocol.messages.zookeeper import SessionId, WatcherEvent, Zxid
from protocol.messages.zookeeper_quorum import (
    CloseSessionTxn,
    CreateSessionTxn,
    CreateTxn,
    DeleteTxn,
    ErrorTxn,
    ServerState,
    SetDataTxn,
    Txn,
)
from protocol.trace import TraceEvent, TraceKind


def session_name(session_id: SessionId) -> str:
    """Return a session id as ZooKeeper prints it."""
    return f"{session_id:#x}"


def server_state(state: ServerState, epoch: int | None) -> TraceEvent:
    """Return the event that a server begins to look for a leader, to follow or to lead.

    `epoch` is the leader's epoch; None while the server looks for a leader.
    """
    return TraceEvent(
        kind=TraceKind.ZOOKEEPER_STATE, leader_epoch=epoch, detail={"state": state.value}
    )


def session_expired(session_id: SessionId) -> TraceEvent:
    """Return the event that the leader expires a session."""
    return TraceEvent(
        kind=TraceKind.ZOOKEEPER_SESSION_EXPIRED, detail={"session": session_name(session_id)}
    )


def txn_applied(txn: Txn) -> TraceEvent:
    """Return the event that a server has applied a transaction.

    The leader makes a transaction even of a write that it refuses: an ErrorTxn, which changes
    nothing.
    """
    detail: dict[str, object] = {"session": session_name(txn.session_id)}
    error = None
    match txn.body:
        case CreateTxn(path=path, data=data, ephemeral=ephemeral):
            detail |= {"op": "create", "path": path, "data": data, "ephemeral": ephemeral}
        case DeleteTxn(path=path):
            detail |= {"op": "delete", "path": path}
        case SetDataTxn(path=path, data=data):
            detail |= {"op": "setData", "path": path, "data": data}
        case CreateSessionTxn():
            detail["op"] = "createSession"
        case CloseSessionTxn():
            detail["op"] = "closeSession"
        case ErrorTxn():
            detail["op"] = "error"
            error = txn.body.error.name
    return TraceEvent(
        kind=TraceKind.ZOOKEEPER_TXN_APPLIED, offset=txn.zxid, error=error, detail=detail
    )


def watch_fired(connection: AcceptedConnection, event: WatcherEvent, zxid: Zxid) -> TraceEvent:
    """Return the event that a watch fired, and that its server sends the change to a client.

    `zxid` is the newest transaction that the server has applied.
    """
    return TraceEvent(
        kind=TraceKind.ZOOKEEPER_WATCH_FIRED,
        peer=connection.peer,
        offset=zxid,
        detail={"type": event.event_type.value, "path": event.path},
    )


def event_received(peer: str, event: WatcherEvent, last_zxid: Zxid) -> TraceEvent:
    """Return the event that a client receives a watch's event.

    `last_zxid` is the newest zxid that an earlier answer has shown to the client.
    """
    return TraceEvent(
        kind=TraceKind.ZOOKEEPER_EVENT_RECEIVED,
        peer=peer,
        offset=last_zxid,
        detail={"type": event.event_type.value, "path": event.path},
    )


def client_state(
    state: str, session_id: SessionId, peer: str | None, last_zxid: Zxid
) -> TraceEvent:
    """Return the event that a client's session connects, disconnects or expires.

    `peer` is the server; None if the session has no connection. `last_zxid` is the newest zxid that
    an earlier answer has shown to the client.
    """
    return TraceEvent(
        kind=TraceKind.ZOOKEEPER_CLIENT_STATE,
        peer=peer,
        offset=last_zxid,
        detail={"session": session_name(session_id), "state": state},
    )
