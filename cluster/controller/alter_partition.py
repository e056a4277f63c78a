"""AlterPartition: a leader proposes a new ISR; the controller accepts or refuses it.

The request names the leader epoch and the partition epoch on which the leader has based its
proposal. (The partition epoch grows with each change of the partition.) If the metadata (`image`)
has other epochs, the proposal is refused. The answers, and the records for the metadata log, are
returned as a Decision.

The checks are in Kafka's order. The error NEW_LEADER_ELECTED does not occur: Kafka returns it only
at the end of a reassignment, and there are no reassignments here.

Source: Kafka `ReplicationControlManager.alterPartition` and `validateAlterPartitionData`.
"""

from cluster.controller.decision import Decision
from cluster.controller.metadata_image import MetadataImage, PartitionRegistration
from protocol.errors import ErrorCode
from protocol.ids import BrokerId, TopicPartition
from protocol.messages.controller import (
    AlterPartitionPartitionData,
    AlterPartitionPartitionResponse,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionTopicResponse,
    IsrBrokerState,
)
from protocol.records.metadata import PartitionChangeRecord


def alter_partition(
    image: MetadataImage, request: AlterPartitionRequest
) -> Decision[AlterPartitionResponse]:
    """Decide on each ISR that the broker `request.broker_id` proposes as the leader.

    The answer to an accepted proposal has the partition's new state. A proposal equal to the
    current ISR is accepted without a record.
    """
    broker = image.brokers.get(BrokerId(request.broker_id))
    if broker is None or broker.broker_epoch != request.broker_epoch:
        return Decision(AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH))
    # The response is replaced at the end, when the results are known.
    decision = Decision(AlterPartitionResponse(), reason="altered by the leader")
    topics = []
    for topic in request.topics:
        answers = []
        for data in topic.partitions:
            name = TopicPartition(topic.topic_name, data.partition_index)
            partition = image.partition(name)
            error = _check(image, broker.broker_id, partition, data)
            # The test for None is only for mypy: `error` is set if the partition is missing.
            if partition is None or error != ErrorCode.NONE:
                answers.append(
                    AlterPartitionPartitionResponse(
                        partition_index=data.partition_index, error_code=error
                    )
                )
                continue

            new_isr = tuple(BrokerId(state.broker_id) for state in data.new_isr_with_epochs)
            changes = new_isr != partition.isr
            if changes:
                decision.records.append(
                    PartitionChangeRecord(
                        topic=name.topic, partition_id=name.partition, isr=new_isr
                    )
                )
            answers.append(
                AlterPartitionPartitionResponse(
                    partition_index=data.partition_index,
                    leader_id=partition.leader,
                    leader_epoch=partition.leader_epoch,
                    isr=new_isr,
                    # If there is a record, applying it to the metadata will add 1 to the epoch.
                    # (The bool `changes` counts as 0 or 1.)
                    partition_epoch=partition.partition_epoch + changes,
                )
            )
        topics.append(
            AlterPartitionTopicResponse(topic_name=topic.topic_name, partitions=tuple(answers))
        )
    decision.response = AlterPartitionResponse(topics=tuple(topics))
    return decision


def _check(
    image: MetadataImage,
    leader_id: BrokerId,
    partition: PartitionRegistration | None,
    data: AlterPartitionPartitionData,
) -> ErrorCode:
    """Return the error of an invalid proposal, NONE otherwise."""
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if (
        data.leader_epoch > partition.leader_epoch
        or data.partition_epoch > partition.partition_epoch
    ):
        # Only a controller increases epochs. So the leader got its epochs from a newer controller.
        return ErrorCode.NOT_CONTROLLER
    if data.leader_epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if leader_id != partition.leader:
        return ErrorCode.INVALID_REQUEST
    if data.partition_epoch < partition.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    # An ISR contains its leader, has no broker twice, and consists of replicas of the partition.
    new_isr = [BrokerId(state.broker_id) for state in data.new_isr_with_epochs]
    is_valid_isr = (
        leader_id in new_isr
        and len(new_isr) == len(dict.fromkeys(new_isr))  # the dict has each broker once
        and all(member in partition.replicas for member in new_isr)
    )
    if not is_valid_isr:
        return ErrorCode.INVALID_REQUEST
    if not all(_is_eligible(image, state) for state in data.new_isr_with_epochs):
        return ErrorCode.INELIGIBLE_REPLICA
    return ErrorCode.NONE


def _is_eligible(image: MetadataImage, state: IsrBrokerState) -> bool:
    """Return True if a proposed member is active, and has not restarted since its last fetches.

    A broker gets a new broker epoch when it restarts. The leader sends the epoch that was in the
    member's last fetches. If the leader does not know this epoch, it sends -1, which is always
    accepted.
    """
    broker_id = BrokerId(state.broker_id)
    if not image.is_active(broker_id):
        return False
    return state.broker_epoch in (-1, image.brokers[broker_id].broker_epoch)
