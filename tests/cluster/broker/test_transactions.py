"""Transactions over three brokers: markers, verification, and crashes of either coordinator.

- `lab` is a cluster of three brokers in virtual time.
- `ask_as_admin(move_leader, ...)` makes another broker the leader of a partition. That broker
  becomes the coordinator of the groups or transactions in the partition.
- TC is the broker with the producer's transaction coordinator. GC is the broker with the
  coordinator of the group whose offsets the producer commits.
- `tx` sends single requests of a producer. `tx.commit_offset(GC, GROUP, 41)` adds offset 41 to the
  producer's transaction; `tx.end(TC)` commits the transaction.
- A marker is the record that ends a transaction in a partition. Until the marker of the transaction
  coordinator arrives at the group, an offset of the transaction is pending
  (UNSTABLE_OFFSET_COMMIT).
- Verification is a question of the group coordinator to the transaction coordinator: does this
  commit belong to an open transaction?
- A fenced producer is one whose requests are refused, because its id has a newer epoch.
- The link effect Clog holds messages back until its rule is withdrawn. A rule can be for
  connections of one purpose, which is what a connection is used for.
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
from tests.support.harness.controllers import NO_BALANCING
from tests.support.harness.transactional_client import (
    TransactionalClient,
    fetched,
    stable_offset,
    transactional_cluster,
)

NONE = ErrorCode.NONE
TX = "tx-1"
STATE = partition_for(TX, 3)
"""The partition of __transaction_state with the records of TX."""
TC, NEXT_TC = STATE, (STATE + 1) % 3
"""The broker with the transaction coordinator, and the broker that has it next."""
GROUP = next(name for name in ("a", "b", "c", "d") if partition_for(name, 3) == NEXT_TC)
OFFSETS = partition_for(GROUP, 3)
"""The group's offsets partition. The group is chosen so that GC and TC are different brokers."""
GC, NEXT_GC = OFFSETS, (OFFSETS + 1) % 3
"""The broker with the group coordinator, and the broker that has it next."""
BROKERS = tuple(broker_name(broker_id) for broker_id in range(3))


def producer(lab: BrokerLab) -> TransactionalClient:
    """Return the producer of most tests; its coordinator is on another broker than the group's."""
    return TransactionalClient(lab, TX)


def between_brokers(rule_id: str, purpose: str, effect: Cut | Clog, *sources: NodeName) -> LinkRule:
    """Return a rule for connections of one purpose, from `sources` to the other brokers."""
    selector = Selector(sources=sources or BROKERS, destinations=BROKERS, purposes=(purpose,))
    return LinkRule(rule_id=rule_id, selector=selector, effect=effect)


def test_transaction_through_the_codec_leaves_the_same_trace() -> None:
    """A cluster in one process need not encode its messages; with `copy_messages` it does.

    Both clusters must write the same trace (the recorded events), which would differ if the codec
    changed a message.
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
    """A marker that arrives late must not abort the transaction that the next coordinator began.

    1. The coordinator decides to abort. The network holds the marker of this decision back.
    2. The next coordinator takes over. A new transaction begins, with another commit.
    3. The old marker arrives and is refused, so the commit is still pending.
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


def test_markers_without_partitions_and_with_repeated_ones_are_answered() -> None:
    """A marker without partitions has nothing to wait for; a repeated partition gets one marker."""

    def marker(*indexes: int) -> WritableTxnMarker:
        topics = (WritableTxnMarkerTopic(name=ORDERS, partition_indexes=indexes),)
        return WritableTxnMarker(
            producer_id=7,
            producer_epoch=0,
            transaction_result=False,
            topics=topics if indexes else (),
            coordinator_epoch=0,
        )

    async def story(lab: BrokerLab) -> None:
        empty = await lab.client.call(0, WriteTxnMarkersRequest(markers=(marker(),)))
        assert isinstance(empty, WriteTxnMarkersResponse)
        assert [result.topics for result in empty.markers] == [()]

        repeated = await lab.client.call(
            0, WriteTxnMarkersRequest(markers=(marker(), marker(0, 0)))
        )
        assert isinstance(repeated, WriteTxnMarkersResponse)
        (_, written) = repeated.markers
        assert {result.error_code for result in written.topics[0].partitions} == {NONE}
        (batch,) = (await lab.client.fetch(0)).records
        assert batch.is_control

    BrokerLab(broker_cluster()).run(story)


