"""The controller's node: runs a ControllerCore on a Host and carries out its Results.

The core is a pure state machine. It gets a request or a timer, and returns a Result: the replies to
send, the timers to set and the trace rows to write.
"""

from collections.abc import Callable

from cluster.controller.controller_metrics import COUNTED_CONTROLLER_EVENTS, ControllerMetrics
from cluster.controller.core import ControllerCore
from cluster.controller.metadata_image import MetadataImage
from cluster.controller.quorum_state import begin_controller_epoch
from cluster.host.host import Host
from cluster.host.incoming_request import IncomingRequest
from cluster.host.keyed_timers import KeyedTimers
from cluster.host.unanswered import check_unanswered
from cluster.runtime import ClusterStatus, PartitionStatus
from cluster.spec import ClusterSpec, ControllerSpec
from cluster.storage.recovery_report import report_recoveries
from partition_log.log import PartitionLog
from protocol.effects import Result
from protocol.errors import SimulationError
from protocol.ids import METADATA_PARTITION, BrokerId, TopicPartition


class ControllerNode:
    """A controller, from one start to the next stop or kill."""

    def __init__(self, host: Host, cluster: ClusterSpec, spec: ControllerSpec) -> None:
        self._host = host
        controller_id = BrokerId(spec.node_id)
        log = PartitionLog(METADATA_PARTITION, host.storage.log(METADATA_PARTITION))
        self._core = ControllerCore(
            controller_id=controller_id,
            cluster=cluster,
            log=log,
            controller_epoch=begin_controller_epoch(host.storage, log, controller_id),
        )
        self._timers = KeyedTimers(host, self._timer_fired)
        self._metrics = ControllerMetrics(
            host, self._core.image, interval_us=cluster.metrics_interval_us
        )
        self._partitions: dict[TopicPartition, PartitionStatus] = {}
        """All partitions, as they were when the metadata ended at offset `_partitions_as_of`."""
        # -1 is below every offset, so the first report builds `_partitions`.
        self._partitions_as_of = -1

    def start(self) -> None:
        """Replay the metadata log and begin to serve."""
        report_recoveries(self._host)
        self._carry_out(self._core.start(self._host.now_us()))
        self._host.log(f"active controller in epoch {self._core.controller_epoch}")
        # Requests come only now, because their answers need the whole log.
        self._host.serve(self._handle)
        self._metrics.start()

    def shut_down(self, on_done: Callable[[], None]) -> None:
        """Stop immediately, because a controller has no leaderships to move."""
        on_done()

    def report(self, status: ClusterStatus) -> None:
        """Write the partitions and the fenced state of each broker into `status`."""
        status.controller = self._host.name
        image = self._core.image
        for broker in image.brokers.values():
            status.brokers_fenced[broker.broker_id] = broker.fenced
        # The partitions are built only after a change, because a run queries the status several
        # times a second, and the metadata rarely changes.
        if self._partitions_as_of != image.end_offset:
            self._partitions_as_of = image.end_offset
            self._partitions = {
                name: PartitionStatus(
                    leader=partition.leader,
                    leader_epoch=partition.leader_epoch,
                    replicas=partition.replicas,
                    isr=partition.isr,
                )
                for name, partition in image.partitions()
            }
        status.partitions.update(self._partitions)

    def check_invariants(self, *, thoroughly: bool = False) -> None:
        """Check invariants between two events. With `thoroughly`, the log is read, too.

        Raises: InvariantViolation.
        """
        self._core.check_invariants(thoroughly=thoroughly)
        check_unanswered(self._host, self._core.waiting())

    @property
    def image(self) -> MetadataImage:
        """The controller's metadata. Callers must not change it."""
        return self._core.image

    def _handle(self, request: IncomingRequest) -> None:
        self._carry_out(
            self._core.handle(request.request_id, request.envelope, self._host.now_us())
        )

    def _timer_fired(self, key: str) -> None:
        self._carry_out(self._core.timer_fired(key, self._host.now_us()))

    def _carry_out(self, result: Result) -> None:
        """Carry out the effects in a Result of the core; rows and timers come before replies."""
        host = self._host
        for event in result.trace:
            host.trace(event)
            if event.kind in COUNTED_CONTROLLER_EVENTS:
                self._metrics.observe(event)
        self._timers.apply(result.timers)
        if result.appends or result.sends:
            raise SimulationError("a controller writes its own log and sends nothing by itself")
        for reply in result.replies:
            host.reply(reply.request_id, reply.response)
