"""The tables about ZooKeeper, and `offset_rewinds`, in plain Python.

The oldest consumers of Kafka have no coordinator. They share their partitions through ZooKeeper,
whose servers (the ensemble) store a tree of znodes. If the members of a group change, each consumer
of the group tries to get its share of the partitions. In such an attempt, it does four things:

1. It gives its partitions up.
2. It reads a *view*: the list of the members that its group has now.
3. It computes a *plan*: its own share of the partitions.
4. It claims each partition of the plan by creating a znode for the partition. A claim conflicts
   while the znode of another member still exists.

A consumer has a lasting connection to the ensemble, its session. The znodes of claims are
ephemeral: they are deleted when the session of their creator ends. A consumer learns of changes by
a *watch*: it asks a server to notify it of the next change of a znode. Each change of the tree is a
transaction (txn) with a number, the zxid.

`pipeline.tables.zookeeper` computes the same with Spark.
"""

import re
from collections.abc import Iterator

from pipeline.in_memory.trace import TableRow, Trace, detail_of
from pipeline.table_columns import REQUEST_PERIOD_US
from protocol.trace import TraceKind, TraceRow

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
"""What the requests of each API do: they read or write the tree, or are only about the `session` of
the client. Requests of other APIs go to Kafka, and are not counted here.
"""
_OFFSET_PATH = re.compile(r"/consumers/([^/]+)/offsets/([^/]+)/([0-9]+)")
"""The path of a znode with a committed offset: it names the group, the topic and the partition."""
_GIVE_UP_KINDS = (TraceKind.PARTITIONS_REVOKED, TraceKind.PARTITIONS_LOST)
"""Kinds of rows that list partitions which a consumer gave up."""


def zookeeper_sessions_of(trace: Trace) -> list[TableRow]:
    """Return each session that was opened, with its client, its end and its writes.

    A session that expires ends in three steps. The ensemble finds that the client has been silent
    for too long (`silent_us`). Then the first server deletes the session (`ended_us`). At last the
    client learns of the end (`learned_us`).
    """
    sessions: dict[str, TableRow] = {}
    # For each path, the session that created an ephemeral znode; None for a znode that is not
    # ephemeral.
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
                owner = owners.get(txn["path"])
                if owner is not None and owner != session:
                    writer["deleted_of_others"] += 1
            case _:
                pass

    # Add what clients and the ensemble wrote about the sessions. If the trace does not have the
    # opening of a session, the session is ignored.
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
    """Return each notification that a server sent to a client because of a watch.

    A row also has two moments: the change that caused the notification, and the beginning of the
    client's next attempt.
    """
    txns = _txns(trace)
    groups = _groups(trace)

    attempts_us: dict[str, list[int]] = {}  # when each consumer began its attempts
    for row in trace.of(TraceKind.ZOOKEEPER_ATTEMPT_STARTED):
        attempts_us.setdefault(row.node, []).append(row.time_us)
    table = []
    for row in trace.of(TraceKind.ZOOKEEPER_WATCH_FIRED):
        watch = detail_of(row)
        consumer = row.peer or ""
        zxid = row.offset or 0
        fired_us = row.time_us
        changed_us = None
        if zxid in txns:
            changed_us, _txn = txns[zxid]
        later_attempts_us = [at_us for at_us in attempts_us.get(consumer, []) if at_us >= fired_us]
        table.append(
            {
                "server": row.node,
                "incarnation": row.incarnation,
                "group": groups.get(consumer),
                "consumer": row.peer,
                "type": watch["type"],
                "path": watch["path"],
                "zxid": row.offset,
                "changed_us": changed_us,
                "fired_us": fired_us,
                "lag_us": None if changed_us is None else fired_us - changed_us,
                "attempt_us": min(later_attempts_us, default=None),
            }
        )
    return table


def zookeeper_attempts_of(trace: Trace) -> list[TableRow]:
    """Return the attempts of each consumer, with the results of their steps."""
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
                # The consumer gave up after this attempt. If there are several such rows, the first
                # counts. `during` tells what the consumer was doing.
                attempt["gave_up"] = attempt["gave_up"] or detail_of(row)["during"]
            elif attempt is not None and attempt["ended_us"] is None:
                # Rows after the end of the attempt do not belong to it. For example, a consumer can
                # lose its session, and so its partitions, between two attempts.
                _add_step(attempt, row)
    return table


