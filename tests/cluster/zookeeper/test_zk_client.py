"""ZkClient, the layer above ZooKeeper's sessions: it retries, listens, and renews the session.

ZkClient imitates zkclient, the library of Kafka's old consumer. A program subscribes to a path with
a listener, and ZkClient calls the listener after each change of the path's children, or of the
path's data. For this purpose ZkClient sets a watch at the server. At the next change the server
sends one event, and the watch is gone. Ids such as ZK-22 name rules of
docs/kafka/ZOOKEEPER_CONSUMER.md, which the docstrings quote.

The tests run one server in virtual time, with a session timeout of 6 s. `lab.zk_client(0)` is a
client on the host `client-0`. `lab.cut` holds back all messages between a client and the server.
`lab.rule(Slow(...), sources, destinations)` delays the messages in one direction. Both last until
`lab.heal()`.
"""

import pytest

from cluster.links.rules import Slow
from cluster.zookeeper.client import KeeperException
from cluster.zookeeper.zk_client import ListenerFailed
from protocol.api import Api
from protocol.ids import NodeName, zookeeper_name
from protocol.messages.zookeeper import WatcherEvent
from protocol.trace import TraceKind
from tests.support.harness.ensemble import SECOND, EnsembleRun, run_ensemble

ONLY_SERVER = zookeeper_name(1)  # servers are numbered from 1


def operations_sent(lab: EnsembleRun, node: str) -> list[str]:
    """Return the operations that a node has sent so far, such as `["Exists", "GetChildren"]`.

    Ping and Connect are left out, because they only keep a session alive.
    """
    session_requests = (Api.PING.label, Api.CONNECT.label)
    return [
        str(row.api)
        for row in lab.of(TraceKind.REQUEST_SENT)
        if row.node == node and row.api not in session_requests
    ]


