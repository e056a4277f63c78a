"""The bugs of the ZooKeeper ensemble and of the consumer on it, for the space `zookeeper`.

A function below plants the bug that has the function's name. Its docstring says what the code does
while the bug is planted. `ZOOKEEPER_BUGS`, at the end, also says which rule each bug breaks; rules
such as ZK-20 are in docs/kafka/ZOOKEEPER_CONSUMER.md.

A consumer on ZooKeeper rebalances by itself. In one attempt it does this:

1. It releases its partitions.
2. It reads the members of its group, and computes its share of the partitions.
3. It claims each partition of this share with an ephemeral znode, which ZooKeeper removes when the
   consumer's session ends. Then `registry` has the partitions that the consumer owns.
"""

from contextlib import ExitStack
from unittest.mock import patch

from benchmarks.planted_bugs.planted_bug import PlantedBug
from cluster.client.zookeeper_consumer.assignment import GroupView
from cluster.client.zookeeper_consumer.rebalance import Rebalancer
from cluster.host.host import Connection, Disconnected, RequestTimedOut
from cluster.host.incoming_request import AcceptedConnection
from cluster.zookeeper.client import ZooKeeperHandle
from cluster.zookeeper.client_requests import ClientRequests, Role
from cluster.zookeeper.node import ZooKeeperNode
from cluster.zookeeper.outputs import Notify, Output, ServerResult
from cluster.zookeeper.znodes import Change, ZnodeTree
from protocol.api import AnyResponse
from protocol.ids import RequestId, TopicPartition
from protocol.messages.zookeeper import (
    NO_SESSION,
    ConnectRequest,
    SessionId,
    WatcherEvent,
    Zxid,
)

SPACE = "zookeeper"
_LATE_US = 20_000
"""Delay of watch events, longer than a round trip."""


# -- the ensemble ---------------------------------------------------------------------------------


def _watch_lost_at_reconnection(stack: ExitStack) -> None:
    """Do not set a client's watches again when it has reconnected."""
    connect_answered = ZooKeeperHandle._connect_answered

    def forget_watches(
        self: ZooKeeperHandle,
        connection: Connection,
        answer: AnyResponse | Disconnected | RequestTimedOut,
    ) -> None:
        # The client would now set these watches again, because its session has been accepted.
        for watches in (self._data_watches, self._exist_watches, self._child_watches):
            watches.clear()
        connect_answered(self, connection, answer)

    stack.enter_context(patch.object(ZooKeeperHandle, "_connect_answered", forget_watches))


def _ephemeral_survives(stack: ExitStack) -> None:
    """Leave the youngest ephemeral znode of a session at the end of the session."""
    end_session = ZnodeTree.end_session

    def keep_the_last(self: ZnodeTree, session_id: SessionId, zxid: Zxid) -> tuple[Change, ...]:
        # The youngest ephemeral gets no owner, so that the end of the session does not remove it.
        owned = self.ephemerals(session_id)
        if owned:
            self._znodes[owned[-1]].ephemeral_owner = NO_SESSION
            del self._ephemerals[session_id][owned[-1]]
        return end_session(self, session_id, zxid)

    stack.enter_context(patch.object(ZnodeTree, "end_session", keep_the_last))


def _server_takes_anyone_up(stack: ExitStack) -> None:
    """Let a server continue every session that it knows, without asking the leader."""
    connect = ClientRequests._connect

    def take_up_what_is_known(
        self: ClientRequests,
        connection: AcceptedConnection,
        request_id: RequestId,
        request: ConnectRequest,
        role: Role,
        now_us: int,
        result: ServerResult,
    ) -> None:
        # The bug is that the server does not compare zxids. It must not ask the leader, either: the
        # answer would arrive after all earlier transactions, so the server would be up to date.
        timeout_ms = self._database.sessions.get(request.session_id)
        if timeout_ms is None:
            connect(self, connection, request_id, request, role, now_us, result)
        else:
            self._take_up(request_id, connection, request.session_id, timeout_ms, result)

    stack.enter_context(patch.object(ClientRequests, "_connect", take_up_what_is_known))


def _event_behind_answers(stack: ExitStack) -> None:
    """Send events late, after answers that show their changes."""
    carry_out_one = ZooKeeperNode._carry_out_one

    def send_events_late(self: ZooKeeperNode, output: Output) -> None:
        if isinstance(output, Notify) and isinstance(output.notice, WatcherEvent):
            self._host.after(_LATE_US, self._host.notify, output.connection, output.notice)
        else:
            carry_out_one(self, output)

    stack.enter_context(patch.object(ZooKeeperNode, "_carry_out_one", send_events_late))


# -- the consumer ---------------------------------------------------------------------------------


