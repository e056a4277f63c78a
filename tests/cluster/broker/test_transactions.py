"""Transactions over three brokers: markers, verification, and crashes of either coordinator.

Two coordinators take part. The transaction coordinator is on broker TC, and the coordinator of the
group whose offsets the producer commits is on broker GC. A transaction goes like this:

1. `tx.init(TC)` gets a producer id, and `tx.add_offsets(TC, GROUP)` begins the transaction.
2. `tx.commit_offset(GC, GROUP, 41)` adds offset 41. GC first asks TC whether this transaction is
   open (verification). The offset is then pending: a fetch gets UNSTABLE_OFFSET_COMMIT.
3. `tx.end(TC)` commits the transaction. TC sends a marker to GC, a record that ends the
   transaction in the group's partition. When the marker is in the log, offset 41 is committed.

`lab` is a cluster of three brokers in virtual time. A test can hold back the messages of one kind
of connection, such as the connections for markers. For this the test sets a link rule with the
effect Clog. `set_link_rules(())` withdraws the rule. `ask_as_admin(move_leader, ...)` makes another
broker the leader of a partition, and so the coordinator of the groups or transactions in the
partition.
"""

import msgspec

from cluster.client.admin.orders import move_leader
from cluster.host.connection_purposes import TRANSACTION_MARKERS, TRANSACTION_VERIFICATION
from cluster.links.rules import Clog, Cut, LinkRule, Selector
from cluster.spec import PreloadSpec
from protocol.errors import ErrorCode
from protocol.ids import BrokerId, NodeName, broker_name, offsets_partition, transaction_partition
from protocol.messages.transaction import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from protocol.partitioner import partition_for
from protocol.trace import TraceKind
from tests.support.harness.brokers import ORDERS, BrokerLab, broker_cluster
from tests.support.harness.transactional_client import (
    TransactionalClient,
    fetched,
    stable_offset,
    transactional_cluster,
)

NONE = ErrorCode.NONE
TX = "tx-1"
STATE = partition_for(TX, 3)
"""The number of the partition of __transaction_state that has the records of TX."""
TC, NEXT_TC = STATE, (STATE + 1) % 3
"""The transaction coordinator's broker, and the broker that has the coordinator next.

At first broker n leads partition n of each topic, so a partition's number is also the number of its
broker. If broker n stops, broker n + 1 (modulo 3) leads.
"""
GROUP = next(name for name in ("a", "b", "c", "d") if partition_for(name, 3) == NEXT_TC)
"""A group whose coordinator is not on broker TC."""
OFFSETS = partition_for(GROUP, 3)
"""The number of the group's partition of __consumer_offsets."""
GC, NEXT_GC = OFFSETS, (OFFSETS + 1) % 3
"""The group coordinator's broker, and the broker that has the coordinator next."""
BROKERS = tuple(broker_name(broker_id) for broker_id in range(3))


def producer(lab: BrokerLab) -> TransactionalClient:
    """Return the producer with the transactional id TX."""
    return TransactionalClient(lab, TX)


def between_brokers(rule_id: str, purpose: str, effect: Cut | Clog, *sources: NodeName) -> LinkRule:
    """Return a rule for connections of one purpose, from `sources` to all brokers.

    Without `sources` the rule is for connections from every broker.
    """
    selector = Selector(sources=sources or BROKERS, destinations=BROKERS, purposes=(purpose,))
    return LinkRule(rule_id=rule_id, selector=selector, effect=effect)


def test_transaction_through_the_codec_leaves_the_same_trace() -> None:
    """Encoding and decoding each message changes nothing.

    Usually the nodes of a cluster in one process hand over their messages as objects. With
    `copy_messages` each message is encoded and decoded on its way. Both clusters must write the
    same trace.
    """

    async def story(lab: BrokerLab) -> None:
        tx = producer(lab)
        await tx.init(TC)
        await tx.add_offsets(TC, GROUP)
        await tx.commit_offset(GC, GROUP, 41)
        await tx.end(TC)
        assert await stable_offset(lab, GC, GROUP) == 41

    by_reference, copied = (
        BrokerLab(transactional_cluster(), copy_messages=copy) for copy in (False, True)
    )
    by_reference.run(story)
    copied.run(story)
    assert copied.rows == by_reference.rows


