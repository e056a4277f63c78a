"""Registration, heartbeats, fencing and unfencing of brokers.

A broker registers when it starts, and then sends heartbeats. A broker that has only registered, or
that is silent for too long, is *fenced*: it may lead no partition, and is removed from every ISR in
which it is not the last member. When a fenced broker sends heartbeats again, and has read its
registration in the metadata log, it is unfenced. In a controlled shutdown, a broker gives up its
leaderships before it stops. A broker is *active* if it is neither fenced nor in a controlled
shutdown.

The methods of BrokerControl return Decisions with the records for these changes. They change
nothing but the times of heartbeats, in BrokerLiveness.

Source: Kafka `ClusterControlManager.registerBroker`,
`ReplicationControlManager.processBrokerHeartbeat`, `handleBrokerFenced`, `handleBrokerUnfenced`.
"""

from collections.abc import Callable
from typing import TypeVar

from cluster.controller.broker_liveness import BrokerControlState, BrokerLiveness
from cluster.controller.decision import Decision
from cluster.controller.election import change_partition
from cluster.controller.metadata_image import (
    BrokerRegistration,
    MetadataImage,
    PartitionRegistration,
)
from protocol.causes import FencingCause
from protocol.errors import ErrorCode
from protocol.ids import BrokerId, TopicPartition, broker_name
from protocol.messages.controller import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from protocol.records.metadata import (
    NO_LEADER,
    BrokerRegistrationChangeRecord,
    RegisterBrokerRecord,
)
from protocol.trace import TraceEvent, TraceKind

T = TypeVar("T")


