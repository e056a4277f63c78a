"""Brokers that register in ZooKeeper, and what consumers of Kafka 0.8 to 1.1 notice of it.

A broker's registration is an ephemeral znode below /brokers/ids: an entry in ZooKeeper's tree that
ZooKeeper removes when the broker's session ends. A session is the time in which ZooKeeper regards a
client as alive. A client can set a watch on a znode: it gets a notice at the next change. Ids such
as ZK-40 name rules of docs/kafka/ZOOKEEPER_CONSUMER.md; the docstrings here quote these rules.

- `GroupLab(...)` is a group of consumers, brokers and ZooKeeper in virtual time, a simulated clock.
- `run` starts the cluster, waits until the members have joined, and then awaits the test's
  coroutine `scenario`.
- `scenario` notes the time of its change in `change_began_us` and `change_ended_us`. Afterwards the
  test reads rows of the trace (the recorded events); `after_us=` takes only the rows after a time.
- An attempt is one try of a member to rebalance (`ZOOKEEPER_ATTEMPT_STARTED`).
"""

from protocol.ids import BrokerId, broker_name
from protocol.trace import TraceKind
from tests.support.harness.zookeeper_group import SECOND, GroupLab, detail_of, member_name

BROKER = broker_name(BrokerId(0))


def registrations(lab: GroupLab, after_us: int = 0) -> list[tuple[int, str, str]]:
    """Return time, operation and path of each write of a broker's registration, after `after_us`.

    Every server of ZooKeeper applies every write, and writes a row about it. The rows of the first
    server have each write once.
    """
    writes = [
        (row.time_us, detail_of(row))
        for row in lab.of(TraceKind.ZOOKEEPER_TXN_APPLIED, after_us=after_us)
        if row.node == lab.servers[0]
    ]
    return [
        (at_us, detail["op"], detail["path"])
        for at_us, detail in writes
        if str(detail.get("path", "")).startswith("/brokers/ids/")
    ]


def test_death_of_a_broker_starts_no_rebalance() -> None:
    """A broker's death does not start a rebalance of the group in 0.8 to 1.1 (ZK-40).

    A consumer watches `/brokers/ids` only after a rebalance that found no broker at all. The
    members here have found brokers, so none of them gets a notice of the death.
    """

    async def scenario(lab: GroupLab) -> None:
        lab.change_began_us = lab.runtime.now_us()
        await lab.runtime.crash(broker_name(BrokerId(1)))
        await lab.runtime.sleep(15 * SECOND)  # longer than a session and a rebalance

    lab = GroupLab(members=2, partitions=4, brokers=2, brokers_register=True).run(scenario)

    assert len(registrations(lab)) == 2  # one for each broker, at its start
    (expired,) = lab.of(TraceKind.ZOOKEEPER_SESSION_EXPIRED, after_us=lab.change_began_us)
    # A session ends 6 s after the broker's last ping. The ping can be up to 2 s older than the
    # death, which makes it 4 s, and the end is rounded up to a tick of 2 s, which makes it 8 s.
    assert 4 * SECOND <= expired.time_us - lab.change_began_us <= 8 * SECOND
    assert lab.of(TraceKind.ZOOKEEPER_WATCH_FIRED, after_us=lab.change_began_us) == []
    assert lab.of(TraceKind.ZOOKEEPER_ATTEMPT_STARTED, after_us=lab.change_began_us) == []


def test_consumer_that_finds_no_broker_waits_for_one_and_rebalances_then() -> None:
    """A consumer watches `/brokers/ids` only after a rebalance that found no broker at all (ZK-40).

    That rebalance succeeds with no partition assigned. The watch starts the next one.
    """
    # After each of the two rebalances: the member's state and the number of its partitions.
    states_and_sizes: list[tuple[str, int]] = []

    async def scenario(lab: GroupLab) -> None:
        await lab.runtime.crash(BROKER)
        await lab.runtime.sleep(10 * SECOND)  # the broker's session ends, and its znode with it

        lab.change_began_us = lab.runtime.now_us()
        await lab.runtime.start_node(member_name(0))
        await lab.runtime.sleep(5 * SECOND)
        status = (await lab.status())[member_name(0)]
        states_and_sizes.append((status.state, len(status.assigned)))

        lab.change_ended_us = lab.runtime.now_us()
        await lab.runtime.restart(BROKER)
        await lab.runtime.sleep(15 * SECOND)
        status = (await lab.status())[member_name(0)]
        states_and_sizes.append((status.state, len(status.assigned)))

    # `late_from=0`: the members from index 0 on, so all of them, are started by `scenario` itself.
    lab = GroupLab(members=1, partitions=4, late_from=0, brokers_register=True).run(scenario)

    assert states_and_sizes == [("STABLE", 0), ("STABLE", 4)]
    ((registered_us, operation, path),) = registrations(lab, lab.change_ended_us)
    (fired,) = lab.of(TraceKind.ZOOKEEPER_WATCH_FIRED, after_us=lab.change_ended_us)
    assert (operation, path) == ("create", "/brokers/ids/0")
    assert fired.peer == member_name(0)
    assert 0 <= fired.time_us - registered_us < SECOND // 10
    assert lab.processed(lab.change_ended_us) != []


def test_broker_that_restarts_at_once_registers_when_its_earlier_session_has_ended() -> None:
    """A closed socket (kill -9) shortens nothing: the session lives on until its deadline (ZK-11).

    So the death of a process does not shorten its session. Until the session ends, the restarted
    broker cannot create its znode, because the znode of the killed process still exists.
    """

    async def scenario(lab: GroupLab) -> None:
        await lab.runtime.sleep(3 * SECOND)
        lab.change_began_us = lab.runtime.now_us()
        await lab.runtime.crash(BROKER)
        await lab.runtime.restart(BROKER)
        await lab.runtime.sleep(12 * SECOND)

    lab = GroupLab(members=1, partitions=4, brokers_register=True).run(scenario)

    # The old session ends in the 12 s of the scenario. The broker registers within 1 s after that.
    (expired,) = lab.of(TraceKind.ZOOKEEPER_SESSION_EXPIRED, after_us=lab.change_began_us)
    ((registered_us, _operation, _path),) = registrations(lab, lab.change_began_us)
    assert expired.time_us < registered_us < expired.time_us + SECOND


def test_broker_that_stops_leaves_zookeeper_at_once() -> None:
    """A clean `close` ends the broker's session at once (ZK-11), so the session never expires."""

    async def scenario(lab: GroupLab) -> None:
        lab.change_began_us = lab.runtime.now_us()
        await lab.runtime.shut_down(broker_name(BrokerId(1)))
        await lab.runtime.sleep(10 * SECOND)  # longer than a session

    lab = GroupLab(members=1, partitions=4, brokers=2, brokers_register=True).run(scenario)

    ends = [
        row.time_us
        for row in lab.of(TraceKind.ZOOKEEPER_TXN_APPLIED, after_us=lab.change_began_us)
        if detail_of(row)["op"] == "closeSession"
    ]
    # The closed session is the broker's, since nothing else stopped.
    assert len(ends) == 1
    assert lab.of(TraceKind.ZOOKEEPER_SESSION_EXPIRED, after_us=lab.change_began_us) == []