def _claims_before_release(stack: ExitStack) -> None:
    """Let an attempt claim its new share before it releases its old share."""
    claim = Rebalancer._claim
    kept: dict[Rebalancer, tuple[TopicPartition, ...]] = {}

    # A rebalance calls `_release` before `_claim`. The bug replaces `_release` by this function,
    # which leaves the znodes that say who owns the partitions.
    async def keep(self: Rebalancer) -> None:
        kept[self] = tuple(self.registry)
        self.registry = {}

    async def claim_then_release(self: Rebalancer, assigned: dict[TopicPartition, str]) -> bool:
        done = await claim(self, assigned)
        for partition in kept.pop(self, ()):
            if partition not in assigned:
                await self._member.zk.delete(self._member.paths.owner(partition))
        return done

    stack.enter_context(patch.object(Rebalancer, "_release", keep))
    stack.enter_context(patch.object(Rebalancer, "_claim", claim_then_release))


def _retry_without_reading(stack: ExitStack) -> None:
    """Let the second attempt of a rebalance use the members that the first attempt has read."""
    attempt_once, read_view = Rebalancer._attempt, Rebalancer._read_view
    views: dict[Rebalancer, GroupView] = {}

    # `number` counts the attempts of one rebalance from 0. Only attempt 0 reads a new view.
    async def attempt(self: Rebalancer, number: int) -> bool:
        if number == 0:
            views.pop(self, None)
        return await attempt_once(self, number)

    async def read_once(self: Rebalancer) -> GroupView:
        if self not in views:
            views[self] = await read_view(self)
        return views[self]

    stack.enter_context(patch.object(Rebalancer, "_attempt", attempt))
    stack.enter_context(patch.object(Rebalancer, "_read_view", read_once))


def _commits_after_expiry(stack: ExitStack) -> None:
    """Commit offsets of a consumer's former partitions after its session has expired."""
    reset_state, commit = Rebalancer.reset_state, Rebalancer.commit
    # Offsets of records that were consumed when the session expired. The next commit includes them.
    forgotten: dict[Rebalancer, dict[TopicPartition, int]] = {}

    def remember(self: Rebalancer) -> None:
        forgotten[self] = {
            partition: info.consumed_offset
            for partition, info in self.registry.items()
            if info.consumed_offset >= 0
        }
        reset_state(self)

    async def commit_all(self: Rebalancer, *, retries: int) -> None:
        await commit(self, retries=retries)
        await self._offsets.commit(forgotten.pop(self, {}), retries=retries)

    stack.enter_context(patch.object(Rebalancer, "reset_state", remember))
    stack.enter_context(patch.object(Rebalancer, "commit", commit_all))


ZOOKEEPER_BUGS: tuple[PlantedBug, ...] = (
    PlantedBug(
        name="watch_lost_at_reconnection",
        where="ZooKeeper client",
        what="a client does not set its watches again when it has reconnected",
        rule="ZK-20: the client library re-registers its watches",
        plant=_watch_lost_at_reconnection,
        space=SPACE,
    ),
    PlantedBug(
        name="ephemeral_survives",
        where="ZooKeeper server",
        what="the end of a session leaves its youngest ephemeral znode",
        rule="ZK-12: applying the end of a session removes all its ephemerals in one step",
        plant=_ephemeral_survives,
        space=SPACE,
    ),
    PlantedBug(
        name="server_takes_anyone_up",
        where="ZooKeeper server",
        what=(
            "a server continues every session that it knows: it asks no leader, and compares "
            "no zxid"
        ),
        rule="ZK-05: a client never goes back in time",
        plant=_server_takes_anyone_up,
        space=SPACE,
    ),
    PlantedBug(
        name="event_behind_answers",
        where="ZooKeeper server",
        what="events are sent 20 ms late, after answers that show their changes",
        rule="ZK-19: the event is delivered before any answer that shows the change",
        plant=_event_behind_answers,
        space=SPACE,
    ),
    PlantedBug(
        name="claims_before_release",
        where="consumer on ZooKeeper",
        what="an attempt claims its new share before it releases the old one",
        rule="ZK-41: everything is given up before anything is known",
        plant=_claims_before_release,
        space=SPACE,
    ),
    PlantedBug(
        name="retry_without_reading",
        where="consumer on ZooKeeper",
        what=(
            "the second attempt of a rebalance computes from the members that the first one "
            "has read"
        ),
        rule="ZK-43: the child list used for the assignment is that of the attempt",
        plant=_retry_without_reading,
        space=SPACE,
    ),
    PlantedBug(
        name="commits_after_expiry",
        where="consumer on ZooKeeper",
        what=(
            "a consumer whose session has expired commits offsets of the partitions that it "
            "had owned"
        ),
        rule="ZK-55: the registry is emptied, nothing is committed",
        plant=_commits_after_expiry,
        space=SPACE,
    ),
)