def zookeeper_operations_of(trace: Trace) -> list[TableRow]:
    """Count the requests of each API that each client sent to ZooKeeper in each period."""
    groups = _groups(trace)
    table: dict[tuple[str, int, str, int], TableRow] = {}
    for row in trace.of(TraceKind.REQUEST_SENT):
        if row.api not in _EFFECTS:
            continue
        from_us = row.time_us // REQUEST_PERIOD_US * REQUEST_PERIOD_US
        counts = table.setdefault(
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
        counts["requests"] += 1
    return list(table.values())


def offset_rewinds_of(trace: Trace) -> list[TableRow]:
    """Return each commit that set the committed offset of a partition back.

    Offsets are stored in Kafka or in ZooKeeper. Commits to Kafka are not compared with commits to
    ZooKeeper.
    """
    last_offsets: dict[tuple[str, str, str], int] = {}
    table = []
    for commit in (*_commits_to_kafka(trace), *_commits_to_zookeeper(trace)):
        key = (commit["group"], commit["partition"], commit["store"])
        offset_before = last_offsets.get(key)
        offset_after = commit["offset_after"]
        last_offsets[key] = offset_after
        if offset_before is not None and offset_after < offset_before:
            records = offset_before - offset_after
            table.append(commit | {"offset_before": offset_before, "records": records})
    return table


# -- helpers of several tables --------------------------------------------------------------------


def _txns(trace: Trace) -> dict[int, tuple[int, TableRow]]:
    """Return all transactions in the order of their zxids, which are the keys.

    A transaction is a tuple: when the first server applied it, and its detail.
    """
    return trace.once(_find_txns)


def _find_txns(trace: Trace) -> dict[int, tuple[int, TableRow]]:
    """Compute the result of `_txns`."""
    # Each server writes a row about each transaction. The rows are in time order. So the first row
    # about a transaction is from the first server that applied it.
    by_zxid: dict[int, tuple[int, TableRow]] = {}
    for row in trace.of(TraceKind.ZOOKEEPER_TXN_APPLIED):
        if row.offset is not None and row.offset not in by_zxid:
            by_zxid[row.offset] = (row.time_us, detail_of(row))
    return dict(sorted(by_zxid.items()))


def _groups(trace: Trace) -> dict[str, str]:
    """Return the group of each consumer on ZooKeeper that began an attempt."""
    return {
        row.node: row.group
        for row in trace.of(TraceKind.ZOOKEEPER_ATTEMPT_STARTED)
        if row.group is not None
    }


def _add_client_event(session: TableRow, row: TraceRow) -> None:
    """Add to a session what its client wrote about it."""
    if session["consumer"] is None:
        session["consumer"], session["incarnation"] = row.node, row.incarnation
    match detail_of(row)["state"]:
        case "SyncConnected":
            session["connections"] += 1
            if session["connected_us"] is None:
                session["connected_us"] = row.time_us
            if row.peer is not None and row.peer not in session["servers"]:
                session["servers"].append(row.peer)
        case "Disconnected":
            session["disconnections"] += 1
        case "Expired" if session["learned_us"] is None:
            session["learned_us"] = row.time_us
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
    """Add to an attempt what a row tells about one of its steps. The attempt has not ended yet."""
    step = detail_of(row)
    match TraceKind(row.kind):
        # If an attempt has several views, the first one counts.
        case TraceKind.ZOOKEEPER_VIEW if attempt["view_us"] is None:
            attempt["view_us"] = row.time_us
            attempt["view"] = step["members"]
            attempt["plan"] = step["partitions"]
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

    If there is no broker, there are no partitions. Then the attempt is done before the consumer has
    read a view.
    """
    if is_done:
        return "no broker" if attempt["view_us"] is None else "done"
    if attempt["exception"] is not None:
        return "exception"
    return "conflict" if attempt["conflicts"] else "shut down"


def _commits_to_kafka(trace: Trace) -> Iterator[TableRow]:
    """Yield the commits that coordinators stored in `__consumer_offsets`, in time order."""
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
    """Yield the commits that consumers wrote to ZooKeeper, in the order of their zxids."""
    clients = {
        detail_of(row)["session"]: row.node for row in trace.of(TraceKind.ZOOKEEPER_CLIENT_STATE)
    }
    for applied_us, txn in _txns(trace).values():
        offset_path = _OFFSET_PATH.fullmatch(txn.get("path") or "")
        if offset_path is not None and txn["op"] in ("create", "setData"):
            group, topic, partition_number = offset_path.groups()
            yield {
                "group": group,
                "partition": f"{topic}-{partition_number}",
                "store": "zookeeper",
                "at_us": applied_us,
                "consumer": clients.get(txn["session"]),
                "offset_after": int(txn["data"]),
            }
