"""Random traces of a ZooKeeper ensemble and of consumers on it.

The tests of the analysis compute tables from these traces (recorded events, one row each).

The servers of an ensemble apply one log of transactions, each at its own pace. A zxid is the number
of a transaction in the log. A znode is a node of ZooKeeper's tree of data. A session belongs to one
client. It outlives the client's connection to a server. A znode is ephemeral if it is deleted with
the session that created it. A watch notifies a client of one change of a znode.

An attempt is one try of a consumer to own its share of the partitions; it succeeds, conflicts,
fails, is given up, or ends with the consumer's death. The owner node of a partition is the znode
that names the partition's consumer.
"""

import random

from protocol.trace import TraceKind, TraceRow
from tests.support.builders.rows import Columns
from tests.support.random_worlds.random_world import Life, World

_SERVERS = ("zookeeper-1", "zookeeper-2", "zookeeper-3")
_GROUPS = ("old", "older")
_CONSUMERS = {f"consumer-{group}-{index}": group for group in _GROUPS for index in range(3)}
_CLIENT_WITHOUT_GROUP = "consumer-stranger-0"
"""A client that opens sessions and never rebalances."""
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
_PHASES = ("starting", "running", "new session")
"""What a consumer was doing when it gave up its attempts."""
_SHARE_ENDED = (TraceKind.PARTITIONS_REVOKED, TraceKind.PARTITIONS_LOST)
"""Rows of a consumer that gives up its share of the partitions."""
_STEPS_US = (0, 1, 900, 15_000, 60_000, 400_000)
"""Times that may pass between two acts. An act is one random event of the run."""
_LAG_US = 300_000  # longest time until a server applies a transaction


def random_zookeeper_run(seed: int) -> list[TraceRow]:
    """Return the trace of a random run of an ensemble, in the order in which rows were written."""
    rng = random.Random(f"ZooKeeper of {seed}")
    world = World(rng, messages=rng.random() < 0.85)  # the other traces have no rows of messages
    # In a third of the runs the clocks are coarse, so that many rows have equal times.
    world.grain_us = rng.choice((1, 1, 50_000))
    world.stage("starting")
    # The driver is the process that conducts the run. It writes no row of its start.
    world.lives["driver"] = Life("driver")
    for node in (*_SERVERS, *_CONSUMERS, _CLIENT_WITHOUT_GROUP):
        world.start(node, node.split("-")[0])  # the name of a node begins with its role
    ensemble = _Ensemble(world)
    for _ in range(rng.randint(150, 400)):
        world.advance(rng.choice(_STEPS_US))
        ensemble.act()
    if rng.random() < 0.7:
        world.stage("stopping")
    return world.rows