def test_marker_of_a_replaced_transaction_coordinator_is_refused() -> None:
    """A late marker must not abort a transaction that began at the next coordinator.

    1. TC decides to abort the first transaction. The network holds the marker for GC back.
    2. NEXT_TC takes over. The producer begins a second transaction, which commits offset 42.
    3. The old marker arrives at GC and is refused, so offset 42 is still pending.
    4. The producer ends the second transaction, so offset 42 is committed.
    """

    async def story(lab: BrokerLab) -> None:
        tx = producer(lab)
        await tx.init(TC)
        await tx.add_offsets(TC, GROUP)
        await tx.commit_offset(GC, GROUP, 41)
        await lab.runtime.set_link_rules(
            (between_brokers("markers", TRANSACTION_MARKERS, Clog(), broker_name(TC)),)
        )
        assert await tx.end(TC, is_commit=False) is NONE

        await lab.runtime.ask_as_admin(move_leader, transaction_partition(STATE), BrokerId(NEXT_TC))
        assert await tx.add_offsets(NEXT_TC, GROUP) is NONE
        assert await tx.commit_offset(GC, GROUP, 42) is NONE

        await lab.runtime.set_link_rules(())  # the old marker arrives now
        await lab.seconds(1)
        pending = await fetched(lab, GC, GROUP)
        assert not isinstance(pending, ErrorCode)
        assert pending.error_code is ErrorCode.UNSTABLE_OFFSET_COMMIT
        assert await tx.end(NEXT_TC) is NONE
        assert await stable_offset(lab, GC, GROUP) == 42

    BrokerLab(transactional_cluster()).run(story)


def test_markers_for_no_partition_and_for_a_repeated_partition_are_answered() -> None:
    """The broker answers a marker without partitions, and writes nothing.

    If a marker names a partition twice, the broker writes one marker there.
    """

    def marker(*indexes: int) -> WritableTxnMarker:
        """Return a marker of an aborted transaction for these partitions of `orders`."""
        topics = (WritableTxnMarkerTopic(name=ORDERS, partition_indexes=indexes),)
        return WritableTxnMarker(
            producer_id=7,
            producer_epoch=0,
            transaction_result=False,
            topics=topics if indexes else (),
            coordinator_epoch=0,
        )

    async def story(lab: BrokerLab) -> None:
        no_partition = await lab.client.call(0, WriteTxnMarkersRequest(markers=(marker(),)))
        assert isinstance(no_partition, WriteTxnMarkersResponse)
        assert [result.topics for result in no_partition.markers] == [()]

        repeated = await lab.client.call(
            0, WriteTxnMarkersRequest(markers=(marker(), marker(0, 0)))
        )
        assert isinstance(repeated, WriteTxnMarkersResponse)
        (_, for_partition_0) = repeated.markers
        assert {result.error_code for result in for_partition_0.topics[0].partitions} == {NONE}
        (batch,) = (await lab.client.fetch(0)).records  # one batch, although 0 was named twice
        assert batch.is_control

    BrokerLab(broker_cluster()).run(story)


def test_abandoned_transaction_is_aborted_and_its_producer_fenced_in_the_log() -> None:
    """After transaction.timeout.ms, here 1 s, the coordinator aborts the transaction.

    The coordinator also gives the producer's id a newer epoch, so later requests of the producer
    are refused. After the abort the group has neither a committed offset nor a pending offset, and
    a fetch of the offset gets -1.
    """

    async def story(lab: BrokerLab) -> None:
        tx = producer(lab)
        await tx.init(TC, timeout_ms=1_000)
        await tx.add_offsets(TC, GROUP)
        await tx.commit_offset(GC, GROUP, 41)
        # `stable_offset` asks again while the offset is pending, here until the abort.
        assert await stable_offset(lab, GC, GROUP) == -1
        assert await tx.commit_offset(GC, GROUP, 42) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert await tx.end(TC) is ErrorCode.PRODUCER_FENCED

    BrokerLab(transactional_cluster()).run(story)


def test_commit_whose_transaction_ended_after_its_verification_is_refused_by_the_log() -> None:
    """If the log accepted such a commit, it would open a transaction that no marker ever ends.

    1. GC gets a commit of the transaction, and asks TC for verification.
    2. TC answers that the transaction is open. The network holds this answer back.
    3. The transaction is aborted.
    4. The answer arrives, and GC appends the commit. The log must refuse it (KIP-890).
    """

    async def story(lab: BrokerLab) -> None:
        tx = producer(lab)
        await tx.init(TC)

        # This commit is refused, because no transaction has begun. But it makes GC open its
        # connection to TC for verifications. Later the rule below would keep it from opening.
        await tx.commit_offset(GC, GROUP, 40)
        await tx.add_offsets(TC, GROUP)
        answers = between_brokers("late", TRANSACTION_VERIFICATION, Clog(), broker_name(TC))
        await lab.runtime.set_link_rules((answers,))
        results: list[ErrorCode] = []

        async def commit() -> None:
            results.append(await tx.commit_offset(GC, GROUP, 41))

        lab.client.host.spawn(commit(), name="commit")
        await lab.seconds(0.5)  # the commit waits for its verification
        # A second client object for the same producer, because the first object still waits.
        same_producer = TransactionalClient(lab, TX)
        same_producer.id, same_producer.epoch = tx.id, tx.epoch
        assert await same_producer.end(TC, is_commit=False) is NONE
        await lab.seconds(0.5)

        # Now the answer arrives. It says that the transaction is open, which is no longer true.
        await lab.runtime.set_link_rules(())
        await lab.seconds(0.5)
        assert results == [ErrorCode.INVALID_TXN_STATE]
        assert await stable_offset(lab, GC, GROUP) == -1

    BrokerLab(transactional_cluster()).run(story)


