"""Real clients produce and consume while faults are injected into their cluster.

The clients are programs in `clients/`. A family of clients is one client library, such as
librdkafka. A producer writes the records `writer:0`, `writer:1` and so on. The producer is
idempotent: each batch has the producer's id, the producer's epoch and a sequence number, by which a
broker recognizes a batch that was sent twice. Two consumers read the records. Meanwhile three
faults follow each other: the group's coordinator crashes, the leader of a partition moves, and the
controller crashes and comes back. At the end, these must hold:

- Every acknowledged record can be read where the acknowledgement says.
- No two records of a partition have the same producer id, producer epoch and sequence number.
- Every record is stored once. Clients of RENUMBERING_FAMILIES are an exception.
"""

import itertools
import json
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from cluster.storage.compression import CODECS
from cluster.storage.log_file import parse_log
from protocol.records.batch import fields_of
from tests.support.harness.client_programs import ClientProgram, client_programs, wait_until
from tests.support.harness.command_line import CommandLine

TOPIC, GROUP, PARTITIONS = "orders", "payments", 4
RATE = 150
"""The number of records that the producer sends in a second, until all faults are over."""
CLUSTER = (
    *("--topic", f"{TOPIC}:{PARTITIONS}", "--no-analyze", "--no-report"),
    *("--var", "cluster.config.group.initial.rebalance.delay.ms=0"),
    *("--var", "cluster.config.offsets.topic.num.partitions=4"),
    *("--var", "cluster.config.broker.session.timeout.ms=1500"),
    *("--var", "cluster.config.broker.heartbeat.interval.ms=300"),
    # With this setting an acknowledged record survives the crash of one broker.
    *("--var", f"topics.{TOPIC}.config.min.insync.replicas=2"),
)
"""Arguments of the command `up`. The timeouts are short, so that a failover is quick."""
# Family -> the options that make the producer of this family idempotent.
IDEMPOTENCE = {
    "librdkafka": ("--set", "enable.idempotence=true"),
    "kafka-python": ("--set", "enable_idempotence=true"),
    "java": ("--set", "enable.idempotence=true"),
}
RENUMBERING_FAMILIES = ("librdkafka",)
"""Families whose idempotent producer may store a record again, with a newer producer epoch.

This is how librdkafka 2.16 stores a record twice, in a cluster of Kafka 3.9.1 as well as in ours:

1. A broker leads two partitions, and a follower is slow. The broker appends batch 20 of one
   partition, and waits for the follower.
2. The partition's leader moves away. Batch 20 stays in the log, and is answered with
   NOT_LEADER_OR_FOLLOWER (Kafka DelayedProduce). So librdkafka assumes that batch 20 is not stored.
   Batch 21 gets the same answer, and is not appended.
3. Two more batches wait on the connection: one of the other partition, then batch 22 of the first
   partition.
4. The leader moves back before the broker reads batch 22. Batch 21 is missing, so the answer is
   OUT_OF_ORDER_SEQUENCE_NUMBER.
5. librdkafka gets a newer producer epoch and sends the batches 20 to 22 again, from sequence 0.
   Batch 20 is stored a second time.

Source: librdkafka issue 4953, which reports the duplicates, but does not know the cause of step 4.
"""
FAULTS = (
    ("crash", "--duration", "1s", "--wait", "--coordinator-of", GROUP),
    ("leadership_move", f"leader-of({TOPIC}-0)"),
    ("crash", "controller", "--duration", "1s", "--wait"),
)
"""Arguments of the command `inject`, for each of the three faults."""