class _Ensemble:
    """The log, the sessions, the znodes and the consumers of one run."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._rng = world.rng
        # The upper 32 bits are the leader's epoch.
        self._zxid = world.rng.randint(1, 9) << 32
        # The client of each open session. It is None until a client is notified of the session.
        self._open: dict[str, str | None] = {}
        # The session of each ephemeral znode, by path. For other znodes it is None.
        self._znodes: dict[str, str | None] = {}
        self._attempts: dict[str, bool] = {}  # consumer -> True during an attempt

    def act(self) -> None:
        """Let one random event happen."""
        # The more often an act is listed, the likelier it is.
        acts = (
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
        self._rng.choice(acts)()

    # -- the log ---------------------------------------------------------------------------------

    def _apply(self, session: str, op: str, **detail: object) -> None:
        """Log a transaction, which some servers apply, each after its own delay."""
        self._zxid += 1
        zxid, rng = self._zxid, self._rng
        error = "NodeExists" if op == "error" else None
        applying = [server for server in _SERVERS if rng.random() < 0.8]
        for server in applying:
            # As a default, `server` keeps the value of this turn of the loop.
            def apply(server: str = server) -> None:
                self._world.add(
                    server,
                    TraceKind.ZOOKEEPER_TXN_APPLIED,
                    offset=zxid,
                    error=error,
                    detail={"session": session, "op": op, **detail},
                )

            self._world.later(self._world.delay_us(_LAG_US), apply)

    def _open_session(self) -> None:
        """Open a session that no client was notified of yet."""
        # The id of a session is the zxid of the transaction that opens it.
        session = f"{self._zxid + 1:#x}"
        self._open[session] = None
        self._apply(session, "createSession")

    def _notify_client(self) -> None:
        """Notify a client that its session is connected, disconnected or expired."""
        if not self._open:
            return
        session = self._rng.choice(list(self._open))
        client = self._open[session] or self._rng.choice([*_CONSUMERS, _CLIENT_WITHOUT_GROUP])
        if not self._world.lives[client].alive:
            return
        self._open[session] = client
        states = ("SyncConnected", "SyncConnected", "Disconnected", "Expired")
        state = self._rng.choice(states)
        self._world.add(
            client,
            TraceKind.ZOOKEEPER_CLIENT_STATE,
            peer=None if state == "Disconnected" else self._rng.choice(_SERVERS),
            detail={"session": session, "state": state},
        )

    def _end_session(self) -> None:
        """End a session in 40 % of the calls.

        60 % of these sessions expire, and their clients close the others. When a session ends, a
        transaction deletes its znodes. In 10 % of the cases the trace lacks this transaction.
        """
        if not self._open or self._rng.random() < 0.6:
            return
        session = self._rng.choice(list(self._open))
        del self._open[session]
        if self._rng.random() < 0.6:
            self._world.add(
                self._rng.choice(_SERVERS),
                TraceKind.ZOOKEEPER_SESSION_EXPIRED,
                detail={"session": session},
            )
        if self._rng.random() < 0.9:
            self._apply(session, "closeSession")
            self._znodes = {path: owner for path, owner in self._znodes.items() if owner != session}

    def _write(self) -> None:
        """Create, delete or change an owner node of the group `old`, or let a write fail."""
        if not self._open:
            return
        session = self._rng.choice(list(self._open))
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
        """Commit an offset of any group into a znode."""
        if not self._open:
            return
        session = self._rng.choice(list(self._open))
        topic, index = self._rng.choice(_PARTITIONS).rsplit("-", 1)
        path = f"/consumers/{self._rng.choice(_GROUPS)}/offsets/{topic}/{index}"
        op = self._rng.choice(("create", "setData"))
        data = str(self._rng.randint(0, 9))
        self._znodes[path] = None
        if op == "create":
            self._apply(session, op, path=path, data=data, ephemeral=False)
        else:
            self._apply(session, op, path=path, data=data)

    def _commit_to_kafka(self) -> None:
        """Let a broker store a committed offset of a group on ZooKeeper.

        Consumers send such commits while they move from ZooKeeper to Kafka. The member None or ""
        means that the commit is from no member of the group.
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
        """Let a server notify a client of one of the latest four transactions.

        The offset of the row is the zxid of this transaction.
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
        """Let a random consumer take the next step of its attempt, or begin an attempt."""
        rng, consumer = self._rng, self._rng.choice(list(_CONSUMERS))
        if not self._world.lives[consumer].alive:
            return
        common: Columns = {"group": _CONSUMERS[consumer], "member": consumer}
        share = rng.sample(_PARTITIONS, rng.randint(0, len(_PARTITIONS)))
        # Outside an attempt, the consumer gives up its attempts or its share, or begins an attempt.
        if not self._attempts.get(consumer):
            if rng.random() < 0.3:
                detail: dict[str, object] = {"attempts": 4, "during": rng.choice(_PHASES)}
                kind = TraceKind.ZOOKEEPER_GAVE_UP
            elif rng.random() < 0.3:
                kind, detail = rng.choice(_SHARE_ENDED), {"partitions": share}
            else:
                self._attempts[consumer] = True
                kind, detail = TraceKind.ZOOKEEPER_ATTEMPT_STARTED, {"attempt": rng.randint(0, 3)}
            self._world.add(consumer, kind, common, detail=detail)
            return
        # During an attempt, it takes one of four steps. The last, its end, is twice as likely.
        match rng.randint(0, 4):
            case 0:
                kind, detail = rng.choice(_SHARE_ENDED), {"partitions": share}
                self._world.add(consumer, kind, common, detail=detail)
            case 1:
                # The consumer has read the group's members, and computes its share from them.
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
                self._attempts[consumer] = False
                done = rng.random() < 0.5
                # Of the attempts that fail, 40 % end with an error of ZooKeeper.
                self._world.add(
                    consumer,
                    TraceKind.ZOOKEEPER_ATTEMPT_ENDED,
                    common,
                    cause_text=None
                    if done or rng.random() < 0.6
                    else "NoNode /consumers/old/ids/x",
                    detail={"attempt": 0, "done": done, "conflicts": 0},
                )

    def _die(self) -> None:
        """Let a consumer die, perhaps during an attempt, or start a dead consumer again."""
        consumer = self._rng.choice(list(_CONSUMERS))
        # Half of the calls do nothing, so that deaths are rarer than the other acts.
        if self._rng.random() < 0.5:
            return
        self._attempts[consumer] = False
        if self._world.lives[consumer].alive:
            self._world.kill(consumer)
        else:
            self._world.start(consumer, "consumer")
