"""The changes of ISRs that this broker, as the leader of partitions, proposes to the controller.

Only the controller changes an ISR. The leader of the partition proposes the change by the request
AlterPartition. One such request is in flight at a time. Proposals that come meanwhile go into the
next request. A proposal is sent again and again until the controller decides about it.

Source: Kafka `AlterPartitionManager`, `Partition.submitAlterPartition`.
"""

from collections.abc import Callable

from cluster.broker.channels import REQUEST_TIMEOUT_US, BrokerIdentity, ControllerChannel
from cluster.host.host import Disconnected, Host, RequestTimedOut
from partition_log.outcomes import AlterPartitionResult, IsrProposal
from partition_log.replica import Partition
from protocol.api import AnyResponse
from protocol.errors import ErrorCode, InvariantViolation, SimulationError
from protocol.ids import TopicPartition
from protocol.messages.controller import (
    AlterPartitionPartitionData,
    AlterPartitionPartitionResponse,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionTopicData,
)

RETRY_BACKOFF_US = 50_000
"""AlterPartitionManager's pause before it sends a proposal again."""


class IsrChanges:
    """The proposals that wait for the controller. `on_result` gets the result of each proposal."""

    def __init__(
        self,
        host: Host,
        channel: ControllerChannel,
        identity: BrokerIdentity,
        on_result: Callable[[Partition, IsrProposal, AlterPartitionResult], None],
    ) -> None:
        self._host = host
        self._channel = channel
        self._identity = identity
        self._on_result = on_result
        self._pending: dict[TopicPartition, tuple[Partition, IsrProposal]] = {}
        """Proposals that wait for the next request."""
        self._sent: dict[TopicPartition, tuple[Partition, IsrProposal]] = {}
        """Proposals of the request in flight."""
        self._refused: dict[TopicPartition, IsrProposal] = {}
        """For each partition, the last proposal that the controller has answered.

        Only `check_invariants` reads this dict, to find refused proposals: a refused proposal may
        stay the partition's `isr_in_flight` until newer metadata replaces it. Accepted proposals
        are in the dict, too, but the check does not need them.
        """
        self._is_busy = False
        """True while a request is in flight, and during the pause after a failed request."""

    def submit(self, partition: Partition, proposal: IsrProposal) -> None:
        """Send `proposal` with the next request, instead of an older proposal of the partition."""
        self._pending[partition.topic_partition] = (partition, proposal)
        if not self._is_busy:
            self._send()

    def check_invariants(self, partition: Partition) -> None:
        """Check that a partition's proposal is not lost: it is pending, in flight, or refused.

        A partition makes no other proposal before its present one is decided. So if the present
        proposal were lost, the ISR could never change again.

        Raises: InvariantViolation.
        """
        proposal = partition.isr_in_flight
        if proposal is None:
            return
        name = partition.topic_partition
        places = (self._pending.get(name), self._sent.get(name))
        # Each place is None or a pair of the partition and its proposal. `is` and not `==`: an
        # older proposal that happens to be equal does not count.
        if self._refused.get(name) is not proposal and not any(
            place is not None and place[1] is proposal for place in places
        ):
            raise InvariantViolation(
                "an ISR proposal waits to be sent, or for its answer",
                f"{name}: {proposal} is not waiting, and the controller did not refuse it",
            )

    def _send(self) -> None:
        """Send all pending proposals in one request."""
        self._is_busy = True
        sent, self._pending = self._pending, {}
        self._sent = sent
        by_topic: dict[str, list[AlterPartitionPartitionData]] = {}
        for name, (_, proposal) in sent.items():
            by_topic.setdefault(name.topic, []).append(proposal.data)
        request = AlterPartitionRequest(
            broker_id=self._identity.broker_id,
            broker_epoch=self._identity.broker_epoch,
            topics=tuple(
                AlterPartitionTopicData(topic_name=topic, partitions=tuple(data))
                for topic, data in by_topic.items()
            ),
        )

        def answered(outcome: AnyResponse | Disconnected | RequestTimedOut) -> None:
            self._answered(sent, outcome)

        self._channel.connection().send(
            request, timeout_us=REQUEST_TIMEOUT_US, on_response=answered
        )

    def _answered(
        self,
        sent: dict[TopicPartition, tuple[Partition, IsrProposal]],
        outcome: AnyResponse | Disconnected | RequestTimedOut,
    ) -> None:
        """Pass each answer to its partition, and send the proposals that are pending by then.

        The proposals of this request that must be sent again become pending, too.
        """
        answers: dict[TopicPartition, AlterPartitionPartitionResponse] = {}
        # The error of the whole request. NETWORK_EXCEPTION stays if no answer came.
        error = ErrorCode.NETWORK_EXCEPTION
        match outcome:
            case Disconnected() | RequestTimedOut():
                pass
            case AlterPartitionResponse():
                error = outcome.error_code
                for topic in outcome.topics:
                    for answer in topic.partitions:
                        answers[TopicPartition(topic.topic_name, answer.partition_index)] = answer
            case _:
                raise SimulationError(f"AlterPartition was answered by {outcome}")
        if error == ErrorCode.NOT_CONTROLLER:
            self._channel.try_next_controller()
        # After an error, the next request waits. Otherwise the broker would send the same proposals
        # again and again without a pause.
        must_wait = error != ErrorCode.NONE

        # A partition may make a new proposal in this loop. Since `_is_busy` is still True, the new
        # proposal becomes pending, and is sent after the loop.
        self._sent = {}
        for name, (partition, proposal) in sent.items():
            # If a partition has no answer, the whole request failed, e.g. with STALE_BROKER_EPOCH.
            result = partition.handle_alter_partition_response(
                proposal,
                answers.get(name)
                or AlterPartitionPartitionResponse(
                    partition_index=name.partition, error_code=ErrorCode.NETWORK_EXCEPTION
                ),
                now_us=self._host.now_us(),
            )
            if name in answers:
                self._refused[name] = proposal
            if result.retry:
                must_wait = True
                # `setdefault` keeps a newer proposal of the partition, if there is one.
                self._pending.setdefault(name, (partition, proposal))
            self._on_result(partition, proposal, result)
        if must_wait:
            self._host.after(RETRY_BACKOFF_US, self._send_pending)
        else:
            self._send_pending()

    def _send_pending(self) -> None:
        """End the request or the pause; send what has become pending meanwhile."""
        self._is_busy = False
        if self._pending:
            self._send()
