"""The client program of kafka-python: `python clients/kafka_python.py consume|produce ...`.

Settings (`--set`) have kafka-python's names, with dots or with underscores: `session.timeout.ms` is
the same as `session_timeout_ms`. Settings of the command line override the defaults that this
program sets. Two objects of `clients.program` write the events: `Ownership` writes changes of the
assigned partitions, `Acknowledged` the brokers' answers to sent records.
"""

import sys
import time
from collections.abc import Sequence
from pathlib import Path

# The program is run as a file, from any folder, so Python would not find the package `clients`.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import kafka
from kafka import ConsumerRebalanceListener, KafkaConsumer, KafkaProducer

from clients.program import (
    Acknowledged,
    Client,
    Consumer,
    Options,
    Ownership,
    Producer,
    ReadRecord,
    main,
)


class KafkaPython(Client):
    """The client family of the library kafka-python."""

    name = "kafka-python"

    def version(self) -> str:
        """Return kafka-python's version."""
        return str(kafka.__version__)

    def consumer(self, options: Options, ownership: Ownership) -> Consumer:
        """Return a member that has subscribed."""
        return _Member(options, ownership)

    def producer(self, options: Options, acknowledged: Acknowledged) -> Producer:
        """Return a producer."""
        return _Writer(options, acknowledged)


def _settings(options: Options) -> dict[str, object]:
    """Return the client's settings as kafka-python takes them.

    The texts of numbers and truth values are converted to int and bool.
    """
    settings: dict[str, object] = {}
    for key, text in options.settings.items():
        name = key.replace(".", "_")
        if text in ("true", "false"):
            settings[name] = text == "true"
        else:
            settings[name] = int(text) if text.lstrip("-").isdigit() else text
    # The value of `acks` must be the text "all", or a number. Another value is a mistake in the
    # command line; `int` raises an error for it.
    if "acks" in settings and settings["acks"] != "all":
        settings["acks"] = int(str(settings["acks"]))
    return settings


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # the library has no types
    """Passes changes of the member's partitions on to `Ownership`."""

    def __init__(self, ownership: Ownership) -> None:
        self._ownership = ownership

    def on_partitions_assigned(self, assigned: Sequence[kafka.TopicPartition]) -> None:
        self._ownership.assigned(partition.partition for partition in assigned)

    def on_partitions_revoked(self, revoked: Sequence[kafka.TopicPartition]) -> None:
        self._ownership.revoked(partition.partition for partition in revoked)


class _Member(Consumer):
    """A member of a group, with kafka-python's KafkaConsumer."""

    def __init__(self, options: Options, ownership: Ownership) -> None:
        self._consumer = KafkaConsumer(
            bootstrap_servers=options.bootstrap.split(","),
            client_id=options.name,
            group_id=options.group,
            **{
                "auto_offset_reset": "earliest",
                "enable_auto_commit": False,
                **_settings(options),
            },
        )
        self._consumer.subscribe([options.topic], listener=_Listener(ownership))

    def poll(self, timeout_s: float) -> Sequence[ReadRecord]:
        by_partition = self._consumer.poll(timeout_ms=round(timeout_s * 1_000))
        return [
            ReadRecord(
                partition=record.partition,
                offset=record.offset,
                # `rstrip` removes the blanks with which `produce --value-bytes` pads values.
                # Records of other producers may have no value.
                value=(record.value or b"").decode().rstrip(),
            )
            for records in by_partition.values()
            for record in records
        ]

    def commit(self) -> None:
        self._consumer.commit()

    def close(self) -> None:
        # `program` has made the last commit already, if the options want commits.
        self._consumer.close(autocommit=False)


class _Writer(Producer):
    """A producer, with kafka-python's KafkaProducer."""

    def __init__(self, options: Options, acknowledged: Acknowledged) -> None:
        self._topic = options.topic
        self._acknowledged = acknowledged
        self._producer = KafkaProducer(
            bootstrap_servers=options.bootstrap.split(","),
            client_id=options.name,
            **{"acks": "all", **_settings(options)},
        )

    def send(self, number: int, key: bytes, value: bytes) -> None:
        future = self._producer.send(self._topic, value=value, key=key)
        future.add_callback(
            lambda stored: self._acknowledged.stored(number, stored.partition, stored.offset)
        )
        future.add_errback(lambda error: self._acknowledged.lost(number, repr(error)))

    def work(self, timeout_s: float) -> None:
        # The library handles answers in a thread of its own, so there is nothing to do here.
        time.sleep(timeout_s)

    def finish(self, timeout_s: float) -> None:
        self._producer.flush(timeout=timeout_s)
        self._producer.close(timeout=timeout_s)


if __name__ == "__main__":
    sys.exit(main(KafkaPython()))