class BrokerControl:
    """Registers brokers, fences brokers that are silent, and moves their leaderships."""

    def __init__(
        self, image: MetadataImage, liveness: BrokerLiveness, *, unclean_by_default: bool
    ) -> None:
        self._image = image
        self._liveness = liveness
        self._unclean_by_default = unclean_by_default

    def register(
        self, request: BrokerRegistrationRequest, now_us: int
    ) -> Decision[BrokerRegistrationResponse]:
        """Register a broker that has started; it is fenced at first.

        If an earlier incarnation of the broker (the broker before a restart) has a session, it may
        still be alive, and the new incarnation is refused. An incarnation that is registered
        already may ask again, because the first answer was lost. It gets the same answer. The
        broker epoch in the answer is the offset of the record of the registration.
        """
        broker_id = BrokerId(request.broker_id)
        registered = self._image.brokers.get(broker_id)
        decision = Decision(BrokerRegistrationResponse())
        if registered is not None:
            if registered.incarnation_id == request.incarnation_id:
                decision.response = BrokerRegistrationResponse(broker_epoch=registered.broker_epoch)
                return decision
            if self._liveness.has_valid_session(broker_id, now_us):
                decision.response = BrokerRegistrationResponse(
                    error_code=ErrorCode.DUPLICATE_BROKER_REGISTRATION
                )
                return decision
            if not registered.fenced:
                # The session of the earlier incarnation has ended, but the broker was not fenced
                # yet. The new registration would fence the broker without a trace row, so the
                # broker is fenced here.
                self._fence(registered, decision, now_us, reason=FencingCause.REGISTERED_ANEW)

        # The epoch is the offset that the record below will have.
        broker_epoch = self._image.end_offset + len(decision.records)
        decision.records.append(
            RegisterBrokerRecord(
                broker_id=broker_id,
                incarnation_id=request.incarnation_id,
                broker_epoch=broker_epoch,
                host=request.host,
                port=request.port,
                rack=request.rack,
                end_points=request.listeners,
            )
        )
        decision.trace.append(
            TraceEvent(
                kind=TraceKind.BROKER_REGISTERED,
                peer=broker_name(broker_id),
                detail={"broker_epoch": broker_epoch},
            )
        )
        decision.response = BrokerRegistrationResponse(broker_epoch=broker_epoch)
        return decision

    def heartbeat(
        self, request: BrokerHeartbeatRequest, now_us: int
    ) -> Decision[BrokerHeartbeatResponse]:
        """Note a heartbeat; unfence the broker once it has read its own registration.

        A heartbeat may ask for a controlled shutdown. The broker then loses its leaderships and
        leaves every ISR. The broker may stop when all active brokers have applied this change of
        the metadata. Until then they still send clients to this broker.

        Source: Kafka ReplicationControlManager.processBrokerHeartbeat.
        """
        broker = self._image.brokers.get(BrokerId(request.broker_id))
        if broker is None or broker.broker_epoch != request.broker_epoch:
            return Decision(BrokerHeartbeatResponse(error_code=ErrorCode.STALE_BROKER_EPOCH))
        decision = Decision(BrokerHeartbeatResponse())
        # The broker's states before and after this heartbeat.
        current, following = self._liveness.states(
            broker, request, lambda: self._image.has_leaderships(broker.broker_id)
        )
        if following is not current:
            match following:
                case BrokerControlState.UNFENCED:
                    self._unfence(broker, decision)
                case BrokerControlState.CONTROLLED_SHUTDOWN:
                    self._begin_controlled_shutdown(broker, decision)
                case BrokerControlState.FENCED:
                    self._fence(broker, decision, now_us, reason=FencingCause.WANTS_TO_BE_FENCED)
                case BrokerControlState.SHUTDOWN_NOW if not broker.fenced:
                    self._fence(broker, decision, now_us, reason=FencingCause.CONTROLLED_SHUTDOWN)
                case BrokerControlState.SHUTDOWN_NOW:
                    # The broker was fenced before it asked to shut down.
                    pass  # DEVIATION: Kafka writes another record that the broker is fenced.

        # A fenced broker has no session. A broker that this heartbeat unfences gets its session
        # here.
        if not following.is_fenced:
            self._liveness.touch(broker.broker_id, now_us, request.current_metadata_offset)
        if following is BrokerControlState.CONTROLLED_SHUTDOWN:
            # The broker may stop when all active brokers have applied the last record of this
            # decision. Later heartbeats of the shutdown do not change this offset.
            self._liveness.begin_controlled_shutdown(
                broker.broker_id, self._image.end_offset + len(decision.records) - 1
            )
        decision.response = BrokerHeartbeatResponse(
            is_caught_up=request.current_metadata_offset >= broker.broker_epoch,
            is_fenced=following.is_fenced,
            should_shut_down=following is BrokerControlState.SHUTDOWN_NOW,
        )
        return decision

    def fence_stale_broker(self, now_us: int) -> Decision[None] | None:
        """Fence the broker that has been silent the longest, if its session has ended.

        Returns None if no session has ended.
        """
        broker_id = self._liveness.find_stale_broker(now_us)
        if broker_id is None:
            return None
        decision = Decision(None)
        self._fence(
            self._image.brokers[broker_id], decision, now_us, reason=FencingCause.SESSION_ENDED
        )
        return decision

    def _fence(
        self,
        broker: BrokerRegistration,
        decision: Decision[T],
        now_us: int,
        *,
        reason: FencingCause,
    ) -> None:
        """Remove the broker from every ISR, move its leaderships, and mark it fenced."""
        fenced_id = broker.broker_id
        silent_us = self._liveness.silent_us(fenced_id, now_us)  # before `remove` forgets it
        self._liveness.remove(fenced_id)
        self._remove_from_isrs(fenced_id, decision)
        decision.records.append(
            BrokerRegistrationChangeRecord(
                broker_id=fenced_id, broker_epoch=broker.broker_epoch, fenced=True
            )
        )
        decision.reason = "broker fenced"
        decision.trace.append(
            TraceEvent(
                kind=TraceKind.BROKER_FENCED,
                peer=broker_name(fenced_id),
                detail={
                    "reason": reason,
                    "silent_ms": None if silent_us is None else silent_us // 1_000,
                },
            )
        )

    def _begin_controlled_shutdown(self, broker: BrokerRegistration, decision: Decision[T]) -> None:
        """Remove the broker from every ISR and move its leaderships; the broker keeps running.

        Source: Kafka ReplicationControlManager.handleBrokerInControlledShutdown.
        """
        # If the controller has restarted during the shutdown, the metadata has the shutdown
        # already, but the session with the shutdown is lost, so the shutdown begins again here.
        if not broker.in_controlled_shutdown:
            decision.records.append(
                BrokerRegistrationChangeRecord(
                    broker_id=broker.broker_id,
                    broker_epoch=broker.broker_epoch,
                    in_controlled_shutdown=True,
                )
            )
        self._remove_from_isrs(broker.broker_id, decision)
        decision.reason = FencingCause.CONTROLLED_SHUTDOWN

    def _remove_from_isrs(self, removed_id: BrokerId, decision: Decision[T]) -> None:
        """Remove the broker from every ISR, and elect a leader for each partition that it led."""
        for name, partition in self._image.partitions():
            if removed_id in partition.isr:
                self._change(
                    name,
                    partition,
                    decision,
                    tuple(member for member in partition.isr if member != removed_id),
                    # The image still has the broker as active, so it must be excluded.
                    lambda replica: replica != removed_id and self._image.is_active(replica),
                )

    def _unfence(self, broker: BrokerRegistration, decision: Decision[T]) -> None:
        """Mark the broker unfenced, and elect leaders for partitions without a leader."""
        unfenced_id = broker.broker_id
        decision.records.append(
            BrokerRegistrationChangeRecord(
                broker_id=unfenced_id, broker_epoch=broker.broker_epoch, fenced=False
            )
        )
        for name, partition in self._image.partitions():
            if partition.leader == NO_LEADER:
                self._change(
                    name,
                    partition,
                    decision,
                    partition.isr,
                    # The image still has the broker as fenced, so it must be included.
                    lambda replica: replica == unfenced_id or self._image.is_active(replica),
                )
        decision.reason = "broker unfenced"
        decision.trace.append(
            TraceEvent(kind=TraceKind.BROKER_UNFENCED, peer=broker_name(unfenced_id))
        )

    def _change(
        self,
        name: TopicPartition,
        partition: PartitionRegistration,
        decision: Decision[T],
        target_isr: tuple[BrokerId, ...],
        is_acceptable_leader: Callable[[BrokerId], bool],
    ) -> None:
        """Add the record that sets an ISR and elects a leader, if the partition changes.

        If `target_isr` is empty, the ISR keeps its last member, which is not elected.
        """
        # A topic's own setting takes precedence over the setting of the brokers.
        unclean = self._image.topic_config(name.topic).unclean_leader_election_enable
        record = change_partition(
            name,
            partition,
            target_isr=target_isr,
            is_acceptable_leader=is_acceptable_leader,
            unclean=self._unclean_by_default if unclean is None else unclean,
        )
        if record is not None:
            decision.records.append(record)
