"""Three replicas of one partition, a controller, and a network that delays and loses messages.

In this model for tests every order of events is possible: one call of the test sends a message, and
another call delivers it. For example, `send_fetch(B)` takes a Fetch of broker B to the leader. The
answer waits until the test calls `deliver_fetch(B)`. Likewise, a broker learns of an election only
when the test calls `apply_metadata`.

At first broker REPLICAS[0] leads, all replicas are in the ISR, and min.insync.replicas is 2. A
broker that is fenced, that is, counted as dead, is not elected. All elections are clean, unless a
test calls `elect_unclean`. A broker that crashes loses its memory and keeps its disk. No broker
loses power.
"""

from dataclasses import dataclass, field

from partition_log.invariants import check_agreement, check_log, check_partition
from partition_log.log import PartitionLog
from partition_log.memory_storage import MemoryLogStorage
from partition_log.outcomes import FetchResult, IsrProposal, ReplicaConfig
from partition_log.replica import Partition
from protocol.effects import ACKS_ALL
from protocol.errors import ErrorCode, InvariantViolation
from protocol.ids import NO_BROKER, BrokerEpoch, BrokerId
from protocol.messages.controller import AlterPartitionPartitionResponse
from protocol.messages.log import FetchPartition, PartitionData
from protocol.records.batch import RecordBatch
from tests.support.builders.partition_logs import PARTITION, REPLICAS, records

CONFIG = ReplicaConfig(min_insync_replicas=2, replica_lag_time_max_ms=10_000)
"""The settings of every replica. After 10 s without catching up, a follower lags."""


@dataclass
class Metadata:
    """The controller's knowledge about the partition and the brokers."""

    leader_id: BrokerId = NO_BROKER
    leader_epoch: int = 0
    partition_epoch: int = 0
    isr: tuple[BrokerId, ...] = REPLICAS
    unfenced: dict[BrokerId, BrokerEpoch] = field(default_factory=dict)
    """Brokers that are not fenced, with their broker epochs. A broker gets a new broker epoch at
    each start."""
    version: int = 0  # number of changes of any kind so far


@dataclass
class Broker:
    """One broker with its disk, its memory, and its messages in flight."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    disk: MemoryLogStorage = field(default_factory=MemoryLogStorage)
    checkpoint: int = 0
    """The high watermark that is on the disk."""
    partition: Partition | None = None
    """The broker's replica, None while the broker is crashed."""
    version: int = -1
    """The version of the metadata that the broker has applied."""
    waiting_appends: set[int] = field(default_factory=set)
    """The end offsets of appends with acks=all that are not acknowledged yet."""
    fetch_answer: tuple[FetchPartition, PartitionData] | None = None
    """The broker's last Fetch and the answer to it, until the answer is delivered."""
    proposal: IsrProposal | None = None
    """A change of the ISR that is not sent to the controller yet."""
    proposal_answer: tuple[IsrProposal, AlterPartitionPartitionResponse] | None = None
    """The last proposal that was sent, and the answer to it, until the answer is delivered."""