def test_completion_of_a_transaction_waits_behind_a_load() -> None:
    """A broker has one queue for loads of partitions and completions of transactions (KAFKA-10614).

    When a marker is in the log, the group's pending offset becomes a committed offset. This step is
    the completion of the transaction, and goes through the queue. Here the completion waits behind
    the load of another offsets partition.
    """
    other = (OFFSETS + 1) % 3  # an offsets partition that moves to GC, which has to load it
    preload = (PreloadSpec(partition=other, commit_records=300_000, groups=5),)
    base = broker_cluster(preload=preload)
    slow = msgspec.structs.replace(base.costs, load_ns_per_record=10_000)  # 300,000 records: 3 s
    base = msgspec.structs.replace(base, costs=slow)

    async def story(lab: BrokerLab) -> None:
        tx = producer(lab)
        await tx.init(TC)
        await tx.add_offsets(TC, GROUP)
        await tx.commit_offset(GC, GROUP, 41)

        await lab.runtime.ask_as_admin(move_leader, offsets_partition(other), BrokerId(GC))
        await lab.seconds(0.5)  # the load of 3 s begins
        assert await tx.end(TC) is NONE
        await lab.seconds(0.5)  # the marker is written, and its completion waits

        pending = await fetched(lab, GC, GROUP)
        assert not isinstance(pending, ErrorCode)
        assert pending.error_code is ErrorCode.UNSTABLE_OFFSET_COMMIT
        assert await stable_offset(lab, GC, GROUP) == 41

        loaded = [
            row
            for row in lab.events(TraceKind.LOAD_COMPLETED, f"broker-{GC}")
            if row.partition == str(offsets_partition(other))
        ]
        completed = lab.events(TraceKind.TRANSACTION_COMPLETED)
        assert loaded[-1].time_us <= completed[-1].time_us

    BrokerLab(transactional_cluster(base=base)).run(story)


def test_producer_ids_are_never_assigned_twice() -> None:
    """A broker gets ids in blocks from the controller. A kill loses the rest of its block.

    Broker NEXT_GC is killed after each assignment of an id to a new producer. So each of the three
    new producers gets its id from another block.
    """
    # Three transactional ids whose coordinator is on NEXT_GC. About a third of all names would do.
    names = (f"other-{number}" for number in range(99))
    new_producers = [name for name in names if partition_for(name, 3) == NEXT_GC][:3]

    async def story(lab: BrokerLab) -> None:
        assigned_ids = []
        for name in new_producers:
            new_producer = TransactionalClient(lab, name)
            assert (await new_producer.coordinator()).node_id == NEXT_GC
            await new_producer.init(NEXT_GC)
            assigned_ids.append(new_producer.id)
            # The producer TX keeps its producer id from the first round on.
            tx = producer(lab)
            await tx.init(TC)
            assigned_ids.append(tx.id)

            await lab.kill(NEXT_GC)
            await lab.restart(NEXT_GC)
            await lab.seconds(12)  # longer than the session of the killed broker, 9 s
            # The restarted broker becomes the coordinator of the new producers again.
            await lab.runtime.ask_as_admin(
                move_leader, transaction_partition(NEXT_GC), BrokerId(NEXT_GC)
            )
            await lab.seconds(1)
        # Three ids of new producers, and one of TX.
        assert len(set(assigned_ids)) == 4

    BrokerLab(transactional_cluster()).run(story)


def test_cluster_without_transactions_has_no_transaction_coordinator() -> None:
    """Without transactional clients the topic `__transaction_state` does not exist."""

    async def story(lab: BrokerLab) -> None:
        tx = producer(lab)
        coordinator = await tx.coordinator()
        assert coordinator.error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert (await tx.init_once(0)).error_code is ErrorCode.NOT_COORDINATOR

    BrokerLab(broker_cluster()).run(story)
