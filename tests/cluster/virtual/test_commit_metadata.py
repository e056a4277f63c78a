"""The check that finds a coordinator which accepts or refuses the wrong metadata of a commit.

A commit may have a text for each offset, its metadata. A coordinator must refuse a text that is
longer than offset.metadata.max.bytes, which is 4 here, and no other. As in Kafka the limit counts
UTF-16 units, although its name says bytes. The check sees requests and their answers.
"""

import pytest

from cluster.virtual.checks.coordinator_checks import check_metadata
from protocol.errors import ErrorCode, InvariantViolation
from protocol.messages.offset import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

NONE, TOO_LARGE = ErrorCode.NONE, ErrorCode.OFFSET_METADATA_TOO_LARGE
MAX_LENGTH = 4
"""offset.metadata.max.bytes"""
FOUR_UNITS = "\U0001f600" * 2
"""Two characters of two UTF-16 units each; as UTF-8 they are 8 bytes."""


def commit(*metadata: str | None) -> OffsetCommitRequest:
    """Return a commit that has the partition orders-0 once for each text."""
    partitions = tuple(
        OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata=text)
        for text in metadata
    )
    topic = OffsetCommitRequestTopic(name="orders", partitions=partitions)
    return OffsetCommitRequest(group_id="g", topics=(topic,))


def answer(error: ErrorCode) -> OffsetCommitResponse:
    """Return an answer with this error for orders-0."""
    partition = OffsetCommitResponsePartition(partition_index=0, error_code=error)
    return OffsetCommitResponse(
        topics=(OffsetCommitResponseTopic(name="orders", partitions=(partition,)),)
    )


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (commit(None), NONE),
        (commit("1234"), NONE),
        (commit(FOUR_UNITS), NONE),
        (commit("12345"), TOO_LARGE),
        (commit("12345", "1234"), NONE),  # the last entry of a partition counts
        # A commit may be refused for another reason. Then its metadata do not matter.
        (commit("1234"), ErrorCode.NOT_COORDINATOR),
        (commit("12345"), ErrorCode.NOT_COORDINATOR),
    ],
)
def test_answer_by_the_length_of_the_metadata_is_accepted(
    request_: OffsetCommitRequest, error: ErrorCode
) -> None:
    """The check does not raise at a right answer."""
    check_metadata(request_, answer(error), MAX_LENGTH)


@pytest.mark.parametrize(
    ("request_", "error", "length"),
    [
        (commit("12345"), NONE, 5),
        (commit("1234", "12345"), NONE, 5),  # the last entry counts
        (commit("1234"), TOO_LARGE, 4),
        (commit(FOUR_UNITS), TOO_LARGE, 4),
    ],
)
def test_answer_against_the_length_of_the_metadata_is_a_violation(
    request_: OffsetCommitRequest, error: ErrorCode, length: int
) -> None:
    """The message of the violation names the length of the metadata and the wrong answer."""
    with pytest.raises(
        InvariantViolation,
        match=rf"orders-0 of g: metadata of {length} UTF-16 units .*{error.name}",
    ):
        check_metadata(request_, answer(error), MAX_LENGTH)
