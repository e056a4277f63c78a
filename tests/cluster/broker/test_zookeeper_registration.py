"""Brokers that register in ZooKeeper, and what consumers of Kafka 0.8 to 1.1 notice of it.

A broker registers by an ephemeral znode below /brokers/ids: ZooKeeper removes the entry when the
broker's session ends. The session ends when ZooKeeper has got no ping of the broker for 6 s.
Consumers can watch /brokers/ids, and get a notice at its next change. Ids such as ZK-40 name rules
of docs/kafka/ZOOKEEPER_CONSUMER.md; the docstrings here quote these rules.

Each test runs a group of consumers, brokers and ZooKeeper in virtual time, a simulated clock.
`GroupLab.run` starts the cluster, waits until the members have joined, and then awaits the test's
coroutine `scenario`. The scenario notes the time of its change in `change_began_us`. Afterwards the
test reads the trace, which is the list of all recorded events: `lab.of(kind, after_us=t)` returns
the rows of one kind after a time.
"""

from protocol.ids import BrokerId, broker_name
from protocol.trace import TraceKind
from tests.support.harness.zookeeper_group import SECOND, GroupLab, detail_of, member_name

BROKER, OTHER_BROKER = broker_name(BrokerId(0)), broker_name(BrokerId(1))
"""Most tests have only BROKER."""


def registrations(lab: GroupLab, after_us: int = 0) -> list[tuple[int, str, str]]:
    """Return the time, operation and path of each write below /brokers/ids after `after_us`.

    Example: `[(5_000_000, "create", "/brokers/ids/0")]`.
    """
    # Every server of ZooKeeper records every write that it applies. One of them is enough here.
    writes = [
        (row.time_us, detail_of(row))
        for row in lab.of(TraceKind.ZOOKEEPER_TXN_APPLIED, after_us=after_us)
        if row.node == lab.servers[0]
    ]
    return [
        (time_us, detail["op"], detail["path"])
        for time_us, detail in writes
        if str(detail.get("path", "")).startswith("/brokers/ids/")
    ]


def test_death_of_a_broker_starts_no_rebalance() -> None:
    """A broker's death does not start a rebalance of the group in 0.8 to 1.1 (ZK-40).

    A consumer watches `/brokers/ids` only after a rebalance that found no broker at all. The
    members here have found brokers, so none of them gets a notice of the death.
    """

    async def scenario(lab: GroupLab) -> None:
        lab.change_began_us = lab.runtime.now_us()
        await lab.runtime.crash(OTHER_BROKER)
        await lab.runtime.sleep(15 * SECOND)  # longer than a session and a rebalance

    lab = GroupLab(members=2, partitions=4, brokers=2, brokers_register=True).run(scenario)

    assert len(registrations(lab)) == 2  # one for each broker, at its start
    (expired,) = lab.of(TraceKind.ZOOKEEPER_SESSION_EXPIRED, after_us=lab.change_began_us)
    # A session ends 6 s after the broker's last ping.
    # At the earliest: the last ping was 2 s before the death, so 6 s - 2 s = 4 s.
    # At the latest: the end is rounded up to the next tick of 2 s, so 6 s + 2 s = 8 s.
    assert 4 * SECOND <= expired.time_us - lab.change_began_us <= 8 * SECOND
    assert lab.of(TraceKind.ZOOKEEPER_WATCH_FIRED, after_us=lab.change_began_us) == []
    # A rebalance would begin with an attempt of a member.
    assert lab.of(TraceKind.ZOOKEEPER_ATTEMPT_STARTED, after_us=lab.change_began_us) == []


def test_consumer_that_finds_no_broker_waits_for_one_and_rebalances_then() -> None:
    """A consumer watches `/brokers/ids` only after a rebalance that found no broker at all (ZK-40).

    That rebalance succeeds with no partition assigned. The watch starts the next one.
    """
    # The member's state and the number of its partitions, after each of the two rebalances.
    states_and_partition_counts: list[tuple[str, int]] = []

    async def note_status(lab: GroupLab) -> None:
        status = (await lab.status())[member_name(0)]
        states_and_partition_counts.append((status.state, len(status.assigned)))

    async def scenario(lab: GroupLab) -> None:
        await lab.runtime.crash(BROKER)
        await lab.runtime.sleep(10 * SECOND)  # the broker's session ends, and its znode with it

        lab.change_began_us = lab.runtime.now_us()
        await lab.runtime.start_node(member_name(0))
        await lab.runtime.sleep(5 * SECOND)
        await note_status(lab)

        lab.change_ended_us = lab.runtime.now_us()
        await lab.runtime.restart(BROKER)
        await lab.runtime.sleep(15 * SECOND)
        await note_status(lab)

    # With `late_from=0` the lab starts no member, from the member with the index 0 on. `scenario`
    # starts the only member itself, when there is no broker.
    lab = GroupLab(members=1, partitions=4, late_from=0, brokers_register=True).run(scenario)

    assert states_and_partition_counts == [("STABLE", 0), ("STABLE", 4)]
    ((registered_us, operation, path),) = registrations(lab, lab.change_ended_us)
    (fired,) = lab.of(TraceKind.ZOOKEEPER_WATCH_FIRED, after_us=lab.change_ended_us)
    assert (operation, path) == ("create", "/brokers/ids/0")
    assert fired.peer == member_name(0)
    assert 0 <= fired.time_us - registered_us < SECOND // 10
    assert lab.processed(lab.change_ended_us) != []


def test_broker_that_restarts_at_once_registers_when_its_earlier_session_has_ended() -> None:
    """A closed socket (kill -9) shortens nothing: the session lives on until its deadline (ZK-11).

    So the znode of the killed process still exists when the broker restarts. Until the old session
    ends, the restarted broker cannot create its own znode.
    """

    async def scenario(lab: GroupLab) -> None:
        await lab.runtime.sleep(3 * SECOND)
        lab.change_began_us = lab.runtime.now_us()
        await lab.runtime.crash(BROKER)
        await lab.runtime.restart(BROKER)
        await lab.runtime.sleep(12 * SECOND)  # longer than the old session

    lab = GroupLab(members=1, partitions=4, brokers_register=True).run(scenario)

    # The broker registers within 1 s after the end of its old session.
    (expired,) = lab.of(TraceKind.ZOOKEEPER_SESSION_EXPIRED, after_us=lab.change_began_us)
    ((registered_us, _operation, _path),) = registrations(lab, lab.change_began_us)
    assert expired.time_us < registered_us < expired.time_us + SECOND


def test_broker_that_stops_leaves_zookeeper_at_once() -> None:
    """A clean `close` ends the broker's session at once (ZK-11), so the session never expires."""

    async def scenario(lab: GroupLab) -> None:
        lab.change_began_us = lab.runtime.now_us()
        await lab.runtime.shut_down(OTHER_BROKER)
        await lab.runtime.sleep(10 * SECOND)  # longer than a session

    lab = GroupLab(members=1, partitions=4, brokers=2, brokers_register=True).run(scenario)

    close_times_us = [
        row.time_us
        for row in lab.of(TraceKind.ZOOKEEPER_TXN_APPLIED, after_us=lab.change_began_us)
        if detail_of(row)["op"] == "closeSession"
    ]
    # One session was closed: the broker's, because nothing else stopped.
    assert len(close_times_us) == 1
    assert lab.of(TraceKind.ZOOKEEPER_SESSION_EXPIRED, after_us=lab.change_began_us) == []
