"""The partition of `__consumer_offsets` that has a group: Kafka takes Java's hash of the group id.

For example, "group-1" has the hash 293427299. If there are 50 partitions, this group is in
partition 49.

Source: Kafka `GroupMetadataManager.partitionFor`, `Utils.abs`, `java.lang.String.hashCode`.
"""


def java_string_hash(text: str) -> int:
    """Return Java's `String.hashCode`: over UTF-16 code units, signed 32 bits.

    The result is in [-2**31, 2**31 - 1].
    """
    # Each UTF-16 unit is two bytes, the high byte first. A Java int overflows, so the hash is
    # computed modulo 2**32. The last line makes the result signed.
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for index in range(0, len(units), 2):
        value = (31 * value + (units[index] << 8 | units[index + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def kafka_abs(value: int) -> int:
    """Return |value|, but 0 for -2**31, because a Java int cannot hold 2**31 (`Utils.abs`)."""
    return 0 if value == -(1 << 31) else abs(value)


def partition_for(group_id: str, num_partitions: int) -> int:
    """Return the index of a group's partition among `num_partitions`."""
    return kafka_abs(java_string_hash(group_id)) % num_partitions