def survive_faults(family: str, bootstrap: str, command_line: CommandLine) -> None:
    """Run clients of one family while FAULTS are injected, and then check what they have read."""
    with client_programs(family, bootstrap) as programs:
        consumers = [
            programs.start("consume", TOPIC, f"reader-{index}", "--group", GROUP)
            for index in range(2)
        ]
        wait_until(
            lambda: _share_the_partitions(consumers), "two members share the partitions", *consumers
        )

        # With `--count 0` the producer sends until it is stopped.
        producer = programs.start(
            *("produce", TOPIC, "writer"),
            *("--count", "0", "--rate", str(RATE), *IDEMPOTENCE[family]),
        )
        # Wait until the records of half a second are acknowledged.
        wait_until(lambda: len(producer.acknowledged()) > RATE // 2, "records flow", producer)
        for fault in FAULTS:
            # The next fault may move a leadership to a broker that has crashed. The cluster refuses
            # this move until the broker is in sync again.
            wait_until(lambda: _are_in_sync(command_line), "every replica is in sync", producer)
            ordered = command_line.run("inject", *fault)
            assert ordered.returncode == 0, ordered.stdout + ordered.stderr

        # After the last fault the producer must go on: wait for the records of another second.
        enough = len(producer.acknowledged()) + RATE
        wait_until(lambda: len(producer.acknowledged()) > enough, "records flow", producer)
        assert producer.stop(timeout_s=90.0) == 0, producer.story()
        acknowledged = producer.acknowledged()
        # Every record that was sent must be acknowledged.
        assert sorted(acknowledged) == list(range(producer.events("produced")[0]["sent"]))

        wait_until(
            lambda: len(set(_values(consumers))) >= len(acknowledged),
            "every record is read",
            producer,
            *consumers,
        )
        _check_what_is_read(acknowledged, consumers)
        _check_what_is_stored(family, command_line.folder)
        status = json.loads(command_line.run("status", "--json").stdout)
        assert [group["group"] for group in status["groups"]] == [GROUP]
        for consumer in consumers:
            assert consumer.stop() == 0, consumer.story()
            assert consumer.events("closed"), consumer.story()
        assert any(consumer.events("committed") for consumer in consumers)


def _share_the_partitions(consumers: list[ClientProgram]) -> bool:
    """Return True if each partition has one owner, and each consumer owns a partition."""
    owned = [consumer.owned() for consumer in consumers]
    each_has_one_owner = sorted(itertools.chain(*owned)) == list(range(PARTITIONS))
    return each_has_one_owner and all(owned)


def _are_in_sync(command_line: CommandLine) -> bool:
    """Return True if all replicas of all partitions are in sync."""
    status = json.loads(command_line.run("status", "--json", "--partitions").stdout)
    return all(
        set(partition["isr"]) == set(partition["replicas"]) for partition in status["partitions"]
    )


def _values(consumers: list[ClientProgram]) -> list[str]:
    """Return the value of every record that the consumers have read."""
    return [value for consumer in consumers for value in consumer.consumed().values()]


def _check_what_is_read(
    acknowledged: dict[int, tuple[int, int] | None], consumers: list[ClientProgram]
) -> None:
    """Check that each acknowledged record was read.

    If the acknowledgement names a partition and an offset, the record must have been read there.
    """
    # (partition, offset) -> the value that was read there.
    value_at: dict[tuple[int, int], str] = {}
    for consumer in consumers:
        for place, value in consumer.consumed().items():
            # Around a rebalance a record may be read twice, but it must be the same both times.
            assert value_at.setdefault(place, value) == value
    values = set(value_at.values())
    for number, acknowledged_place in acknowledged.items():
        value = f"writer:{number}"
        assert value in values
        assert acknowledged_place is None or value_at[acknowledged_place] == value


class StoredRecord(NamedTuple):
    """A record on the disk of a broker, with the numbers that its producer has given it."""

    partition: int
    value: bytes
    producer_id: int
    producer_epoch: int
    sequence: int


def _check_what_is_stored(family: str, folder: Path) -> None:
    """Check that no record is stored twice, except by RENUMBERING_FAMILIES.

    For all families, no two records of a partition may have the same producer id, producer epoch
    and sequence number.
    """
    records = _stored_records(folder)
    # Without their values, two records differ only if their partitions or the numbers of their
    # producers differ.
    numbers = Counter(record._replace(value=b"") for record in records)
    assert max(numbers.values()) == 1, numbers.most_common(3)
    copies: dict[bytes, list[StoredRecord]] = {}
    for record in records:
        copies.setdefault(record.value, []).append(record)
    duplicates = [same_value for same_value in copies.values() if len(same_value) > 1]
    if family not in RENUMBERING_FAMILIES:
        assert not duplicates, duplicates[0]
    for same_value in duplicates:
        assert len({record.partition for record in same_value}) == 1, same_value
        # All copies must have different producer epochs; RENUMBERING_FAMILIES says why.
        epochs = {record.producer_epoch for record in same_value}
        assert len(epochs) == len(same_value), same_value


def _stored_records(folder: Path) -> list[StoredRecord]:
    """Return the records of TOPIC that are on the disks.

    Each partition is read from the replica with the longest log.
    """
    records: list[StoredRecord] = []
    for partition in range(PARTITIONS):
        logs = folder.glob(f"runs/*/*/disks/broker-*/{TOPIC}-{partition}.log")
        content = max((log.read_bytes() for log in logs), key=len)
        for batch in parse_log(content).batches:
            for index, (_, value, _) in enumerate(fields_of(batch, CODECS)):
                records.append(
                    StoredRecord(
                        partition,
                        value or b"",
                        batch.producer_id,
                        batch.producer_epoch,
                        batch.base_sequence + index,
                    )
                )
    return records


def bootstrap_in(line_of_up: str) -> str:
    """Return the bootstrap servers from a line that the command `up` has printed."""
    return line_of_up.partition("bootstrap servers: ")[2].split()[0]


def java_is_built(classes: Path) -> bool:
    """Return True if the Java program was built."""
    return (classes / "LabClient.class").exists()
