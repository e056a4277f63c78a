"""The tables of ZooKeeper, and `offset_rewinds`, in plain Python.

A consumer on ZooKeeper has no coordinator. It gets its partitions in attempts. An attempt has four
steps:

1. It gives its partitions up.
2. It reads a *view*: the members of its group.
3. It computes its plan: its own share of the partitions.
4. It claims each partition of the plan by creating an ephemeral znode. A claim conflicts while
   another member still has the partition's znode.

The ensemble is ZooKeeper's servers. A znode is a node of the tree that they store. A session is a
client's lasting connection to the ensemble; an ephemeral znode is deleted when the session that
created it ends. A transaction (txn) is a change of the tree; its zxid is its number in the order of
all changes. A watch asks a server to notify the client of the next change of a znode.

`pipeline.tables.zookeeper` computes the same with Spark.
"""

import re
from collections.abc import Iterator

from pipeline.in_memory.trace import TableRow, Trace, detail_of
from protocol.trace import TraceKind, TraceRow

_STEP_US = 100_000
"""Length of the intervals in which requests are counted: a tenth of a second."""
_EFFECTS = {
    "Exists": "read",
    "GetData": "read",
    "GetChildren": "read",
    "Create": "write",
    "Delete": "write",
    "SetData": "write",
    "Connect": "session",
    "CloseSession": "session",
    "Ping": "session",
    "SetWatches": "session",
}
"""Effect of the requests of each API. Requests of other APIs go to Kafka, and do not count here."""
_OFFSET_PATH = re.compile(r"/consumers/([^/]+)/offsets/([^/]+)/([0-9]+)")
"""Znode with the committed offset of a group, a topic and a partition number."""
_GIVE_UP_KINDS = (TraceKind.PARTITIONS_REVOKED, TraceKind.PARTITIONS_LOST)
"""Kinds of rows that list partitions which a consumer gave up."""


def zookeeper_sessions_of(trace: Trace) -> list[TableRow]:
    """Return each session that was opened, with its client, its end and its writes.

    Some of the columns:

    - `silent_us`: the ensemble declared the session expired, because its client was silent.
    - `ended_us`: the first server applied the session's end.
    - `learned_us`: the client learned of the expiry.
    """
    sessions: dict[str, TableRow] = {}
    # The session that created each znode; None if the znode is not ephemeral.
    owners: dict[str, str | None] = {}
    for applied_us, txn in _txns(trace).values():
        session = txn["session"]
        if txn["op"] == "createSession":
            sessions[session] = {
                "session": session,
                "group": None,
                "consumer": None,
                "incarnation": None,
                "opened_us": applied_us,
                "connected_us": None,
                "connections": 0,
                "servers": [],
                "disconnections": 0,
                "silent_us": None,
                "ended_us": None,
                "end": None,
                "learned_us": None,
                "created": 0,
                "deleted": 0,
                "deleted_of_others": 0,
            }
        # `writer` is None if the session was opened before the trace began.
        writer = sessions.get(session)
        match txn["op"]:
            case "closeSession" if writer is not None and writer["ended_us"] is None:
                writer["ended_us"] = applied_us
            case "create":
                owners[txn["path"]] = session if txn.get("ephemeral") else None
                if writer is not None:
                    writer["created"] += 1
            case "delete" if writer is not None:
                writer["deleted"] += 1
                # Adds 1 (True counts as 1) if the znode was an ephemeral one of another session.
                writer["deleted_of_others"] += owners.get(txn["path"]) not in (None, session)
            case _:
                pass

    # Add the rows of clients and of the ensemble about the sessions. A row about a session whose
    # opening the trace lacks is ignored.
    for row in trace.of(TraceKind.ZOOKEEPER_CLIENT_STATE):
        entry = sessions.get(detail_of(row)["session"])
        if entry is not None:
            _add_client_event(entry, row)
    for row in trace.of(TraceKind.ZOOKEEPER_SESSION_EXPIRED):
        entry = sessions.get(detail_of(row)["session"])
        if entry is not None and entry["silent_us"] is None:
            entry["silent_us"] = row.time_us

    groups = _groups(trace)
    for entry in sessions.values():
        entry["group"] = groups.get(entry["consumer"] or "")
        entry["servers"].sort()
        if entry["ended_us"] is not None:
            entry["end"] = "closed" if entry["silent_us"] is None else "expired"
    return list(sessions.values())


