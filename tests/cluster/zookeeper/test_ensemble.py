"""An ensemble of ZooKeeper servers on their hosts: order, lag, sessions, connections, and faults.

`run_ensemble(scenario, 3)` plays a scenario with three servers in virtual time, and
`run_ensemble(scenario)` with one. `lab.client(0, [server])` is a client on the host `client-0` with
a session of its own. The client knows only this server; without a list it knows all servers.
`client.call(request)` waits for the answer. `lab.cut` holds messages back, and
`lab.rule(Slow(...), sources, destinations)` delays them, until `lab.heal()`.

Many tests have a second client, the witness. It reads from ZooKeeper whether the ephemeral znode of
the first client still exists, and so whether its session has ended. The session timeout is 6 s;
sessions end only at ticks, which come every 2 s.

Ids such as ZK-03 name rules of docs/kafka/ZOOKEEPER_CONSUMER.md, which the docstrings quote.
"""

import pytest

from cluster.links.rules import Slow
from cluster.zookeeper.client import KeeperException, KeeperState
from protocol.ids import NodeName
from protocol.messages.zookeeper import (
    CreateRequest,
    DeleteRequest,
    ExistsRequest,
    GetChildrenRequest,
    GetChildrenResponse,
    GetDataRequest,
    GetDataResponse,
    KeeperError,
    SetDataRequest,
    WatcherEvent,
    WatchType,
    ZooKeeperResponse,
)
from protocol.trace import TraceKind
from tests.support.harness.ensemble import SECOND, Client, EnsembleRun, run_ensemble

LAG_US = 400_000
"""The delay of the leader's messages to a follower."""
RECONNECT_US = 2 * SECOND
"""Long enough for a client to reconnect, even if it first tries a server without a leader."""


