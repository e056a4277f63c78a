"""ZkClient, the layer above a ZooKeeper session: retries, listeners, and sessions after an expiry.

It imitates zkclient, the library of Kafka's old consumer. Ids such as ZK-22 name rules of
docs/kafka/ZOOKEEPER_CONSUMER.md, which docstrings quote.

- A znode is an entry in ZooKeeper. A watch is a request for one event when a znode changes.
- The ensemble has one server, unless a test says otherwise. The session timeout is 6 s.
- `lab.zk_client(0)` is a client on the host `client-0`.
- A client that subscribes to a path calls its listener after each change of the children, or of the
  data.
- `lab.rule(Slow(...), sources, destinations)` delays messages, `lab.cut` holds them back, and
  `lab.heal()` ends both.
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


def requests_of(lab: EnsembleRun, node: str, after_us: int = 0) -> list[str]:
    """Return the operations that a node has sent, without pings and without Connect."""
    of_session = (Api.PING.label, Api.CONNECT.label)
    return [
        str(row.api)
        for row in lab.of(TraceKind.REQUEST_SENT)
        if row.node == node and row.time_us > after_us and row.api not in of_session
    ]


def test_notification_costs_two_reads_before_the_program_receives_it() -> None:
    """A notification costs 2 reads before the program even hears of it (ZK-22).

    The reads of a child event are `exists(path)` and `getChildren(path)`.
    """

    async def scenario(lab: EnsembleRun) -> None:
        watcher, writer = lab.zk_client(0), lab.zk_client(1)
        sent_before_each_call: list[list[str]] = []

        # `began_us` is set below, before the first change.
        async def listener(_path: str) -> None:
            sent_before_each_call.append(requests_of(lab, "client-0", began_us))

        await watcher.subscribe_child_changes("/consumers", listener)
        # The subscription itself costs two reads, too.
        assert requests_of(lab, "client-0") == ["Exists", "GetChildren"]
        began_us = lab.runtime.now_us()
        for name in ("g", "h"):
            await writer.create(f"/consumers/{name}", "")
            await lab.runtime.sleep(SECOND // 10)
        # The two reads have set the watch again, so the second change is notified, too.
        assert sent_before_each_call == [["Exists", "GetChildren"], ["Exists", "GetChildren"] * 2]
        assert watcher.notifications == 2

    run_ensemble(scenario)


def test_data_event_costs_two_reads_and_a_subscription_one() -> None:
    """For a data event `exists(path, watch)` and `getData(path, watch)` are sent (ZK-22).

    The first `Exists` below belongs to the subscription.
    """

    async def scenario(lab: EnsembleRun) -> None:
        watcher, writer = lab.zk_client(0), lab.zk_client(1)
        notified: list[str] = []

        async def listener(path: str) -> None:
            notified.append(path)

        await watcher.subscribe_data_changes("/brokers", listener)
        await writer.write("/brokers", "new")
        await lab.runtime.sleep(SECOND // 10)
        assert requests_of(lab, "client-0") == ["Exists", "Exists", "GetData"]
        assert notified == ["/brokers"]

    run_ensemble(scenario)


def test_listeners_run_one_after_the_other_and_an_exception_is_dropped() -> None:
    """One ZkEventThread runs all listeners one after the other (ZK-21).

    The listener of the first path fails after 1 s. That of the second path runs nevertheless.
    """

    async def scenario(lab: EnsembleRun) -> None:
        watcher, writer = lab.zk_client(0), lab.zk_client(1)
        story: list[str] = []

        async def slow(path: str) -> None:
            story.append(f"{path} begins")
            await lab.runtime.sleep(SECOND)
            story.append(f"{path} ends")
            raise ListenerFailed("too bad")

        for path in ("/consumers", "/brokers/topics"):
            await watcher.subscribe_child_changes(path, slow)
        for path in ("/consumers/g", "/brokers/topics/t"):
            await writer.create(path, "")
        await lab.runtime.sleep(3 * SECOND)  # enough for both listeners, of 1 s each
        assert story == [
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
        await lab.runtime.crash(zookeeper_name(1))
        done: list[int] = []

        async def write() -> None:
            await client.write("/consumers/g", "1")
            done.append(lab.runtime.now_us())

        lab.hosts[NodeName("client-0")].spawn(write(), name="write")
        await lab.runtime.sleep(20 * SECOND)  # much longer than the session timeout
        assert done == []

        began_us = lab.runtime.now_us()
        await lab.runtime.restart(zookeeper_name(1))
        await lab.runtime.sleep(2 * SECOND)
        assert began_us < done[0] < began_us + 2 * SECOND

    run_ensemble(scenario)


def test_operation_begun_in_one_session_is_carried_out_in_the_next() -> None:
    """The retry may run in the next session, and delete the claim of another (ZK-23, ZK-74).

    1. `late` owns a node and is cut off. Its delete waits for a connection.
    2. The session of `late` ends, which removes the node. `other` creates the same path.
    3. After the healing `late` gets a new session and sends its delete. This removes the node of
       `other`.
    """

    async def scenario(lab: EnsembleRun) -> None:
        late, other = lab.zk_client(0), lab.zk_client(1)
        await late.create("/consumers/owner", "late", ephemeral=True)
        first_session = late.session_id
        await lab.cut(["client-0"], lab.servers)

        async def release() -> None:
            await late.delete("/consumers/owner")

        lab.hosts[NodeName("client-0")].spawn(release(), name="release")
        await lab.runtime.sleep(10 * SECOND)  # the session of `late` ends
        await other.create("/consumers/owner", "other", ephemeral=True)
        await lab.heal()
        await lab.runtime.sleep(3 * SECOND)  # enough for `late` to connect again
        assert late.session_id != first_session
        assert not await other.exists("/consumers/owner")

    run_ensemble(scenario)


def test_expiry_opens_a_new_session_and_fires_every_listener() -> None:
    """After an expiry zkclient calls handleNewSession, then all child and data listeners (ZK-24).

    No node has changed. The listeners are called because changes may have been missed.
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
        await lab.runtime.sleep(10 * SECOND)  # the client's session ends
        await lab.heal()
        await lab.runtime.sleep(3 * SECOND)  # enough for the client to connect again
        assert calls == ["new session", "/consumers", "/brokers"]

    run_ensemble(scenario)


def test_write_creates_the_znode_and_its_parents() -> None:
    """A write sets the data of a znode. If necessary it creates the znode and its parents.

    Source: docs/kafka/ZOOKEEPER_CONSUMER.md 7, step R3.
    """

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
    """The event has a type and a path, but not the new data, so the listener reads it (ZK-18).

    That read registers the watch again. Changes between the event and the read are seen as one:
    "1" and "2" are skipped, but the last state is never missed.
    """

    async def scenario(lab: EnsembleRun) -> None:
        watcher, writer = lab.zk_client(0), lab.zk_client(1)
        seen: list[str] = []

        async def listener(path: str) -> None:
            seen.append((await watcher.read(path)).data)

        await watcher.subscribe_data_changes("/brokers", listener)
        await lab.rule(Slow(delay_us=SECOND), ["client-0"], lab.servers)  # delays its reads
        for data in ("1", "2", "3"):
            await writer.write("/brokers", data)
        await lab.runtime.sleep(10 * SECOND)  # each request of the watcher takes 1 s
        assert seen == ["3"]
        await lab.heal()
        await writer.write("/brokers", "4")
        await lab.runtime.sleep(SECOND)
        assert seen == ["3", "4"]

    run_ensemble(scenario)
    # An event has no field for the data.
    assert WatcherEvent.__struct_fields__ == ("event_type", "path")