def zookeeper_watches_of(trace: Trace) -> list[TableRow]:
    """Return each event of a watch, with the transaction behind it and the attempt after it.

    A server sends the event to the client that set the watch.
    """
    txns, groups = _txns(trace), _groups(trace)

    # When the attempts of each consumer began.
    begun: dict[str, list[int]] = {}
    for row in trace.of(TraceKind.ZOOKEEPER_ATTEMPT_STARTED):
        begun.setdefault(row.node, []).append(row.time_us)
    table = []
    for row in trace.of(TraceKind.ZOOKEEPER_WATCH_FIRED):
        watch, zxid, fired_us = detail_of(row), row.offset or 0, row.time_us
        changed_us = txns[zxid][0] if zxid in txns else None
        later = [at_us for at_us in begun.get(row.peer or "", []) if at_us >= fired_us]
        table.append(
            {
                "server": row.node,
                "incarnation": row.incarnation,
                "group": groups.get(row.peer or ""),
                "consumer": row.peer,
                "type": watch["type"],
                "path": watch["path"],
                "zxid": row.offset,
                "changed_us": changed_us,
                "fired_us": fired_us,
                "lag_us": None if changed_us is None else fired_us - changed_us,
                "attempt_us": min(later, default=None),
            }
        )
    return table


def zookeeper_attempts_of(trace: Trace) -> list[TableRow]:
    """Return the attempts of each life of a consumer, step by step."""
    kinds = (
        TraceKind.ZOOKEEPER_ATTEMPT_STARTED,
        TraceKind.ZOOKEEPER_VIEW,
        TraceKind.ZOOKEEPER_CLAIM_CONFLICT,
        TraceKind.ZOOKEEPER_ATTEMPT_ENDED,
        TraceKind.ZOOKEEPER_GAVE_UP,
        *_GIVE_UP_KINDS,
    )
    table = []
    for (consumer, incarnation), rows in trace.lives(*kinds):
        attempt: TableRow | None = None
        for row in rows:
            if row.kind == TraceKind.ZOOKEEPER_ATTEMPT_STARTED:
                attempt = _new_attempt(row, consumer, incarnation)
                table.append(attempt)
            elif attempt is not None and row.kind == TraceKind.ZOOKEEPER_GAVE_UP:
                # `during` is what the consumer was doing when it gave up. If it gave up more than
                # once after the attempt, the first time counts.
                attempt["gave_up"] = attempt["gave_up"] or detail_of(row)["during"]
            elif attempt is not None and attempt["ended_us"] is None:
                # Rows after the end are no steps: a consumer can lose partitions between attempts,
                # for example with its session.
                _add_step(attempt, row)
    return table


def zookeeper_operations_of(trace: Trace) -> list[TableRow]:
    """Return the number of requests that each client sent in each tenth of a second."""
    groups = _groups(trace)
    table: dict[tuple[str, int, str, int], TableRow] = {}
    for row in trace.of(TraceKind.REQUEST_SENT):
        if row.api not in _EFFECTS:
            continue
        from_us = row.time_us // _STEP_US * _STEP_US
        counted = table.setdefault(
            (row.node, row.incarnation, row.api, from_us),
            {
                "group": groups.get(row.node),
                "consumer": row.node,
                "incarnation": row.incarnation,
                "api": row.api,
                "effect": _EFFECTS[row.api],
                "from_us": from_us,
                "requests": 0,
            },
        )
        counted["requests"] += 1
    return list(table.values())


def offset_rewinds_of(trace: Trace) -> list[TableRow]:
    """Return each commit whose offset is lower than the offset of the previous commit.

    The previous commit is that of the same group and partition in the same store. A store is Kafka
    or ZooKeeper.
    """
    last_offsets: dict[tuple[str, str, str], int] = {}
    table = []
    for commit in (*_commits_to_kafka(trace), *_commits_to_zookeeper(trace)):
        key = (commit["group"], commit["partition"], commit["store"])
        before, offset = last_offsets.get(key), commit["offset_after"]
        last_offsets[key] = offset
        if before is not None and offset < before:
            table.append(commit | {"offset_before": before, "records": before - offset})
    return table


# -- helpers of several tables --------------------------------------------------------------------


def _txns(trace: Trace) -> dict[int, tuple[int, TableRow]]:
    """Return the time and the detail of each transaction by its zxid, in the order of the zxids.

    The time is when the first server applied the transaction.
    """
    return trace.once(_find_txns)


def _find_txns(trace: Trace) -> dict[int, tuple[int, TableRow]]:
    """Find the transactions for `_txns`.

    Rows are in time order, so the first row about a transaction is that of the first server.
    """
    by_zxid: dict[int, tuple[int, TableRow]] = {}
    for row in trace.of(TraceKind.ZOOKEEPER_TXN_APPLIED):
        if row.offset is not None and row.offset not in by_zxid:
            by_zxid[row.offset] = (row.time_us, detail_of(row))
    return dict(sorted(by_zxid.items()))