async def wait_until_connected(lab: EnsembleRun, client: Client) -> None:
    """Wait until a client is connected, for 20 s at most."""
    for _ in range(200):
        if client.handle.is_connected:
            return
        await lab.runtime.sleep(SECOND // 10)
    raise AssertionError(client.states)


async def children(client: Client, path: str, *, watch: bool = False) -> tuple[str, ...]:
    """Return the names of a path's children; with `watch`, also set a watch on them."""
    answer = await client.call(GetChildrenRequest(path=path, watch=watch))
    assert isinstance(answer, GetChildrenResponse)
    return answer.children


def test_requests_of_a_session_are_carried_out_in_the_order_sent() -> None:
    """Answers come in that order, and a read after an own write sees that write (ZK-04).

    The follower answers a read by itself, but it must wait for the leader before it can answer a
    write. Here the leader's messages are late. The read must still see the write before it.
    """

    async def scenario(lab: EnsembleRun) -> None:
        leader = await lab.leader()
        follower = next(name for name in lab.servers if name != leader)
        await lab.rule(Slow(delay_us=LAG_US), [leader], [follower])
        client = lab.client(servers=[follower])
        await wait_until_connected(lab, client)

        answers: list[ZooKeeperResponse | KeeperError] = []
        for request in (
            CreateRequest(path="/consumers/g", data="0"),
            SetDataRequest(path="/consumers/g", data="1"),
            GetDataRequest(path="/consumers/g"),
        ):
            client.handle.send(request, answers.append)

        await lab.runtime.sleep(3 * LAG_US)
        assert [type(answer).__name__ for answer in answers] == [
            "CreateResponse",
            "SetDataResponse",
            "GetDataResponse",
        ]
        assert isinstance(answers[2], GetDataResponse)
        assert answers[2].data == "1"

    run_ensemble(scenario, 3)


def test_read_of_a_lagging_follower_shows_its_applied_writes() -> None:
    """A read may lag behind the leader; between two clients there is no guarantee (ZK-03, ZK-05).

    A server answers the writer after applying the write itself (ZK-02). So a client of the leader
    has the answer long before a client of the follower can read the write.
    """

    async def scenario(lab: EnsembleRun) -> None:
        leader = await lab.leader()
        follower = next(name for name in lab.servers if name != leader)
        writer, reader = lab.client(0, [leader]), lab.client(1, [follower])
        await wait_until_connected(lab, writer)
        await wait_until_connected(lab, reader)
        assert await children(reader, "/consumers", watch=True) == ()

        await lab.rule(Slow(delay_us=LAG_US), [leader], [follower])
        began_us = lab.runtime.now_us()
        await writer.call(CreateRequest(path="/consumers/g"))
        assert lab.runtime.now_us() - began_us < LAG_US // 4  # the answer does not wait for the lag
        assert await children(writer, "/consumers") == ("g",)
        assert await children(reader, "/consumers") == ()
        assert reader.events == []

        await lab.runtime.sleep(LAG_US + LAG_US // 4)
        assert await children(reader, "/consumers") == ("g",)
        # A watch fires on the server of its client, when that server applies the change (ZK-17).
        assert reader.events == [
            WatcherEvent(event_type=WatchType.NODE_CHILDREN_CHANGED, path="/consumers")
        ]

    lab = run_ensemble(scenario, 3)
    applied = [
        row
        for row in lab.of(TraceKind.ZOOKEEPER_TXN_APPLIED)
        if "/consumers/g" in (row.detail or "")
    ]
    # Each of the three servers has applied the write, the last one after the lag.
    times_us = sorted(row.time_us for row in applied)
    assert len(times_us) == 3
    assert LAG_US <= times_us[-1] - times_us[0] <= LAG_US * 5 // 4


def test_event_is_delivered_before_any_answer_that_shows_the_change() -> None:
    """On one connection the event arrives before an answer that shows the change (ZK-19).

    The watcher reads again and again until an answer has the new child.
    """

    async def scenario(lab: EnsembleRun) -> None:
        watcher, writer = lab.client(0), lab.client(1)
        await wait_until_connected(lab, watcher)
        await wait_until_connected(lab, writer)
        # The events and the answers, in the order of their arrival. An answer is the tuple of the
        # children, `()` before the change and `("g",)` after it.
        received: list[object] = []
        watcher.handle._on_event = received.append
        await children(watcher, "/consumers", watch=True)
        writer.handle.send(CreateRequest(path="/consumers/g"), lambda _answer: None)

        def read_again(answer: ZooKeeperResponse | KeeperError) -> None:
            assert isinstance(answer, GetChildrenResponse)
            received.append(answer.children)
            if not answer.children:
                watcher.handle.send(GetChildrenRequest(path="/consumers"), read_again)

        watcher.handle.send(GetChildrenRequest(path="/consumers"), read_again)
        await lab.runtime.sleep(SECOND // 10)
        before_changed_answer = received[: received.index(("g",))]
        assert any(isinstance(message, WatcherEvent) for message in before_changed_answer)

    for seed in range(5):
        run_ensemble(scenario, seed=seed)


def test_client_never_goes_back_in_time_when_it_changes_servers() -> None:
    """A server that has applied fewer transactions than the client has seen refuses it (ZK-05).

    The client changes between the leader and a follower that lags by 1.5 s, while another client
    creates znodes. The number of znodes that the client reads must never decrease. So the follower
    must refuse the client now and then.
    """
    lag_us = SECOND * 3 // 2
    refusals = 0
    for seed in range(4):

        async def scenario(lab: EnsembleRun) -> None:
            leader = await lab.leader()
            follower = next(name for name in lab.servers if name != leader)
            client, writer = lab.client(0, [leader, follower]), lab.client(1, [leader])
            await wait_until_connected(lab, client)
            await wait_until_connected(lab, writer)
            await lab.rule(Slow(delay_us=lag_us), [leader], [follower])

            last_count = -1
            for index in range(12):
                await writer.call(CreateRequest(path=f"/consumers/{index:02}"))
                if client.handle.is_connected:
                    count = len(await children(client, "/consumers"))
                    assert count >= last_count
                    last_count = count
                # The client loses its connection, and tries the other server.
                await lab.runtime.reset_links([NodeName("client-0")], lab.servers)
                await lab.runtime.sleep(SECOND * 5 // 4)
            await wait_until_connected(lab, client)

        lab = run_ensemble(scenario, 3, seed=seed)
        tries = [
            row
            for row in lab.of(TraceKind.REQUEST_SENT)
            if row.node == "client-0" and row.api == "Connect"
        ]
        successes = [
            row
            for row in lab.of(TraceKind.ZOOKEEPER_CLIENT_STATE)
            if row.node == "client-0" and "SyncConnected" in (row.detail or "")
        ]
        # A try to connect that did not succeed was refused.
        refusals += len(tries) - len(successes)
    assert refusals > 4  # on average more than one for each of the four seeds


def test_session_outlives_its_connection_and_its_server() -> None:
    """A session is an object of the ensemble, not of a TCP connection; ephemerals stay (ZK-09)."""

    async def scenario(lab: EnsembleRun) -> None:
        leader = await lab.leader()
        server, other = [name for name in lab.servers if name != leader]
        client, witness = lab.client(0, [server, other]), lab.client(1, [leader])
        await wait_until_connected(lab, client)
        await wait_until_connected(lab, witness)

        session_id = client.handle.session_id
        await client.call(CreateRequest(path="/consumers/mine", ephemeral=True))
        await lab.runtime.crash(server)
        await lab.runtime.sleep(RECONNECT_US)
        await lab.runtime.sleep(15 * SECOND)  # much longer than the session timeout

        assert client.handle.is_connected
        assert client.handle.session_id == session_id
        assert await children(witness, "/consumers") == ("mine",)
        assert KeeperState.EXPIRED not in client.states

    run_ensemble(scenario, 3)


def test_death_of_a_client_is_noticed_after_four_to_eight_seconds() -> None:
    """A closed socket (kill -9) shortens nothing: the session lives on until its deadline (ZK-11).

    The session ends 4 to 8 s after the death (ZK-10). The timeout of 6 s counts from the last ping,
    which was up to 2 s before the death: 6 s - 2 s = 4 s. The deadline is then rounded up to the
    next tick of 2 s: 6 s + 2 s = 8 s.
    """
    for seed, wait_us in enumerate(range(0, 2 * SECOND, SECOND // 4)):
        # The default keeps the `wait_us` of this round of the loop.
        async def scenario(lab: EnsembleRun, wait_us: int = wait_us) -> None:
            client, witness = lab.client(0), lab.client(1)
            await wait_until_connected(lab, client)
            await wait_until_connected(lab, witness)
            await client.call(CreateRequest(path="/consumers/mine", ephemeral=True))
            await children(witness, "/consumers", watch=True)
            # With another `wait_us` the death is at another place between two ticks.
            await lab.runtime.sleep(4 * SECOND + wait_us)
            died_us = lab.runtime.now_us()
            await lab.runtime.crash(NodeName("client-0"))

            await lab.runtime.sleep(4 * SECOND - SECOND // 100)  # 10 ms before the earliest end
            assert witness.events == []
            await lab.runtime.sleep(4 * SECOND + SECOND // 50)  # 10 ms after the latest end
            assert await children(witness, "/consumers") == ()
            (expired,) = lab.of(TraceKind.ZOOKEEPER_SESSION_EXPIRED)
            assert 4 * SECOND <= expired.time_us - died_us <= 8 * SECOND
            assert len(witness.events) == 1

        run_ensemble(scenario, seed=seed)


def test_clean_close_ends_the_session_at_once() -> None:
    """A clean `close` ends it at once (ZK-11), and deletes the session's ephemeral nodes."""

    async def scenario(lab: EnsembleRun) -> None:
        client, witness = lab.client(0), lab.client(1)
        await wait_until_connected(lab, client)
        await client.call(CreateRequest(path="/consumers/mine", ephemeral=True))
        closed: list[bool] = []
        client.handle.close(lambda: closed.append(True))
        await lab.runtime.sleep(SECOND // 100)
        assert closed == [True]
        assert await children(witness, "/consumers") == ()

    run_ensemble(scenario)


def test_client_that_is_cut_off_learns_of_its_expiry_only_from_a_server() -> None:
    """A client that is cut off for an hour stays Disconnected (ZK-13).

    Three moments differ: the last packet heard, the end of the session, and the moment at which
    the old owner hears it (ZK-14). Here the old owner, `client`, learns of the end of its session
    only after the cut.
    """

    async def scenario(lab: EnsembleRun) -> None:
        client, witness = lab.client(0), lab.client(1)
        await wait_until_connected(lab, client)
        await wait_until_connected(lab, witness)
        await client.call(CreateRequest(path="/consumers/mine", ephemeral=True))

        await lab.cut(["client-0"], lab.servers)
        await lab.runtime.sleep(9 * SECOND)  # the session has ended after at most 8 s
        assert await children(witness, "/consumers") == ()
        await lab.runtime.sleep(3_600 * SECOND)
        assert client.states == [KeeperState.SYNC_CONNECTED, KeeperState.DISCONNECTED]

        await lab.heal()
        await lab.runtime.sleep(RECONNECT_US)
        assert client.states[2:] == [KeeperState.EXPIRED]
        with pytest.raises(KeeperException, match="SessionExpired"):
            await client.call(ExistsRequest(path="/consumers"))

    run_ensemble(scenario)


def test_lost_connection_fails_requests_in_flight_that_may_have_been_applied() -> None:
    """The client cannot know whether a write was applied (ZK-15).

    Here two writes are applied, but the client loses its connection before it gets the answers.
    """

    async def scenario(lab: EnsembleRun) -> None:
        client, witness = lab.client(0), lab.client(1)
        await wait_until_connected(lab, client)
        await wait_until_connected(lab, witness)
        # Requests arrive, but the answers do not.
        await lab.rule(Slow(delay_us=30 * SECOND), lab.servers, ["client-0"])
        outcomes: list[ZooKeeperResponse | KeeperError] = []
        client.handle.send(CreateRequest(path="/consumers/g"), outcomes.append)
        client.handle.send(CreateRequest(path="/consumers/h"), outcomes.append)
        await lab.runtime.sleep(5 * SECOND)  # after 4 s of silence the client gives up
        assert outcomes == [KeeperError.ConnectionLoss, KeeperError.ConnectionLoss]
        assert await children(witness, "/consumers") == ("g", "h")

    run_ensemble(scenario)


def test_silent_connection_is_dropped_after_two_thirds_of_the_timeout() -> None:
    """A client drops a silent connection after 4 s, two thirds of 6 s (ZK-13).

    It then sleeps a random time below 1 s and connects to the next server.
    """

    async def scenario(lab: EnsembleRun) -> None:
        leader = await lab.leader()
        server, other = [name for name in lab.servers if name != leader]
        client = lab.client(0, [server, other])
        await wait_until_connected(lab, client)
        first_server = next(
            row.peer for row in lab.of(TraceKind.ZOOKEEPER_CLIENT_STATE) if row.node == "client-0"
        )
        await lab.runtime.pause(NodeName(str(first_server)))
        await lab.runtime.sleep(6 * SECOND)  # enough for 4 s of silence, the wait, and a new try
        assert client.states[-1] is KeeperState.SYNC_CONNECTED
        await lab.runtime.resume(NodeName(str(first_server)))

    lab = run_ensemble(scenario, 3)
    changes = [row for row in lab.of(TraceKind.ZOOKEEPER_CLIENT_STATE) if row.node == "client-0"]
    connected_first, disconnected, connected_again = changes[:3]
    connected_us = disconnected.time_us - connected_first.time_us
    assert 4 * SECOND <= connected_us <= 6 * SECOND + SECOND // 10
    assert connected_again.time_us - disconnected.time_us <= SECOND + SECOND // 10
    assert connected_again.peer != connected_first.peer


def test_watches_are_registered_again_at_a_reconnection_and_missed_changes_fire_at_once() -> None:
    """After a reconnect the client re-registers its watches with the last zxid seen (ZK-20).

    The zxid is the number of a write. The child watch fires at once, because a child was created
    during the cut. The data watch fires only when the data change later.
    """

    async def scenario(lab: EnsembleRun) -> None:
        client, writer = lab.client(0), lab.client(1)
        await wait_until_connected(lab, client)
        await wait_until_connected(lab, writer)
        await children(client, "/consumers", watch=True)
        await client.call(GetDataRequest(path="/brokers", watch=True))

        await lab.cut(["client-0"], lab.servers)
        await lab.runtime.reset_links([NodeName("client-0")], lab.servers)
        await writer.call(CreateRequest(path="/consumers/g"))

        await lab.heal()
        await lab.runtime.sleep(RECONNECT_US)
        assert client.events == [
            WatcherEvent(event_type=WatchType.NODE_CHILDREN_CHANGED, path="/consumers")
        ]

        await writer.call(SetDataRequest(path="/brokers", data="changed"))
        await lab.runtime.sleep(SECOND // 10)
        assert client.events[1:] == [
            WatcherEvent(event_type=WatchType.NODE_DATA_CHANGED, path="/brokers")
        ]

    run_ensemble(scenario)


def test_new_leader_gives_every_session_a_full_timeout() -> None:
    """A new leader knows no deadlines, so every session gets a full timeout (section 14).

    The client dies 3 s before the leader. Its znode is deleted 6 s after the next leader has begun,
    and not 6 s after the client's last ping.
    """

    async def scenario(lab: EnsembleRun) -> None:
        leader = await lab.leader()
        survivors = [name for name in lab.servers if name != leader]
        client = lab.client(0, survivors)
        await wait_until_connected(lab, client)
        await client.call(CreateRequest(path="/consumers/mine", ephemeral=True))
        died_us = lab.runtime.now_us()
        await lab.runtime.crash(NodeName("client-0"))
        await lab.runtime.sleep(3 * SECOND)
        await lab.runtime.crash(leader)
        await lab.serving(2)  # wait until the two survivors have elected a leader and serve

        new_leader_us = lab.runtime.now_us()
        witness = lab.client(1, survivors)
        await wait_until_connected(lab, witness)
        # Sleep until 0.2 s before the end of a full timeout under the new leader.
        end_us = new_leader_us + 6 * SECOND - SECOND // 5
        await lab.runtime.sleep(end_us - lab.runtime.now_us())
        assert await children(witness, "/consumers") == ("mine",)
        await lab.runtime.sleep(3 * SECOND)
        assert await children(witness, "/consumers") == ()
        # Under the old leader the session would have ended within 8 s (ZK-10).
        assert lab.runtime.now_us() - died_us > 8 * SECOND

    run_ensemble(scenario, 3)


@pytest.mark.parametrize("seed", range(6))
def test_answered_write_survives_the_power_loss_of_its_leader(seed: int) -> None:
    """A write is committed when a majority has logged it (ZK-02).

    The leader loses power in the middle of twenty writes. After its restart, every server must have
    all writes that were answered.
    """

    async def scenario(lab: EnsembleRun) -> None:
        leader = await lab.leader()
        client = lab.client(0)
        await wait_until_connected(lab, client)
        answered = 0
        for index in range(20):
            try:
                await client.call(CreateRequest(path=f"/consumers/{index:02}"))
            except KeeperException:
                break
            answered += 1
            if answered == 8 + seed:  # each seed loses the power after another write
                await lab.runtime.power_loss(leader)

        assert answered >= 8
        await lab.serving(2)  # the other two servers have elected a leader
        await lab.runtime.restart(leader)
        await lab.serving(3)
        for name in lab.servers:
            reader = lab.client(1, [name])
            await wait_until_connected(lab, reader)
            assert len(await children(reader, "/consumers")) >= answered

    run_ensemble(scenario, 3, seed=seed)


def test_leader_without_a_majority_answers_no_write_and_steps_down() -> None:
    """A write is committed when a majority has logged it (ZK-02).

    The leader that is cut off has no majority for its write. When it can reach the others again, it
    removes the write from its log.
    """

    async def scenario(lab: EnsembleRun) -> None:
        leader = await lab.leader()
        others = [name for name in lab.servers if name != leader]
        client, other = lab.client(0, [leader]), lab.client(1, others)
        await wait_until_connected(lab, client)
        await wait_until_connected(lab, other)

        await lab.cut([leader], others)
        outcomes: list[ZooKeeperResponse | KeeperError] = []
        client.handle.send(CreateRequest(path="/consumers/lost"), outcomes.append)
        await lab.runtime.sleep(3 * SECOND)  # less than the 4 s after which the client gives up
        assert outcomes == []
        await lab.runtime.sleep(17 * SECOND)  # enough for the leader to step down
        assert outcomes == [KeeperError.ConnectionLoss]

        await wait_until_connected(lab, other)
        await other.call(CreateRequest(path="/consumers/kept"))

        await lab.heal()
        await lab.serving(3)
        reader = lab.client(2, [leader])
        await wait_until_connected(lab, reader)
        assert await children(reader, "/consumers") == ("kept",)

    run_ensemble(scenario, 3)


def test_delete_of_another_sessions_node_is_carried_out() -> None:
    """`delete` does not ask who owns an ephemeral node (ZK-08)."""

    async def scenario(lab: EnsembleRun) -> None:
        owner, other = lab.client(0), lab.client(1)
        await wait_until_connected(lab, owner)
        await owner.call(CreateRequest(path="/consumers/mine", ephemeral=True))
        await other.call(DeleteRequest(path="/consumers/mine"))
        assert await children(owner, "/consumers") == ()

    run_ensemble(scenario)


def test_follower_without_its_leader_serves_old_data_until_the_sync_limit() -> None:
    """A follower that does not keep up is dropped after `syncLimit` ticks, 5 x 2000 ms (ZK-06).

    For these 10 s the follower serves old data. Then it stops serving.
    """

    async def scenario(lab: EnsembleRun) -> None:
        leader = await lab.leader()
        follower = next(name for name in lab.servers if name != leader)
        writer, reader = lab.client(0, [leader]), lab.client(1, [follower])
        await wait_until_connected(lab, writer)
        await wait_until_connected(lab, reader)

        await lab.cut([leader], [follower])
        await writer.call(CreateRequest(path="/consumers/g"))
        await lab.runtime.sleep(8 * SECOND)  # within the sync limit of 10 s
        assert await children(reader, "/consumers") == ()

        await lab.runtime.sleep(4 * SECOND)  # beyond the sync limit
        status = await lab.runtime.status()
        assert not status.zookeepers[follower].is_serving
        assert KeeperState.DISCONNECTED in reader.states

    run_ensemble(scenario, 3)