class ClusterModel:
    """The cluster. Each public method is one event. An impossible event does nothing."""

    def __init__(self) -> None:
        self.now_us = 0
        self.metadata = Metadata()
        self.acknowledged: dict[int, RecordBatch] = {}  # offset -> batch
        self.record_count = 0  # the records have the values v0, v1, ...
        # Broker epochs start at different numbers, so that a mix-up of two brokers shows.
        self.brokers = {broker: Broker(broker, BrokerEpoch(100 + broker)) for broker in REPLICAS}
        for broker in self.brokers.values():
            self._open(broker)
            self.metadata.unfenced[broker.broker_id] = broker.broker_epoch
        self.move_leadership(REPLICAS[0])
        for broker_id in REPLICAS:
            self.apply_metadata(broker_id)

    # -- brokers --

    def append(self, broker_id: BrokerId) -> None:
        """Append a record with acks=all, if the broker leads according to its own metadata."""
        broker = self.brokers.get(broker_id)  # None for NO_BROKER
        if broker is None or broker.partition is None:
            return
        value = f"v{self.record_count}"
        info = broker.partition.append_records(
            records(value), required_acks=ACKS_ALL, now_us=self.now_us
        )
        if info.error is ErrorCode.NONE:
            self.record_count += 1
            broker.waiting_appends.add(info.next_offset)

    def send_fetch(self, broker_id: BrokerId) -> None:
        """Send a Fetch to the leader that this replica knows. The answer waits for its delivery."""
        broker = self.brokers[broker_id]
        if broker.partition is None or broker.partition.leader_id in (NO_BROKER, broker_id):
            return
        leading = self.brokers[broker.partition.leader_id]
        if leading.partition is None:
            return

        request = broker.partition.fetch_position(partition_max_bytes=1_048_576)
        # A real broker calls `fetch_nothing` first, which quickly answers a Fetch that gets no
        # records. It calls `fetch` only if `fetch_nothing` returns None. Here both methods are
        # called, because their answers must be equal.
        quick_answer = leading.partition.fetch_nothing(
            request, broker_id, broker.broker_epoch, self.now_us
        )
        result = leading.partition.fetch(
            request,
            replica_id=broker_id,
            replica_epoch=broker.broker_epoch,
            max_bytes=300,  # a few batches, so that a follower needs several Fetches
            now_us=self.now_us,
        )

        if result.proposal is not None:
            leading.proposal = result.proposal
        if quick_answer is not None:
            assert result == FetchResult(data=quick_answer)
        broker.fetch_answer = (request, result.data)

    def deliver_fetch(self, broker_id: BrokerId) -> None:
        """Deliver the answer to the last Fetch, if there is one."""
        broker = self.brokers[broker_id]
        if broker.partition is not None and broker.fetch_answer is not None:
            broker.partition.handle_fetch_response(*broker.fetch_answer)
        broker.fetch_answer = None

    def replicate(self, broker_id: BrokerId) -> None:
        """Send a Fetch and deliver its answer at once."""
        self.send_fetch(broker_id)
        self.deliver_fetch(broker_id)

    def shrink(self, broker_id: BrokerId) -> None:
        """Let a leader propose an ISR without the followers that lag."""
        broker = self.brokers[broker_id]
        if broker.partition is None:
            return
        proposal = broker.partition.maybe_shrink_isr(self.now_us)
        if proposal is not None:
            broker.proposal = proposal

    def crash(self, broker_id: BrokerId) -> None:
        """Kill a broker: its memory and its messages in flight are lost, its disk is kept."""
        killed = self.brokers[broker_id]
        self.brokers[broker_id] = Broker(
            broker_id, killed.broker_epoch, disk=killed.disk, checkpoint=killed.checkpoint
        )

    def restart(self, broker_id: BrokerId) -> None:
        """Start a crashed broker. It registers with a new epoch, and gets the current metadata."""
        broker = self.brokers[broker_id]
        if broker.partition is not None:
            return
        # Any higher number will do as the new broker epoch. With 10 it is no epoch of another
        # broker.
        broker.broker_epoch = BrokerEpoch(broker.broker_epoch + 10)
        self._open(broker)
        self.unfence(broker_id)
        self.apply_metadata(broker_id)

    def checkpoint(self, broker_id: BrokerId) -> None:
        """Write the present high watermark to disk."""
        broker = self.brokers[broker_id]
        if broker.partition is not None:
            broker.checkpoint = broker.partition.high_watermark

    def apply_metadata(self, broker_id: BrokerId) -> None:
        """Let a broker learn of the controller's newest metadata.

        If there were several changes since the last call, the broker sees only the last state.
        """
        broker, metadata = self.brokers[broker_id], self.metadata
        if broker.partition is None or broker.version == metadata.version:
            return
        broker.version = metadata.version
        broker.partition.update_eligible_brokers(dict(metadata.unfenced))
        if metadata.leader_id == broker_id:
            broker.partition.make_leader(
                leader_epoch=metadata.leader_epoch,
                partition_epoch=metadata.partition_epoch,
                replicas=REPLICAS,
                isr=metadata.isr,
                now_us=self.now_us,
            )
            return
        # A former leader answers its waiting appends with an error, so the model forgets them.
        broker.waiting_appends.clear()
        broker.partition.make_follower(
            leader_id=metadata.leader_id,
            leader_epoch=metadata.leader_epoch,
            partition_epoch=metadata.partition_epoch,
            replicas=REPLICAS,
            isr=metadata.isr,
        )

    def pass_time(self, seconds: int) -> None:
        """Advance the time.

        A follower that has not caught up for more than 10 s counts as lagging.
        """
        self.now_us += seconds * 1_000_000

    # -- controller --

    def fence(self, broker_id: BrokerId) -> None:
        """Fence a broker: remove it from the ISR, and if it leads, elect another leader.

        As in Kafka, the last member stays in the ISR. Then the partition has no leader.
        """
        metadata = self.metadata
        if metadata.unfenced.pop(broker_id, None) is None:
            return
        if broker_id in metadata.isr and len(metadata.isr) > 1:
            metadata.isr = tuple(broker for broker in metadata.isr if broker != broker_id)
        if metadata.leader_id == broker_id:
            self._elect()
        self._publish()

    def unfence(self, broker_id: BrokerId) -> None:
        """End the fencing of a running broker. If the partition has no leader, elect one."""
        broker, metadata = self.brokers[broker_id], self.metadata
        if broker.partition is None:
            return
        metadata.unfenced[broker_id] = broker.broker_epoch
        if metadata.leader_id == NO_BROKER:
            self._elect()
        self._publish()

    def move_leadership(self, broker_id: BrokerId) -> None:
        """Elect a member of the ISR. If it leads already, a new epoch begins all the same."""
        metadata = self.metadata
        if broker_id not in metadata.isr or broker_id not in metadata.unfenced:
            return
        metadata.leader_id = broker_id
        metadata.leader_epoch += 1
        self._publish()

    def elect_unclean(self, broker_id: BrokerId) -> None:
        """Elect an unfenced replica, in the ISR or not, and make it the only member of the ISR."""
        metadata = self.metadata
        if broker_id not in metadata.unfenced or broker_id == metadata.leader_id:
            return
        metadata.isr = (broker_id,)
        metadata.leader_id = broker_id
        metadata.leader_epoch += 1
        self._publish()

    def handle_alter_partition(self, broker_id: BrokerId) -> None:
        """Deliver a leader's proposal to the controller. The answer waits for `deliver_answer`."""
        broker, metadata = self.brokers[broker_id], self.metadata
        # A leader has at most one AlterPartition in flight.
        if broker.proposal is None or broker.proposal_answer is not None:
            return
        proposal = broker.proposal
        broker.proposal = None
        data = proposal.data
        error = ErrorCode.NONE

        if data.leader_epoch < metadata.leader_epoch:
            error = ErrorCode.FENCED_LEADER_EPOCH
        elif broker_id != metadata.leader_id:
            error = ErrorCode.INVALID_REQUEST
        elif data.partition_epoch != metadata.partition_epoch:
            error = ErrorCode.INVALID_UPDATE_VERSION
        elif any(
            member.broker_id not in metadata.unfenced
            # A leader that does not know the member's epoch sends -1, which matches any epoch.
            or member.broker_epoch not in (-1, metadata.unfenced[BrokerId(member.broker_id)])
            for member in data.new_isr_with_epochs
        ):
            error = ErrorCode.INELIGIBLE_REPLICA
        else:
            metadata.isr = proposal.new_isr
            self._publish()

        broker.proposal_answer = (
            proposal,
            AlterPartitionPartitionResponse(
                partition_index=data.partition_index,
                error_code=error,
                leader_id=metadata.leader_id,
                leader_epoch=metadata.leader_epoch,
                isr=metadata.isr,
                partition_epoch=metadata.partition_epoch,
            ),
        )

    def deliver_answer(self, broker_id: BrokerId, *, is_lost: bool = False) -> None:
        """Deliver the controller's answer. If `is_lost`, the connection breaks instead."""
        broker = self.brokers[broker_id]
        if broker.partition is None or broker.proposal_answer is None:
            return
        proposal, answer = broker.proposal_answer
        broker.proposal_answer = None
        if is_lost:
            answer = AlterPartitionPartitionResponse(
                partition_index=answer.partition_index, error_code=ErrorCode.NETWORK_EXCEPTION
            )
        result = broker.partition.handle_alter_partition_response(
            proposal, answer, now_us=self.now_us
        )
        # If the leader has made a newer proposal meanwhile, it sends the newer proposal instead.
        if result.retry and broker.proposal is None:
            broker.proposal = proposal

    def recover(self, broker_id: BrokerId) -> None:
        """Restart and unfence a broker, and let it apply the current metadata."""
        self.restart(broker_id)
        # `restart` does nothing if the broker is running. A running broker may be fenced.
        if broker_id not in self.metadata.unfenced:
            self.unfence(broker_id)
        self.apply_metadata(broker_id)

    # -- checks --

    def check(self) -> None:
        """Acknowledge the appends that are complete, and check that no acknowledged record is lost.

        Each member of the controller's ISR may be elected next, so it must have every acknowledged
        record in its log.
        Raises: InvariantViolation.
        """
        for broker in self.brokers.values():
            if broker.partition is not None:
                check_partition(broker.partition)
                self._acknowledge(broker)
        check_agreement(
            [broker.partition.log for broker in self.brokers.values() if broker.partition]
        )
        for member in self.metadata.isr:
            disk = self.brokers[member].disk
            for offset, batch in self.acknowledged.items():
                # Each batch has one record here, so the index of a batch is its offset. Followers
                # keep the leader's batch object. So an equal batch that is another object comes
                # from another append.
                if offset >= len(disk) or disk.batch(offset) is not batch:
                    raise InvariantViolation(
                        "acknowledged records are in every log of the ISR",
                        f"broker {member} lacks offset {offset} of leader epoch "
                        f"{batch.partition_leader_epoch}",
                    )

    def check_logs(self) -> None:
        """Check every batch of every log. Raises: InvariantViolation."""
        for broker in self.brokers.values():
            if broker.partition is not None:
                check_log(broker.partition.log)

    def heal(self) -> None:
        """Restart and unfence all brokers, and deliver all messages until the logs are equal.

        Raises: InvariantViolation if the logs are not equal after 30 rounds, if a record is not
        committed, or if a replica is not in the ISR.
        """
        for broker_id in REPLICAS:
            self.recover(broker_id)

        # A round delivers each kind of message once. 30 rounds are more than enough.
        for _ in range(30):
            for broker_id in REPLICAS:
                self.apply_metadata(broker_id)
                self.deliver_fetch(broker_id)  # an answer that is still in flight
                self.replicate(broker_id)
                self.handle_alter_partition(broker_id)
                self.deliver_answer(broker_id)
                self.check()

        self.check_logs()
        log_ends_and_high_watermarks = {
            (broker.partition.log_end_offset, broker.partition.high_watermark)
            for broker in self.brokers.values()
            if broker.partition
        }
        found = f"{sorted(log_ends_and_high_watermarks)}"
        if len(log_ends_and_high_watermarks) > 1:
            raise InvariantViolation("replicas converge", found)
        if any(log_end != high for log_end, high in log_ends_and_high_watermarks):
            raise InvariantViolation("everything is committed", found)
        if sorted(self.metadata.isr) != sorted(REPLICAS):
            raise InvariantViolation("all replicas are in sync", f"{self.metadata.isr}")

    def _acknowledge(self, broker: Broker) -> None:
        if broker.partition is None or not broker.partition.is_leader:
            return
        # While replicas lack the record, `check_acknowledged` returns None. After that, it returns
        # the outcome. After an error the append stays in `waiting_appends`, because the model does
        # not answer it.
        for end_offset in sorted(broker.waiting_appends):
            if broker.partition.check_acknowledged(end_offset) is ErrorCode.NONE:
                # Each append has one record. The offset of this record is the end offset minus 1.
                broker.waiting_appends.remove(end_offset)
                self.acknowledged[end_offset - 1] = broker.disk.batch(end_offset - 1)

    def _elect(self) -> None:
        """Elect the first unfenced broker of the ISR, if there is such a broker."""
        metadata = self.metadata
        candidates = [broker for broker in metadata.isr if broker in metadata.unfenced]
        metadata.leader_id = candidates[0] if candidates else NO_BROKER
        metadata.leader_epoch += 1

    def _publish(self) -> None:
        """Count a change of the metadata. A broker learns of the change by `apply_metadata`."""
        self.metadata.partition_epoch += 1
        self.metadata.version += 1

    def _open(self, broker: Broker) -> None:
        log = PartitionLog(PARTITION, broker.disk, high_watermark=broker.checkpoint)
        broker.partition = Partition(PARTITION, broker.broker_id, log, CONFIG)
        broker.version = -1