def _groups(trace: Trace) -> dict[str, str]:
    """Return the group of each consumer on ZooKeeper."""
    return {
        row.node: row.group
        for row in trace.of(TraceKind.ZOOKEEPER_ATTEMPT_STARTED)
        if row.group is not None
    }


def _add_client_event(entry: TableRow, row: TraceRow) -> None:
    """Add a row that a client wrote about its session to the session's entry."""
    if entry["consumer"] is None:
        entry["consumer"], entry["incarnation"] = row.node, row.incarnation
    match detail_of(row)["state"]:
        case "SyncConnected":
            entry["connections"] += 1
            if entry["connected_us"] is None:
                entry["connected_us"] = row.time_us
            if row.peer is not None and row.peer not in entry["servers"]:
                entry["servers"].append(row.peer)
        case "Disconnected":
            entry["disconnections"] += 1
        case "Expired" if entry["learned_us"] is None:
            entry["learned_us"] = row.time_us
        case _:
            pass


def _new_attempt(row: TraceRow, consumer: str, incarnation: int) -> TableRow:
    """Return the row of an attempt that has just started."""
    return {
        "group": row.group,
        "consumer": consumer,
        "incarnation": incarnation,
        "member": row.member,
        "attempt": detail_of(row)["attempt"],
        "started_us": row.time_us,
        "view_us": None,
        "view": None,
        "plan": None,
        "given_up": 0,
        "conflicts": 0,
        "disputed": [],
        "ended_us": None,
        "outcome": None,
        "exception": None,
        "gave_up": None,
    }


def _add_step(attempt: TableRow, row: TraceRow) -> None:
    """Add a step of an attempt that has not ended yet."""
    step = detail_of(row)
    match TraceKind(row.kind):
        case TraceKind.ZOOKEEPER_VIEW if attempt["view_us"] is None:
            # `|=` changes the dict itself, which is a row of the table.
            attempt |= {
                "view_us": row.time_us,
                "view": step["members"],
                "plan": step["partitions"],
            }
        case TraceKind.ZOOKEEPER_CLAIM_CONFLICT:
            attempt["conflicts"] += 1
            attempt["disputed"] = sorted([*attempt["disputed"], row.partition])
        case TraceKind.PARTITIONS_REVOKED | TraceKind.PARTITIONS_LOST:
            attempt["given_up"] += len(step["partitions"])
        case TraceKind.ZOOKEEPER_ATTEMPT_ENDED:
            attempt["ended_us"], attempt["exception"] = row.time_us, row.cause_text
            attempt["outcome"] = _outcome(attempt, is_done=step["done"])
        case _:
            pass


def _outcome(attempt: TableRow, *, is_done: bool) -> str:
    """Return how an attempt ended.

    If no broker is registered, a consumer's attempt is done before it reads a view.
    """
    if is_done:
        return "no broker" if attempt["view_us"] is None else "done"
    if attempt["exception"] is not None:
        return "exception"
    return "conflict" if attempt["conflicts"] else "shut down"


def _commits_to_kafka(trace: Trace) -> Iterator[TableRow]:
    """Yield the commits that coordinators stored in offsets partitions (`__consumer_offsets`)."""
    consumers = trace.consumers()
    for row in trace.of(TraceKind.COMMIT_STORED):
        if row.group is not None and row.partition is not None and row.offset is not None:
            yield {
                "group": row.group,
                "partition": row.partition,
                "store": "kafka",
                "at_us": row.time_us,
                "consumer": consumers.get((row.group, row.member or "")),
                "offset_after": row.offset,
            }


def _commits_to_zookeeper(trace: Trace) -> Iterator[TableRow]:
    """Yield the commits of offsets that consumers wrote to znodes of ZooKeeper."""
    clients = {
        detail_of(row)["session"]: row.node for row in trace.of(TraceKind.ZOOKEEPER_CLIENT_STATE)
    }
    for applied_us, txn in _txns(trace).values():
        path = _OFFSET_PATH.fullmatch(txn.get("path") or "")
        if path is not None and txn["op"] in ("create", "setData"):
            yield {
                "group": path[1],
                "partition": f"{path[2]}-{path[3]}",
                "store": "zookeeper",
                "at_us": applied_us,
                "consumer": clients.get(txn["session"]),
                "offset_after": int(txn["data"]),
            }
