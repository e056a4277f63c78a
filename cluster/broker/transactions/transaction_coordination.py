"""TransactionCoordination connects the transaction coordinator with the broker around it.

The coordinator is a pure state machine, without a clock and connections. It gets one input at a
time, such as a request or a timer that fired, and returns a Result: the replies to send, the
records to append, the markers (records that end a transaction) to write, the timers to set and the
trace rows. TransactionCoordination passes the inputs to the coordinator, and carries out the
Results.

While a Result is carried out, another input may arise, for example the outcome of an append. Such
an input waits in a queue until the current Result has been carried out, so that replies leave in
the order in which the coordinator gave them.
"""

from collections import deque
from collections.abc import Callable

from cluster.broker.channels import BrokerIdentity, ControllerChannel
from cluster.broker.control.metadata_cache import MetadataCache
from cluster.broker.coordination.appends import CoordinatorAppends
from cluster.broker.replication.replica_manager import ReplicaManager
from cluster.broker.transactions.marker_sender import Errors, MarkerSender
from cluster.host.host import Disconnected, Host, RequestTimedOut
from cluster.host.keyed_timers import KeyedTimers
from cluster.spec import ClusterSpec
from coordinator.transaction.effects import SendMarkers, TransactionResult
from coordinator.transaction.transaction_coordinator import TransactionCoordinator
from protocol.api import AnyResponse
from protocol.effects import AppendCompleted
from protocol.envelope import RequestEnvelope
from protocol.errors import ErrorCode, SimulationError
from protocol.ids import TRANSACTION_STATE, RequestId
from protocol.messages.controller import AllocateProducerIdsRequest, AllocateProducerIdsResponse

ALLOCATE_TIMEOUT_US = 30_000_000
"""request.timeout.ms of a broker."""

_Input = Callable[[], TransactionResult]
"""A function that passes one input to the coordinator and returns the Result."""


class TransactionCoordination:
    """The transaction coordinator of one incarnation of a broker, with its inputs and Results."""

    def __init__(
        self,
        host: Host,
        identity: BrokerIdentity,
        cluster: ClusterSpec,
        replicas: ReplicaManager,
        cache: MetadataCache,
        controller: ControllerChannel,
        coordinator: TransactionCoordinator,
    ) -> None:
        self.coordinator = coordinator
        self._host = host
        self._identity = identity
        self._controller = controller
        self._appends = CoordinatorAppends(
            host, cluster, replicas, self._append_completed, topic=TRANSACTION_STATE
        )
        self._markers = MarkerSender(host, cache, self._markers_answered)
        self._timers = KeyedTimers(host, self._timer_fired)
        self._inputs: deque[_Input] = deque()
        """Inputs that wait until the current Result is carried out."""
        self._is_busy = False
        """True while `carry_out` runs."""

    def start(self) -> None:
        """Start the coordinator's periodic timers.

        The coordinator gets the wall clock's time, because its records have timestamps.
        """
        self.carry_out(self.coordinator.start(self._host.wall_us()))

    def handle(self, request_id: RequestId, envelope: RequestEnvelope) -> None:
        """Pass a request to the coordinator."""
        self.carry_out(self.coordinator.handle(request_id, envelope, self._host.wall_us()))

    def check_invariants(self) -> None:
        """Check all invariants between two inputs. Raises: InvariantViolation."""
        self.coordinator.check_invariants()
        # Exactly the timers that the coordinator has set must be running.
        self._timers.require(self.coordinator.timers())

    def carry_out(self, result: TransactionResult) -> None:
        """Carry out a Result; then handle all inputs that arose meanwhile, in the same way."""
        was_busy, self._is_busy = self._is_busy, True
        self._carry_out_one(result)
        if was_busy:
            return  # Another call of `carry_out` is running, and will handle the queue.
        while self._inputs:
            # An entry of the queue is a function, which passes the input to the coordinator.
            self._carry_out_one(self._inputs.popleft()())
        self._is_busy = False

    def _carry_out_one(self, result: TransactionResult) -> None:
        """Carry out one Result: trace rows, timers, appends and markers first, then replies.

        `protocol.effects` demands this order.
        """
        host = self._host
        for event in result.trace:
            host.trace(event)
        self._timers.apply(result.timers)
        for append in result.appends:
            self._appends.append(append)
        for markers in result.markers:
            self._markers.send(markers)
        for reply in result.replies:
            host.reply(reply.request_id, reply.response)
        if result.wants_producer_ids:
            self._allocate_producer_ids()

    def _feed(self, new_input: _Input) -> None:
        """Pass an input to the coordinator now, or once the current Result is carried out."""
        if self._is_busy:
            self._inputs.append(new_input)
        else:
            self.carry_out(new_input())

    def _append_completed(self, completed: AppendCompleted) -> None:
        """Pass the outcome of an append to the coordinator."""
        # The input is a function, so that the clock is read only when the input leaves the queue.
        self._feed(lambda: self.coordinator.append_completed(completed, self._host.wall_us()))

    def _markers_answered(self, markers: SendMarkers, errors: Errors) -> None:
        """Pass the answers to the markers of one transaction to the coordinator."""
        self._feed(
            lambda: self.coordinator.markers_answered(
                markers.transactional_id,
                markers.coordinator_epoch,
                errors,
                self._host.wall_us(),
            )
        )

    def _timer_fired(self, key: str) -> None:
        """Pass a timer that fired to the coordinator."""
        self._feed(lambda: self.coordinator.timer_fired(key, self._host.wall_us()))

    # -- producer ids --

    def _allocate_producer_ids(self) -> None:
        """Request a block of ids from the controller. Source: Kafka RPCProducerIdManager."""
        self._controller.connection().send(
            AllocateProducerIdsRequest(
                broker_id=self._identity.broker_id, broker_epoch=self._identity.broker_epoch
            ),
            timeout_us=ALLOCATE_TIMEOUT_US,
            on_response=self._allocated,
        )

    def _allocated(self, outcome: AnyResponse | Disconnected | RequestTimedOut) -> None:
        """Give the coordinator the block of ids, or report that there is none.

        The coordinator's methods for producer ids return no Result, so these two inputs need not
        wait in the queue. After a refusal, the coordinator asks for a block again when the next
        client needs an id.
        """
        if isinstance(outcome, Disconnected | RequestTimedOut):
            self.coordinator.producer_ids_refused()
            return
        if not isinstance(outcome, AllocateProducerIdsResponse):
            raise SimulationError(f"AllocateProducerIds was answered by {outcome}")
        if outcome.error_code is ErrorCode.NONE:
            self.coordinator.producer_ids_allocated(
                outcome.producer_id_start, outcome.producer_id_len
            )
            return
        if outcome.error_code is ErrorCode.NOT_CONTROLLER:
            self._controller.try_next_controller()
        self._host.log(f"no producer ids: the controller answered {outcome.error_code.name}")
        self.coordinator.producer_ids_refused()