def test_abandoned_transaction_is_aborted_and_its_producer_fenced_in_the_log() -> None:
    """After transaction.timeout.ms, here 1 s, the coordinator aborts and fences the producer.

    After the abort the group has neither a committed offset (-1) nor a pending one. A late commit
    of the producer is refused.
    """

    async def story(lab: BrokerLab) -> None:
        tx = producer(lab)
        await tx.init(TC, timeout_ms=1_000)
        await tx.add_offsets(TC, GROUP)
        await tx.commit_offset(GC, GROUP, 41)
        # `stable_offset` waits while an offset is pending, here until the abort.
        assert await stable_offset(lab, GC, GROUP) == -1
        assert await tx.commit_offset(GC, GROUP, 42) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert await tx.end(TC) is ErrorCode.PRODUCER_FENCED

    BrokerLab(transactional_cluster()).run(story)


def test_commit_whose_transaction_ended_after_its_verification_is_refused_by_the_log() -> None:
    """A transaction is aborted between the verification of its commit and the append of the commit.

    The test holds back the answer to the verification, and the transaction is aborted meanwhile. If
    the log then accepted the commit, the commit would open a transaction that no marker ever ends
    (KIP-890).
    """

    async def story(lab: BrokerLab) -> None:
        tx = producer(lab)
        await tx.init(TC)

        # This commit is refused, because no transaction has begun. But it opens the connection for
        # verifications, so that the rule below finds it.
        await tx.commit_offset(GC, GROUP, 40)
        await tx.add_offsets(TC, GROUP)
        answers = between_brokers("late", TRANSACTION_VERIFICATION, Clog(), broker_name(TC))
        await lab.runtime.set_link_rules((answers,))
        results: list[ErrorCode] = []

        async def commit() -> None:
            results.append(await tx.commit_offset(GC, GROUP, 41))

        lab.client.host.spawn(commit(), name="commit")
        await lab.seconds(0.5)  # the commit waits for its verification
        # A second client object, because the first one still waits.
        same_producer = TransactionalClient(lab, TX)
        same_producer.id, same_producer.epoch = tx.id, tx.epoch
        assert await same_producer.end(TC, is_commit=False) is NONE
        await lab.seconds(0.5)

        # Now the answer arrives. It says that the transaction is open, which was true before.
        await lab.runtime.set_link_rules(())
        await lab.seconds(0.5)
        assert results == [ErrorCode.INVALID_TXN_STATE]
        assert await stable_offset(lab, GC, GROUP) == -1

    BrokerLab(transactional_cluster()).run(story)


def test_completion_of_a_transaction_waits_behind_a_load() -> None:
    """A broker loads partitions and completes transactions in one queue (KAFKA-10614).

    When a marker is in the log, its completion goes into this queue. The completion makes the
    pending offset of the group a committed one. Here it waits behind a load: 300,000 records at
    10,000 ns each take 3 s.
    """
    other = (OFFSETS + 1) % 3  # an offsets partition that moves to GC, which has to load it
    preload = (PreloadSpec(partition=other, commit_records=300_000, groups=5),)
    base = broker_cluster(config=NO_BALANCING, preload=preload)
    slow = msgspec.structs.replace(base.costs, load_ns_per_record=10_000)
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

    Broker NEXT_GC is killed twice. Each of its three incarnations (lives) gets another block, and
    assigns an id to a new producer.
    """
    # Three transactional ids whose coordinator is NEXT_GC; a third of the 99 names has this one.
    names = (f"other-{number}" for number in range(99))
    new_producers = [name for name in names if partition_for(name, 3) == NEXT_GC][:3]

    async def story(lab: BrokerLab) -> None:
        assigned_ids = []
        for name in new_producers:
            other = TransactionalClient(lab, name)
            assert (await other.coordinator()).node_id == NEXT_GC
            await other.init(NEXT_GC)
            assigned_ids.append(other.id)
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
        # Three ids of new producers, and one of TX, which keeps its producer id.
        assert len(set(assigned_ids)) == 4

    BrokerLab(transactional_cluster()).run(story)


def test_cluster_without_transactions_has_no_transaction_coordinator() -> None:
    """Without transactional clients the topic `__transaction_state` does not exist."""

    async def story(lab: BrokerLab) -> None:
        tx = producer(lab)
        named = await tx.coordinator()
        assert named.error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert (await tx.init_once(0)).error_code is ErrorCode.NOT_COORDINATOR

    BrokerLab(broker_cluster()).run(story)