def test_notification_costs_two_reads_before_the_program_receives_it() -> None:
    """A notification costs 2 reads before the program even hears of it (ZK-22).

    A watch fires only once. So after an event zkclient first sets its two watches again, with the
    reads `exists` and `getChildren`, and only then calls the listener.
    """

    async def scenario(lab: EnsembleRun) -> None:
        watcher, writer = lab.zk_client(0), lab.zk_client(1)
        two_reads = ["Exists", "GetChildren"]
        sent_before_each_call: list[list[str]] = []

        async def listener(_path: str) -> None:
            sent_before_each_call.append(operations_sent(lab, "client-0"))

        await watcher.subscribe_child_changes("/consumers", listener)
        # The subscription itself costs two reads, too.
        assert operations_sent(lab, "client-0") == two_reads
        for name in ("g", "h"):
            await writer.create(f"/consumers/{name}", "")
            await lab.runtime.sleep(SECOND // 10)
        # Two reads for the subscription, and two more before each of the two calls.
        assert sent_before_each_call == [two_reads * 2, two_reads * 3]
        assert watcher.notifications == 2

    run_ensemble(scenario)


def test_data_event_costs_two_reads_and_a_subscription_one() -> None:
    """For a data event `exists(path, watch)` and `getData(path, watch)` are sent (ZK-22).

    These are the two reads. A subscription to the data of a path sends only `exists`.
    """

    async def scenario(lab: EnsembleRun) -> None:
        watcher, writer = lab.zk_client(0), lab.zk_client(1)
        notified: list[str] = []

        async def listener(path: str) -> None:
            notified.append(path)

        await watcher.subscribe_data_changes("/brokers", listener)
        await writer.write("/brokers", "new")
        await lab.runtime.sleep(SECOND // 10)
        of_subscription, of_event = ["Exists"], ["Exists", "GetData"]
        assert operations_sent(lab, "client-0") == of_subscription + of_event
        assert notified == ["/brokers"]

    run_ensemble(scenario)


def test_listeners_run_one_after_the_other_and_an_exception_is_dropped() -> None:
    """One ZkEventThread runs all listeners one after the other (ZK-21).

    The listener takes 1 s and then fails. It is called for two paths. The second call begins when
    the first call has ended, although the first call has failed.
    """

    async def scenario(lab: EnsembleRun) -> None:
        watcher, writer = lab.zk_client(0), lab.zk_client(1)
        calls: list[str] = []

        async def fail_slowly(path: str) -> None:
            calls.append(f"{path} begins")
            await lab.runtime.sleep(SECOND)
            calls.append(f"{path} ends")
            raise ListenerFailed("too bad")

        for path in ("/consumers", "/brokers/topics"):
            await watcher.subscribe_child_changes(path, fail_slowly)
        for path in ("/consumers/g", "/brokers/topics/t"):
            await writer.create(path, "")
        await lab.runtime.sleep(3 * SECOND)  # enough for both calls, of 1 s each
        assert calls == [
            "/consumers begins",
            "/consumers ends",
            "/brokers/topics begins",
            "/brokers/topics ends",
        ]

    run_ensemble(scenario)


def test_operation_that_meets_a_connection_loss_is_tried_again_when_connected() -> None:
    """An operation that meets ConnectionLoss waits for a connection and is tried again (ZK-23)."""

    async def scenario(lab: EnsembleRun) -> None:
        client = lab.zk_client(0)
        await client.wait_until_connected()
        await lab.runtime.crash(ONLY_SERVER)
        written_at_us: list[int] = []

        async def write() -> None:
            await client.write("/consumers/g", "1")
            written_at_us.append(lab.runtime.now_us())

        # The write does not return while the server is down, so the test runs it as a task.
        lab.hosts[NodeName("client-0")].spawn(write(), name="write")
        await lab.runtime.sleep(20 * SECOND)  # much longer than the session timeout
        assert written_at_us == []

        restarted_us = lab.runtime.now_us()
        await lab.runtime.restart(ONLY_SERVER)
        await lab.runtime.sleep(2 * SECOND)
        assert restarted_us < written_at_us[0] < restarted_us + 2 * SECOND

    run_ensemble(scenario)


def test_operation_begun_in_one_session_is_carried_out_in_the_next() -> None:
    """The retry may run in the next session, and delete the claim of another (ZK-23, ZK-74).

    A member of an old consumer group claims a partition by an ephemeral znode, which ZooKeeper
    removes when the member's session ends.

    1. `late` creates its claim, and is cut off from the server.
    2. `late` wants to release the partition. The delete of the znode waits for a connection.
    3. The session of `late` expires, which removes the znode.
    4. `other` claims the partition with the same path.
    5. The cut ends. `late` gets a new session and sends its delete, which removes the claim of
       `other`.
    """

    async def scenario(lab: EnsembleRun) -> None:
        late, other = lab.zk_client(0), lab.zk_client(1)
        await late.create("/consumers/owner", "late", ephemeral=True)
        first_session = late.session_id
        await lab.cut(["client-0"], lab.servers)  # step 1

        async def release() -> None:
            await late.delete("/consumers/owner")

        # Step 2. The delete does not return during the cut, so the test runs it as a task.
        lab.hosts[NodeName("client-0")].spawn(release(), name="release")
        await lab.runtime.sleep(10 * SECOND)  # step 3: the session timeout is 6 s
        await other.create("/consumers/owner", "other", ephemeral=True)  # step 4
        await lab.heal()  # step 5
        await lab.runtime.sleep(3 * SECOND)  # enough for `late` to connect again
        assert late.session_id != first_session
        assert not await other.exists("/consumers/owner")

    run_ensemble(scenario)


def test_expiry_opens_a_new_session_and_fires_every_listener() -> None:
    """After an expiry zkclient calls handleNewSession, then all child and data listeners (ZK-24).

    No znode has changed here, but the client may have missed changes while it had no session.
    """

    async def scenario(lab: EnsembleRun) -> None:
        client = lab.zk_client(0)
        calls: list[str] = []

        async def listener(path: str) -> None:
            calls.append(path)

        async def new_session() -> None:
            calls.append("new session")

        client.on_new_session = new_session
        await client.subscribe_child_changes("/consumers", listener)
        await client.subscribe_data_changes("/brokers", listener)
        await lab.cut(["client-0"], lab.servers)
        await lab.runtime.sleep(10 * SECOND)  # longer than the session timeout of 6 s
        await lab.heal()
        await lab.runtime.sleep(3 * SECOND)  # enough for the client to connect again
        assert calls == ["new session", "/consumers", "/brokers"]

    run_ensemble(scenario)


def test_write_creates_the_znode_and_its_parents() -> None:
    """Kafka's old consumer commits offsets by such writes (ZOOKEEPER_CONSUMER.md 7, step R3)."""

    async def scenario(lab: EnsembleRun) -> None:
        client = lab.zk_client(0)
        await client.write("/consumers/g/offsets/t/0", "5")
        assert (await client.read("/consumers/g/offsets/t/0")).data == "5"
        await client.write("/consumers/g/offsets/t/0", "6")
        assert (await client.read("/consumers/g/offsets/t/0")).data == "6"
        with pytest.raises(KeeperException, match="NodeExists"):
            await client.create("/consumers/g", "")

    run_ensemble(scenario)


def test_changes_before_the_rearming_read_are_merged_into_its_result() -> None:
    """The event has a type and a path, but not the new data. So the listener reads it (ZK-18).

    1. The writer writes "1". The watch fires once, and the client gets the event.
    2. ZkClient sets the watch again by a read, the re-arming read, which takes a second here.
    3. Meanwhile the writer writes "2" and "3". There is no watch, so there is no event.
    4. The listener reads the data, "3". It has missed "1" and "2", but not the last state.

    Changes between the event and the re-arming read fall together into what this read returns.
    """

    async def scenario(lab: EnsembleRun) -> None:
        watcher, writer = lab.zk_client(0), lab.zk_client(1)
        read_data: list[str] = []

        async def listener(path: str) -> None:
            read_data.append((await watcher.read(path)).data)

        await watcher.subscribe_data_changes("/brokers", listener)
        # The watcher's reads take a second from now on. Events to it arrive without a delay.
        await lab.rule(Slow(delay_us=SECOND), ["client-0"], lab.servers)
        for data in ("1", "2", "3"):
            await writer.write("/brokers", data)
        # Long enough for two reads of ZkClient and one of the listener, a second each.
        await lab.runtime.sleep(10 * SECOND)
        assert read_data == ["3"]
        await lab.heal()  # the reads are fast again, so the next write gives an event of its own
        await writer.write("/brokers", "4")
        await lab.runtime.sleep(SECOND)
        assert read_data == ["3", "4"]

    run_ensemble(scenario)
    # The event itself has no field for the data.
    assert WatcherEvent.__struct_fields__ == ("event_type", "path")
