"""Random traces of three ZooKeeper servers, and of old consumers that coordinate over them.

A trace has the recorded events of a run, one row each. The tests of the analysis compute tables
from these traces. Nothing real runs: random decisions say what happens next, and a `World` writes
the rows.

The servers apply the same log of transactions, each server at its own pace. The zxid is the number
of a transaction. A client opens a session. A znode that the client creates may be ephemeral: such a
znode is deleted when the session of its creator ends.

The consumers of a group share the partitions by writing owner nodes: for each partition there is a
znode with the name of the consumer that owns the partition. An attempt is one try of a consumer to
get its share in this way. It succeeds, it fails, or it ends with the consumer's death.
"""

import random
from functools import partial

from protocol.trace import TraceKind, TraceRow
from tests.support.builders.rows import Columns
from tests.support.random_worlds.random_world import Life, World

_SERVERS = ("zookeeper-1", "zookeeper-2", "zookeeper-3")
_GROUPS = ("old", "older")
# Consumer -> its group: "consumer-old-0" -> "old".
_CONSUMERS = {f"consumer-{group}-{index}": group for group in _GROUPS for index in range(3)}
_CLIENT_WITHOUT_GROUP = "consumer-stranger-0"
"""A client of ZooKeeper that has sessions, but is a member of no group."""
_PARTITIONS = ("orders-0", "orders-1", "payments-0")
_APIS = (
    "Exists",
    "GetData",
    "GetChildren",
    "Create",
    "Delete",
    "SetData",
    "Connect",
    "CloseSession",
    "Ping",
    "SetWatches",
    "Fetch",
)
"""The kinds of requests that clients send. Fetch belongs to Kafka, all others to ZooKeeper."""
_PHASES = ("starting", "running", "new session")
"""The situations in which a consumer may give up for good."""
_GIVES_AWAY_SHARE = (TraceKind.PARTITIONS_REVOKED, TraceKind.PARTITIONS_LOST)
"""The two kinds of rows by which a consumer says that it no longer owns its partitions."""
_STEPS_US = (0, 1, 900, 15_000, 60_000, 400_000)
"""The possible times between two random events."""
_LAG_US = 300_000
"""The longest delay between a transaction and a server's row about it."""


def random_zookeeper_run(seed: int) -> list[TraceRow]:
    """Return the trace of a random run, in the order in which its rows were written."""
    rng = random.Random(f"ZooKeeper of {seed}")
    # 15 % of the traces have no rows about messages.
    world = World(rng, messages=rng.random() < 0.85)
    # In a third of the runs the clocks are coarse, so that many rows have equal times.
    world.clock_resolution_us = rng.choice((1, 1, 50_000))
    world.stage("starting")
    # The driver is the process that conducts the run. It writes no row about its own start, so
    # `start` is not called for the driver.
    world.lives["driver"] = Life("driver")
    for node in (*_SERVERS, *_CONSUMERS, _CLIENT_WITHOUT_GROUP):
        role = node.split("-")[0]
        world.start(node, role)
    ensemble = _Ensemble(world)
    for _ in range(rng.randint(150, 400)):
        world.advance(rng.choice(_STEPS_US))
        ensemble.act()
    if rng.random() < 0.7:
        world.stage("stopping")
    return world.rows


