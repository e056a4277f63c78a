"""The program with the library kafka-python: `python clients/kafka_python.py consume|produce ...`.

`--set` takes kafka-python's settings, such as `session_timeout_ms=10000`, and also their names in
Kafka, such as `session.timeout.ms=10000`. They replace the settings that this program makes.
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
    Client,
    Consumer,
    DeliveryReports,
    Options,
    Ownership,
    Producer,
    ReadRecord,
    main,
)


class KafkaPython(Client):
    """The library kafka-python."""

    name = "kafka-python"

    def version(self) -> str:
        """Return the version of kafka-python."""
        return str(kafka.__version__)

    def consumer(self, options: Options, ownership: Ownership) -> Consumer:
        """Return a member that has subscribed."""
        return _Member(options, ownership)

    def producer(self, options: Options, reports: DeliveryReports) -> Producer:
        """Return a producer."""
        return _Writer(options, reports)


def _settings(options: Options) -> dict[str, object]:
    """Return the settings of the command line as keyword arguments for kafka-python.

    For example `{"session_timeout_ms": 10000, "enable_auto_commit": False}`.
    """
    settings: dict[str, object] = {}
    # The values on the command line are text, but kafka-python needs a bool or int for some.
    for key, text in options.settings.items():
        name = key.replace(".", "_")
        if text in ("true", "false"):
            settings[name] = text == "true"
        else:
            settings[name] = int(text) if text.lstrip("-").isdigit() else text
    # `acks` must be "all" or a number. For anything else `int` raises an error.
    if "acks" in settings and settings["acks"] != "all":
        settings["acks"] = int(str(settings["acks"]))
    return settings


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # the library has no types
    """Tells the member's Ownership which partitions are assigned or revoked."""

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
        records_by_partition = self._consumer.poll(timeout_ms=round(timeout_s * 1_000))
        return [
            ReadRecord(
                partition=record.partition,
                offset=record.offset,
                # A record may have no value. `produce --value-bytes` pads values with blanks.
                value=(record.value or b"").decode().rstrip(),
            )
            for records in records_by_partition.values()
            for record in records
        ]

    def commit(self) -> None:
        self._consumer.commit()

    def close(self) -> None:
        # If there was anything to commit, `program` has committed it before.
        self._consumer.close(autocommit=False)


class _Writer(Producer):
    """A producer, with kafka-python's KafkaProducer."""

    def __init__(self, options: Options, reports: DeliveryReports) -> None:
        self._topic = options.topic
        self._reports = reports
        self._producer = KafkaProducer(
            bootstrap_servers=options.bootstrap.split(","),
            client_id=options.name,
            **{"acks": "all", **_settings(options)},
        )

    def send(self, number: int, key: bytes, value: bytes) -> None:
        future = self._producer.send(self._topic, value=value, key=key)
        future.add_callback(
            lambda stored: self._reports.acknowledged(number, stored.partition, stored.offset)
        )
        future.add_errback(lambda error: self._reports.refused(number, repr(error)))

    def work(self, timeout_s: float) -> None:
        # The library handles answers in a thread of its own. There is nothing to do but to wait.
        time.sleep(timeout_s)

    def finish(self, timeout_s: float) -> None:
        self._producer.flush(timeout=timeout_s)
        self._producer.close(timeout=timeout_s)


if __name__ == "__main__":
    sys.exit(main(KafkaPython()))
