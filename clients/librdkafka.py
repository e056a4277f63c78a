"""The program with the library librdkafka: `python clients/librdkafka.py consume|produce ...`.

librdkafka is written in C; confluent-kafka is its package for Python. `--set` takes librdkafka's
settings, such as `session.timeout.ms=10000`. They replace the settings that this program makes. The
library calls the callbacks of a program, such as `on_assign`, only while the program calls the
library, for example in `poll`.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

# The program is run as a file, from any folder, so Python would not find the package `clients`.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from confluent_kafka import Consumer as LibraryConsumer
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition, libversion
from confluent_kafka import Producer as LibraryProducer

from clients.program import (
    Client,
    Consumer,
    DeliveryReports,
    Options,
    Ownership,
    Producer,
    ReadRecord,
    main,
)

NO_OFFSET = KafkaError._NO_OFFSET
"""The error of a commit when there is nothing to commit.

The underscore is part of the documented name. It does not mean that the name is private.
"""
MAX_POLL_RECORDS = 500
"""Maximum number of records that one poll returns.

This is Kafka's default of max.poll.records, a setting that librdkafka does not have.
"""


class Librdkafka(Client):
    """The library librdkafka."""

    name = "librdkafka"

    def version(self) -> str:
        """Return the version of librdkafka."""
        return str(libversion()[0])

    def consumer(self, options: Options, ownership: Ownership) -> Consumer:
        """Return a member that has subscribed."""
        return _Member(options, ownership)

    def producer(self, options: Options, reports: DeliveryReports) -> Producer:
        """Return a producer."""
        return _Writer(options, reports)


class _Member(Consumer):
    """A member of a group, with the library's Consumer."""

    def __init__(self, options: Options, ownership: Ownership) -> None:
        self._ownership = ownership
        self._consumer = LibraryConsumer(
            {
                "bootstrap.servers": options.bootstrap,
                "client.id": options.name,
                "group.id": options.group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **options.settings,
            }
        )
        self._consumer.subscribe(
            [options.topic],
            on_assign=self._assigned,
            on_revoke=self._revoked,
            on_lost=self._lost,
        )

    def poll(self, timeout_s: float) -> Sequence[ReadRecord]:
        records = []
        for message in self._consumer.consume(MAX_POLL_RECORDS, timeout_s):
            error = message.error()
            if error is not None:
                raise KafkaException(error)
            records.append(
                ReadRecord(
                    partition=message.partition(),
                    offset=message.offset(),
                    # A record may have no value. `produce --value-bytes` pads values with blanks.
                    value=(message.value() or b"").decode().rstrip(),
                )
            )
        return records

    def commit(self) -> None:
        try:
            self._consumer.commit(asynchronous=False)
        except KafkaException as error:
            # It is no failure if no position has changed since the last commit.
            if error.args[0].code() != NO_OFFSET:
                raise

    def close(self) -> None:
        self._consumer.close()

    def _assigned(self, _consumer: LibraryConsumer, partitions: list[TopicPartition]) -> None:
        self._ownership.assigned(partition.partition for partition in partitions)

    def _revoked(self, _consumer: LibraryConsumer, partitions: list[TopicPartition]) -> None:
        self._ownership.revoked(partition.partition for partition in partitions)

    def _lost(self, _consumer: LibraryConsumer, partitions: list[TopicPartition]) -> None:
        self._ownership.revoked((partition.partition for partition in partitions), lost=True)


class _Writer(Producer):
    """A producer, with the library's Producer."""

    def __init__(self, options: Options, reports: DeliveryReports) -> None:
        self._topic = options.topic
        self._reports = reports
        self._producer = LibraryProducer(
            {
                "bootstrap.servers": options.bootstrap,
                "client.id": options.name,
                "acks": "all",
                **options.settings,
            }
        )

    def send(self, number: int, key: bytes, value: bytes) -> None:
        def on_delivery(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self._reports.refused(number, error)
            else:
                self._reports.acknowledged(number, message.partition(), message.offset())

        is_queued = False
        while not is_queued:
            try:
                self._producer.produce(self._topic, value, key, on_delivery=on_delivery)
                is_queued = True
            except BufferError:
                # The queue of the library is full. Wait a moment for answers of brokers: each
                # answer makes room for a record.
                self._producer.poll(0.05)
        # Handle the answers that have come meanwhile, without waiting for more.
        self._producer.poll(0)

    def work(self, timeout_s: float) -> None:
        self._producer.poll(timeout_s)

    def finish(self, timeout_s: float) -> None:
        self._producer.flush(timeout_s)


if __name__ == "__main__":
    sys.exit(main(Librdkafka()))
