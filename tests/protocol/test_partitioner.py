"""The partition of `__consumer_offsets` to which a group belongs.

The number of this partition follows from the id of the group: the hash of the id as a Java String,
made positive by Kafka's own `abs`, modulo the number of partitions (docs/kafka/BEHAVIOUR.md 2.1).
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.partitioner import java_string_hash, kafka_abs, partition_for

# The columns are the group id, its hash in Java, and its partition among 50, 5 and 3 partitions.
# -2147483648 is Java's smallest int, which has no positive counterpart.
VECTORS = [
    ("", 0, 0, 0, 0),
    ("a", 97, 47, 2, 1),
    ("group", 98629247, 47, 2, 2),
    ("group-1", 293427299, 49, 4, 2),
    ("my-group", -1906497762, 12, 2, 0),
    ("test-group", 627841412, 12, 2, 2),
    ("groupId", 293428218, 18, 3, 0),
    ("console-consumer-12345", 158455506, 6, 1, 0),
    ("orders-service", 23943117, 17, 2, 0),
    ("polygenelubricants", -2147483648, 0, 0, 0),
    ("DESIGNING WORKHOUSES", -2147483648, 0, 0, 0),
    ("消费组", 28099635, 35, 0, 0),
    ("😀grp", 1276929186, 36, 1, 0),
]


@pytest.mark.parametrize(("group_id", "hashed", "of_50", "of_5", "of_3"), VECTORS)
def test_partition_for_known_group_ids_equals_kafkas(
    group_id: str, hashed: int, of_50: int, of_5: int, of_3: int
) -> None:
    """With a wrong partition the members of the group would ask the wrong broker."""
    assert java_string_hash(group_id) == hashed
    assert partition_for(group_id, 50) == of_50
    assert partition_for(group_id, 5) == of_5
    assert partition_for(group_id, 3) == of_3


def test_kafka_abs_of_the_smallest_int_is_zero() -> None:
    """Kafka's Utils.abs(-2^31) is 0. Java's Math.abs and a bit mask give other results."""
    assert kafka_abs(-(2**31)) == 0
    assert kafka_abs(-7) == 7


@given(st.text(), st.integers(1, 200))
def test_partition_for_any_text_lies_in_the_topic(group_id: str, partitions: int) -> None:
    """The texts include unpaired surrogates, because a Java string may have them."""
    assert 0 <= partition_for(group_id, partitions) < partitions