class _Ensemble:
    """The servers with their log, sessions and znodes, and the consumers of one run."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._rng = world.rng
        # The zxid of the latest transaction. Its upper 32 bits are the epoch of ZooKeeper's leader.
        self._zxid = world.rng.randint(1, 9) << 32
        # Open session -> the client of the session. It is None until a client gets the session.
        self._client_of_session: dict[str, str | None] = {}
        # Path of a znode -> the session that created it if the znode is ephemeral, otherwise None.
        self._znodes: dict[str, str | None] = {}
        # The consumers that are in the middle of an attempt.
        self._attempting: set[str] = set()

    def act(self) -> None:
        """Let one random event happen."""
        # The more often an event is listed, the likelier it is.
        events = (
            self._open_session,
            self._notify_client,
            self._end_session,
            self._write,
            self._write,
            self._write,
            self._commit_offset,
            self._commit_to_kafka,
            self._fire_watch,
            self._send_request,
            self._send_request,
            self._rebalance,
            self._rebalance,
            self._rebalance,
            self._die,
        )
        self._rng.choice(events)()

    # -- the log ---------------------------------------------------------------------------------

    def _apply(self, session: str, op: str, **detail: object) -> None:
        """Append a transaction to the log. Most servers apply it, each after a delay of its own."""
        self._zxid += 1
        # `write_row` runs later, when `_zxid` may have increased. So keep the present value.
        zxid, rng = self._zxid, self._rng
        # The operation "error" stands for a write that failed.
        error = "NodeExists" if op == "error" else None

        def write_row(server: str) -> None:
            self._world.add(
                server,
                TraceKind.ZOOKEEPER_TXN_APPLIED,
                offset=zxid,
                error=error,
                detail={"session": session, "op": op, **detail},
            )

        applying = [server for server in _SERVERS if rng.random() < 0.8]
        for server in applying:
            self._world.later(self._world.delay_us(_LAG_US), partial(write_row, server))

    def _open_session(self) -> None:
        """Open a session. It has no client yet; `_notify_client` chooses one."""
        # The id of a session is the zxid of the transaction that opens the session. This will be
        # the next transaction.
        session = f"{self._zxid + 1:#x}"
        self._client_of_session[session] = None
        self._apply(session, "createSession")

    def _notify_client(self) -> None:
        """Tell a client that its session is connected, disconnected or expired."""
        if not self._client_of_session:
            return
        session = self._rng.choice(list(self._client_of_session))
        client = self._client_of_session[session]
        if client is None:
            client = self._rng.choice([*_CONSUMERS, _CLIENT_WITHOUT_GROUP])
        if not self._world.lives[client].alive:
            return
        self._client_of_session[session] = client
        # "SyncConnected" is listed twice, so it is drawn twice as often as the other states.
        states = ("SyncConnected", "SyncConnected", "Disconnected", "Expired")
        state = self._rng.choice(states)
        self._world.add(
            client,
            TraceKind.ZOOKEEPER_CLIENT_STATE,
            peer=None if state == "Disconnected" else self._rng.choice(_SERVERS),
            detail={"session": session, "state": state},
        )

    def _end_session(self) -> None:
        """End a session, because it expires or because its client closes it.

        A transaction then deletes the session's ephemeral znodes.
        """
        # Six of ten calls do nothing, so that sessions last longer.
        if not self._client_of_session or self._rng.random() < 0.6:
            return
        session = self._rng.choice(list(self._client_of_session))
        del self._client_of_session[session]
        # 60 % of the sessions expire.
        if self._rng.random() < 0.6:
            self._world.add(
                self._rng.choice(_SERVERS),
                TraceKind.ZOOKEEPER_SESSION_EXPIRED,
                detail={"session": session},
            )
        # In one of ten cases the transaction is missing, as in a real trace that ends before the
        # transaction is written.
        if self._rng.random() < 0.9:
            self._apply(session, "closeSession")
            self._znodes = {path: owner for path, owner in self._znodes.items() if owner != session}

    def _write(self) -> None:
        """Create, delete or change an owner node of the group `old`, or let a write fail."""
        if not self._client_of_session:
            return
        session = self._rng.choice(list(self._client_of_session))
        path = f"/consumers/old/owners/orders/{self._rng.randint(0, 3)}"
        if path not in self._znodes:
            ephemeral = self._rng.random() < 0.8
            self._znodes[path] = session if ephemeral else None
            self._apply(session, "create", path=path, data="x", ephemeral=ephemeral)
        elif self._rng.random() < 0.5:
            del self._znodes[path]
            self._apply(session, "delete", path=path)
        elif self._rng.random() < 0.5:
            self._apply(session, "setData", path=path, data="y")
        else:
            self._apply(session, "error")

    def _commit_offset(self) -> None:
        """Commit an offset of a group: write it into a znode."""
        if not self._client_of_session:
            return
        session = self._rng.choice(list(self._client_of_session))
        topic, index = self._rng.choice(_PARTITIONS).rsplit("-", 1)
        path = f"/consumers/{self._rng.choice(_GROUPS)}/offsets/{topic}/{index}"
        op = self._rng.choice(("create", "setData"))
        data = str(self._rng.randint(0, 9))
        self._znodes[path] = None
        # Only a "create" says whether the znode is ephemeral.
        if op == "create":
            self._apply(session, op, path=path, data=data, ephemeral=False)
        else:
            self._apply(session, op, path=path, data=data)

    def _commit_to_kafka(self) -> None:
        """Let a broker store a committed offset of a group on ZooKeeper.

        Consumers send such commits while a group moves from ZooKeeper to Kafka. If the member is
        None or "", the commit comes from no member of the group.
        """
        self._world.add(
            "broker-0",
            TraceKind.COMMIT_STORED,
            group=self._rng.choice(_GROUPS),
            member=self._rng.choice((None, "", *_CONSUMERS)),
            partition=self._rng.choice(_PARTITIONS),
            offset=self._rng.randint(0, 9),
        )

    def _fire_watch(self) -> None:
        """Let a server tell a client about a change that the client watches.

        The offset of the row is the zxid of the change, which is one of the latest four changes.
        """
        self._world.add(
            self._rng.choice(_SERVERS),
            TraceKind.ZOOKEEPER_WATCH_FIRED,
            peer=self._rng.choice([*_CONSUMERS, _CLIENT_WITHOUT_GROUP]),
            offset=self._zxid - self._rng.randint(0, 3),
            detail={"type": "NodeChildrenChanged", "path": "/consumers/old/ids"},
        )

    # -- consumers -------------------------------------------------------------------------------

    def _send_request(self) -> None:
        """Let a client send a request to a server."""
        client = self._rng.choice([*_CONSUMERS, _CLIENT_WITHOUT_GROUP])
        if self._world.lives[client].alive:
            self._world.add(
                client,
                TraceKind.REQUEST_SENT,
                peer=self._rng.choice(_SERVERS),
                api=self._rng.choice(_APIS),
                correlation_id=self._rng.randint(0, 99),
            )

    def _rebalance(self) -> None:
        """Let a random consumer take the next step of its attempt, or perhaps begin an attempt."""
        rng, consumer = self._rng, self._rng.choice(list(_CONSUMERS))
        if not self._world.lives[consumer].alive:
            return
        common: Columns = {"group": _CONSUMERS[consumer], "member": consumer}
        share = rng.sample(_PARTITIONS, rng.randint(0, len(_PARTITIONS)))
        # A consumer that is in no attempt gives up for good, gives its share away, or begins an
        # attempt.
        if consumer not in self._attempting:
            if rng.random() < 0.3:
                detail: dict[str, object] = {"attempts": 4, "during": rng.choice(_PHASES)}
                kind = TraceKind.ZOOKEEPER_GAVE_UP
            elif rng.random() < 0.3:
                kind, detail = rng.choice(_GIVES_AWAY_SHARE), {"partitions": share}
            else:
                self._attempting.add(consumer)
                kind, detail = TraceKind.ZOOKEEPER_ATTEMPT_STARTED, {"attempt": rng.randint(0, 3)}
            self._world.add(consumer, kind, common, detail=detail)
            return
        # A consumer in an attempt takes one of four steps. The last step ends the attempt. It is
        # drawn for 3 and for 4, so it is twice as likely as each of the other steps.
        match rng.randint(0, 4):
            case 0:
                kind, detail = rng.choice(_GIVES_AWAY_SHARE), {"partitions": share}
                self._world.add(consumer, kind, common, detail=detail)
            case 1:
                # The consumer has read which members the group has, and computes its share.
                members = sorted(rng.sample(list(_CONSUMERS), 2))
                detail = {"members": members, "partitions": share}
                self._world.add(consumer, TraceKind.ZOOKEEPER_VIEW, common, detail=detail)
            case 2:
                self._world.add(
                    consumer,
                    TraceKind.ZOOKEEPER_CLAIM_CONFLICT,
                    common,
                    partition=rng.choice(_PARTITIONS),
                    detail={"owner": rng.choice((None, "somebody-0"))},
                )
            case _:
                self._attempting.discard(consumer)
                done = rng.random() < 0.5
                # 40 % of the failing attempts end with an error of ZooKeeper.
                has_error = not done and rng.random() >= 0.6
                self._world.add(
                    consumer,
                    TraceKind.ZOOKEEPER_ATTEMPT_ENDED,
                    common,
                    cause_text="NoNode /consumers/old/ids/x" if has_error else None,
                    detail={"attempt": 0, "done": done, "conflicts": 0},
                )

    def _die(self) -> None:
        """Let a consumer die, perhaps in the middle of an attempt.

        If the consumer is already dead, start it again.
        """
        consumer = self._rng.choice(list(_CONSUMERS))
        # Half of the calls do nothing, so that deaths are rarer than the other events.
        if self._rng.random() < 0.5:
            return
        self._attempting.discard(consumer)
        if self._world.lives[consumer].alive:
            self._world.kill(consumer)
        else:
            self._world.start(consumer, "consumer")
