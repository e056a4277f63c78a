"""A leader changes its ISR only with the controller's consent (docs/kafka, BEHAVIOUR 6.1).

The leader proposes another ISR with the request AlterPartition, and applies it when the controller
has confirmed it. In most tests broker 0 leads orders-0, and the network drops the Fetches of its
follower broker 2. After the lag limit of 4 s (replica.lag.time.max.ms) the leader must remove
broker 2 from the ISR. A follower that has every record does not lag, so the tests first produce a
record that broker 2 cannot fetch.
"""

import json

import pytest
from msgspec.structs import replace

from cluster.broker.node import BrokerNode
from cluster.broker.replication.produce import ADMIN_CLIENT_ID
from cluster.controller.node import ControllerNode
from cluster.host.frames import Frame, RequestFrame, ResponseFrame
from cluster.host.host import Disconnected, RequestTimedOut
from cluster.runtime import ClusterStatus
from partition_log.batches import build_batch
from protocol.api import AnyResponse
from protocol.config import BrokerConfig
from protocol.errors import InvariantViolation
from protocol.ids import CONSUMER_OFFSETS, NodeName, PartitionEpoch, TopicPartition
from protocol.messages.controller import AlterPartitionRequest, AlterPartitionResponse
from protocol.messages.log import (
    FetchRequest,
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from protocol.records.batch import Record
from protocol.trace import TraceKind
from tests.support.harness.brokers import ORDERS, broker_cluster
from tests.support.harness.virtual_hosts import HostLab

Outcome = AnyResponse | Disconnected | RequestTimedOut
"""The answer to a client's request, or the reason why no answer came."""
P0 = TopicPartition(ORDERS, 0)
CONFIG = BrokerConfig(
    auto_leader_rebalance_enable=False,  # leaders stay where they are
    replica_lag_time_max_ms=4_000,
    replica_socket_timeout_ms=2_000,  # after this time a follower repeats a lost Fetch
)


class LossyCluster:
    """A controller and three brokers on a network that drops the frames that a test selects.

    A frame is one message of a connection. A test sets `lab.lose` to a function that returns True
    for each frame to drop, for instance to `is_fetch_of_broker_2`. The nodes write their metrics to
    the trace every `metrics_interval_us`, or never if this is 0.
    """

    def __init__(self, *, metrics_interval_us: int = 0) -> None:
        self.lab = HostLab()
        cluster = replace(broker_cluster(config=CONFIG), metrics_interval_us=metrics_interval_us)
        (controller,) = cluster.controllers
        self.controller = ControllerNode(self.lab.host(controller.name), cluster, controller)
        self.controller.start()
        self.brokers = [
            BrokerNode(self.lab.host(spec.name), cluster, spec) for spec in cluster.brokers
        ]
        for broker in self.brokers:
            broker.start()
        self.lab.run_for(2_000_000)  # the brokers register, and the topics are created

    def isr(self) -> tuple[int, ...]:
        """Return the ISR of orders-0 as the controller has it."""
        status = ClusterStatus()
        self.controller.report(status)
        return status.partitions[P0].isr

    def is_fetch_of_broker_2(self, frame: Frame) -> bool:
        """Return True for a Fetch of broker 2 to broker 0."""
        return (
            isinstance(frame, RequestFrame)
            and (frame.source, frame.destination) == ("broker-2", "broker-0")
            and isinstance(frame.envelope.body, FetchRequest)
        )

    def is_alter_partition_or_fetch_of_broker_2(self, frame: Frame) -> bool:
        """Return True for an AlterPartition, and for a Fetch of broker 2 to broker 0."""
        return self.is_fetch_of_broker_2(frame) or (
            isinstance(frame, RequestFrame)
            and isinstance(frame.envelope.body, AlterPartitionRequest)
        )

    def alter_partition_requests(self) -> list[AlterPartitionRequest]:
        """Return every AlterPartition that was sent, even if the network dropped it."""
        return [
            frame.envelope.body
            for frame in self.lab.frames
            if isinstance(frame, RequestFrame)
            and isinstance(frame.envelope.body, AlterPartitionRequest)
        ]

    def metrics(self, node: str) -> dict[str, float]:
        """Return the latest replica metrics of a broker."""
        # A broker writes several kinds of METRICS rows. Only replica metrics have PartitionCount.
        samples = [
            row.detail
            for row in self.lab.rows
            if row.kind == TraceKind.METRICS
            and row.node == node
            and row.detail is not None
            and "PartitionCount" in row.detail
        ]
        metrics: dict[str, float] = json.loads(samples[-1])
        return metrics

    def produce(self, *, seconds: int, topic: str = ORDERS) -> Outcome | None:
        """Produce a record to broker 0, advance the time by `seconds`, and return the answer.

        None means that no answer has come in this time.
        """
        answers: list[Outcome] = []
        client = self.lab.host(f"client-{topic}-{self.lab.loop.now_us()}")
        connection = client.connect(
            NodeName("broker-0"),
            "test",
            setup_timeout_us=1_000_000,
            client_id=ADMIN_CLIENT_ID,  # other clients may not write to __consumer_offsets
        )
        batch = build_batch((Record(None, b"a"),))
        data = PartitionProduceData(index=0, records=batch)
        connection.send(
            ProduceRequest(
                acks=-1,  # all: the answer waits for every replica in the ISR
                timeout_ms=60_000,  # longer than any test waits
                topic_data=(TopicProduceData(name=topic, partition_data=(data,)),),
            ),
            timeout_us=90_000_000,  # longer than any test waits
            on_response=answers.append,
        )
        self.lab.run_for(seconds * 1_000_000)
        return answers[0] if answers else None


def test_lagging_follower_leaves_the_isr_and_returns_when_it_has_caught_up() -> None:
    """A follower leaves after the lag limit, and returns with a Fetch from the log end.

    The removal is confirmed 3.5 s to 7 s after the record:

    - At the earliest: the limit of 4 s counts from the follower's last Fetch. This Fetch was up to
      0.5 s before the record. 4 s - 0.5 s = 3.5 s.
    - At the latest: the leader looks for lagging followers every 2 s, so it proposes the removal
      after up to 4 s + 2 s = 6 s. The confirmation is a few messages later, well within a second.
    """
    cluster = LossyCluster()
    cluster.lab.lose = cluster.is_fetch_of_broker_2
    begun_us = cluster.lab.loop.now_us()
    assert cluster.produce(seconds=1) is None  # broker 2 is still in the ISR, so no answer
    cluster.lab.run_for(8_000_000)  # 1 s + 8 s is longer than the 7 s until the removal
    assert cluster.isr() == (0, 1)

    (change,) = [
        row
        for row in cluster.lab.rows
        if row.kind == TraceKind.ISR_CHANGED and row.partition == str(P0)
    ]
    assert 3_500_000 <= change.time_us - begun_us <= 7_000_000
    # The next record is acknowledged without broker 2, because two replicas are in the ISR.
    assert isinstance(cluster.produce(seconds=1), ProduceResponse)

    cluster.lab.lose = lambda _frame: False
    cluster.lab.run_for(8_000_000)
    # Sorted, because a broker that returns need not get its old place in the ISR.
    assert sorted(cluster.isr()) == [0, 1, 2]
    assert cluster.lab.failures == []  # no task of a node has failed


def test_leader_counts_isr_changes_once_they_are_confirmed() -> None:
    """A change that the leader has only proposed is not counted yet."""
    # In the first cluster the proposal never arrives.
    cluster = LossyCluster(metrics_interval_us=1_000_000)
    cluster.lab.lose = cluster.is_alter_partition_or_fetch_of_broker_2
    cluster.produce(seconds=9)  # longer than the 7 s in which a lagging follower leaves
    assert cluster.alter_partition_requests()
    assert cluster.metrics("broker-0")["IsrShrinksPerSec.Count"] == 0

    # In the second cluster the controller confirms the proposal.
    cluster = LossyCluster(metrics_interval_us=1_000_000)
    cluster.lab.lose = cluster.is_fetch_of_broker_2
    cluster.produce(seconds=9)
    shrunk = cluster.metrics("broker-0")
    # Broker 0 has the three partitions of orders and the three of __consumer_offsets. It leads
    # partition 0 of each. One of these two has lost broker 2 from its ISR.
    assert (shrunk["PartitionCount"], shrunk["LeaderCount"]) == (6, 2)
    assert (shrunk["UnderReplicatedPartitions"], shrunk["UnderMinIsrPartitionCount"]) == (1, 0)
    assert (shrunk["IsrShrinksPerSec.Count"], shrunk["IsrExpandsPerSec.Count"]) == (1, 0)
    assert shrunk["IsrShrinksPerSec.MeanRate"] > 0

    # Broker 2 fetches again, and returns to the ISR.
    cluster.lab.lose = lambda _frame: False
    cluster.lab.run_for(8_000_000)
    expanded = cluster.metrics("broker-0")
    assert expanded["UnderReplicatedPartitions"] == 0
    assert (expanded["IsrShrinksPerSec.Count"], expanded["IsrExpandsPerSec.Count"]) == (1, 1)
    # Only the leader of orders-0 counts these changes, so broker 1 has counted nothing.
    assert cluster.metrics("broker-1")["IsrShrinksPerSec.Count"] == 0


def test_record_is_acknowledged_when_the_shrink_is_confirmed() -> None:
    """Until the confirmation, the high watermark waits for the follower that is to be removed."""
    cluster = LossyCluster()
    cluster.lab.lose = cluster.is_fetch_of_broker_2
    # The controller confirms the removal within 7 s, as in the first test.
    assert isinstance(cluster.produce(seconds=9), ProduceResponse)


def test_leader_that_cannot_reach_the_controller_never_shrinks_its_isr() -> None:
    """A leader must not shrink its ISR alone: it could acknowledge records that no follower has.

    At the same time the controller may elect a follower, and these records would be lost.
    """
    cluster = LossyCluster()
    cluster.lab.lose = cluster.is_alter_partition_or_fetch_of_broker_2
    assert cluster.produce(seconds=40) is None

    assert cluster.isr() == (0, 1, 2)
    # The first AlterPartition was dropped, and timed out after 30 s. Then the leader repeated it.
    assert len(cluster.alter_partition_requests()) >= 2
    assert cluster.lab.failures == []


def test_one_alter_partition_request_is_in_flight_at_a_time() -> None:
    """Broker 0 has two proposals at the same time. The second waits for the answer to the first.

    Kafka's AlterPartitionManager does the same.
    """
    cluster = LossyCluster()
    cluster.lab.lose = cluster.is_fetch_of_broker_2
    # Broker 0 leads orders-0 and __consumer_offsets-0. Both partitions get a record at the same
    # time, because `seconds=0` does not wait for the first answer. So broker 2 begins to lag in
    # both partitions.
    cluster.produce(seconds=0)
    cluster.produce(seconds=9, topic=CONSUMER_OFFSETS)
    messages = [
        type(frame.envelope.body).__name__
        for frame in cluster.lab.frames
        if isinstance(frame, RequestFrame | ResponseFrame)
        and isinstance(frame.envelope.body, AlterPartitionRequest | AlterPartitionResponse)
    ]
    assert messages == [
        "AlterPartitionRequest",
        "AlterPartitionResponse",
        "AlterPartitionRequest",
        "AlterPartitionResponse",
    ]
    topics = [request.topics[0].topic_name for request in cluster.alter_partition_requests()]
    assert sorted(topics) == [CONSUMER_OFFSETS, ORDERS]


@pytest.mark.parametrize("kept_in", ["_pending", "_sent"])
def test_invariant_finds_a_proposal_that_the_leader_has_lost(kept_in: str) -> None:
    """Planted bug: the leader loses a proposal. The partition would wait for ever for the answer.

    IsrChanges keeps a proposal in `_pending` until it is sent, and then in `_sent` until its
    answer. The bug empties one of the two.
    """
    cluster = LossyCluster()
    cluster.lab.lose = cluster.is_alter_partition_or_fetch_of_broker_2
    isr_changes = cluster.brokers[0]._replicas._isr_changes
    cluster.produce(seconds=1)
    # Run in steps of 10 ms, for up to 60 s, until the proposal is where the bug is to lose it. The
    # proposal gets into `_sent` when the follower lags. The network drops the request, so the
    # proposal goes back to `_pending` after the request's timeout of 30 s.
    for _ in range(6_000):
        cluster.lab.run_for(10_000)
        if getattr(isr_changes, kept_in):
            break
    cluster.brokers[0].check_invariants()  # without the planted bug the check passes

    # The planted bug: the proposal is lost.
    setattr(isr_changes, kept_in, {})

    with pytest.raises(InvariantViolation, match=r"orders-0: .* is not waiting"):
        cluster.brokers[0].check_invariants()


@pytest.mark.parametrize(
    ("broker", "field", "wrong_epoch"),
    [
        (0, "leader_epoch", 7),
        (0, "partition_epoch", -1),
        (1, "leader_epoch", 7),
        (1, "partition_epoch", -1),
        (1, "partition_epoch", 7),
    ],
)
def test_invariant_finds_a_replica_that_contradicts_its_metadata(
    broker: int, field: str, wrong_epoch: int
) -> None:
    """Planted bugs: a replica has a newer epoch (7) or an older one (-1) than the metadata.

    Broker 0 leads orders-0, broker 1 follows. Only a leader may have a newer partition epoch than
    the metadata, as the next test shows.
    """
    cluster = LossyCluster()
    replicas = cluster.brokers[broker]._replicas
    replicas.check_follows_metadata()
    partition = replicas.partition(P0)
    assert partition is not None

    setattr(partition, field, wrong_epoch)

    # The message has the replica's role: "orders-0 leads: True" or "orders-0 leads: False".
    with pytest.raises(InvariantViolation, match="orders-0 leads: "):
        replicas.check_follows_metadata()


def test_leader_may_have_a_newer_partition_epoch_than_its_metadata() -> None:
    """The answer to a leader's proposal may arrive before the metadata with the change."""
    cluster = LossyCluster()
    replicas = cluster.brokers[0]._replicas
    partition = replicas.partition(P0)
    assert partition is not None

    partition.partition_epoch = PartitionEpoch(7)

    replicas.check_follows_metadata()
