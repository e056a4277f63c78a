"""Administrators' requests to the controller: ElectLeaders and AlterPartitionReassignments.

The functions here only decide: they read the metadata (`image`), and return a Decision with the
response and the records that change the metadata. The caller writes the records to the metadata
log. An active broker is a broker that may lead.

Source: Kafka `ReplicationControlManager.electLeaders`, `alterPartitionReassignments`.
"""

from cluster.controller.decision import Decision
from cluster.controller.election import elect_preferred_leader
from cluster.controller.metadata_image import MetadataImage, PartitionRegistration
from protocol.causes import PREFERRED_LEADER_REQUESTED
from protocol.errors import ErrorCode
from protocol.ids import BrokerId, TopicPartition
from protocol.messages.admin import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ElectionType,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ElectLeadersTopic,
    PartitionResult,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
    ReplicaElectionResult,
)
from protocol.records.metadata import PartitionChangeRecord


def elect_leaders(
    image: MetadataImage, request: ElectLeadersRequest
) -> Decision[ElectLeadersResponse]:
    """Elect the preferred leader of each partition that `request` names.

    The preferred leader is the first replica of the assignment. If `topic_partitions` is None,
    leaders of all partitions are elected. The errors of single partitions are:

    - UNKNOWN_TOPIC_OR_PARTITION.
    - ELECTION_NOT_NEEDED if the preferred replica leads already. Such partitions are left out of
      the answer if all partitions were requested.
    - PREFERRED_LEADER_NOT_AVAILABLE if the preferred replica is not in the ISR or not active.

    DEVIATION: unclean elections are refused, with UNSUPPORTED_VERSION.
    """
    if request.election_type == ElectionType.UNCLEAN:
        return Decision(ElectLeadersResponse(error_code=ErrorCode.UNSUPPORTED_VERSION))
    if request.election_type != ElectionType.PREFERRED:
        return Decision(ElectLeadersResponse(error_code=ErrorCode.INVALID_REQUEST))
    # The response is replaced at the end, when the results are known.
    decision = Decision(ElectLeadersResponse(), reason=PREFERRED_LEADER_REQUESTED)
    all_requested = request.topic_partitions is None
    topics = request.topic_partitions
    if topics is None:
        topics = tuple(
            ElectLeadersTopic(topic, tuple(range(len(partitions))))
            for topic, partitions in image.topics.items()
        )
    results = []
    # `named` is an ElectLeadersTopic: a topic's name and the indexes of its partitions.
    for topic, indexes in ((named.topic, named.partitions) for named in topics):
        answers = []
        for index in dict.fromkeys(indexes):  # an index named twice gets one answer
            error = _elect(image, TopicPartition(topic, index), decision)
            if not (all_requested and error is ErrorCode.ELECTION_NOT_NEEDED):
                answers.append(PartitionResult(partition_id=index, error_code=error))
        results.append(ReplicaElectionResult(topic=topic, partition_result=tuple(answers)))
    decision.response = ElectLeadersResponse(replica_election_results=tuple(results))
    return decision


def alter_partition_reassignments(
    image: MetadataImage, request: AlterPartitionReassignmentsRequest
) -> Decision[AlterPartitionReassignmentsResponse]:
    """Give each partition the replicas that `request` names, or refuse this for the partition.

    Here only the order of the replicas can be changed. The first replica is the preferred leader.
    The new order takes effect immediately, but changes neither the present leader nor the ISR. The
    errors of single partitions are:

    - UNKNOWN_TOPIC_OR_PARTITION.
    - INVALID_REPLICA_ASSIGNMENT for no replicas, a broker named twice, or an unknown broker.
    - NO_REASSIGNMENT_IN_PROGRESS if `replicas` is None. This asks to cancel a reassignment, and
      there never is one.

    DEVIATION: a change of the set of replicas is refused, with UNSUPPORTED_VERSION.
    """
    # The response is replaced at the end, when the results are known.
    decision = Decision(AlterPartitionReassignmentsResponse())
    topics = []
    for topic in request.topics:
        answers = []
        for target in topic.partitions:
            name = TopicPartition(topic.name, target.partition_index)
            partition = image.partition(name)
            error, message = _check_reassignment(image, partition, target)
            answers.append(
                ReassignablePartitionResponse(
                    partition_index=target.partition_index,
                    error_code=error,
                    error_message=message,
                )
            )
            # No record is needed if the replicas are in the target's order already. The test for
            # None is only for mypy: `error` is set if the partition is missing.
            if (
                error is ErrorCode.NONE
                and partition is not None
                and target.replicas != partition.replicas
            ):
                decision.records.append(
                    PartitionChangeRecord(
                        topic=name.topic, partition_id=name.partition, replicas=target.replicas
                    )
                )
        topics.append(ReassignableTopicResponse(name=topic.name, partitions=tuple(answers)))
    decision.response = AlterPartitionReassignmentsResponse(responses=tuple(topics))
    return decision


def _elect(
    image: MetadataImage, name: TopicPartition, decision: Decision[ElectLeadersResponse]
) -> ErrorCode:
    """Add the record of one election to `decision`; return NONE, or the error of a refusal."""
    partition = image.partition(name)
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if partition.leader == partition.replicas[0]:
        return ErrorCode.ELECTION_NOT_NEEDED
    record = elect_preferred_leader(name, partition, is_acceptable_leader=image.is_active)
    # None means that the preferred replica is not in the ISR, or not active.
    if record is None:
        return ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    decision.records.append(record)
    return ErrorCode.NONE


def _check_reassignment(
    image: MetadataImage, partition: PartitionRegistration | None, target: ReassignablePartition
) -> tuple[ErrorCode, str | None]:
    """Return the error and message for an invalid `target`, or NONE and no message.

    The checks are in Kafka's order.

    Source: validateManualPartitionAssignment.
    """
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no such partition"
    replicas = target.replicas
    if replicas is None:
        return ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "no reassignment is in progress"
    if not replicas:
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT, "the assignment is empty"
    if len(dict.fromkeys(replicas)) != len(replicas):  # the dict has each broker once
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT, "the assignment names a broker twice"
    unknown = [replica for replica in replicas if BrokerId(replica) not in image.brokers]
    if unknown:
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"no broker {unknown[0]} is registered"
    if sorted(replicas) != sorted(partition.replicas):
        return (
            ErrorCode.UNSUPPORTED_VERSION,
            f"only the order of the replicas {list(partition.replicas)} may change",
        )
    return ErrorCode.NONE, None
