"""The frame of a client program: its command line, its events, and its two loops.

A client family is one Kafka client library. Its program implements `Consumer` and `Producer` with
a few calls of the library. Every event is written here, so all families write the same events. The
command `consume` runs a member of a group. The member commits its positions: it has the broker
store, for each partition, the offset of the next record to read. The command `produce` runs a
producer of numbered records. Names with the suffix _s are durations, or times of the monotonic
clock, in seconds.
"""

import argparse
import json
import signal
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

POLL_S = 0.2
"""Longest wait for records. SIGTERM is handled only after the wait, so at most this much later."""
REPORT_S = 0.5
"""Shortest interval between two `records` events, and between two `acknowledged` events."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of the command line.

    - `name`: the client.id, also written in each event.
    - `until`: number of records after which `consume` ends; 0: it runs until a signal.
    - `count`: number of records after which `produce` ends; 0: it runs until a signal.
    - `rate`: records that `produce` sends a second; 0: as many as the client accepts.
    - `commit_interval_s`: time between two commits; 0: no commits.
    - `value_bytes`: size to which the values of records are padded with blanks.
    - `settings`: settings of the client library, by the library's names.

    Options that the command does not have are 0 or "".
    """

    bootstrap: str
    topic: str
    group: str
    name: str
    until: int
    count: int
    rate: float
    commit_interval_s: float
    value_bytes: int
    settings: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRecord:
    """One consumed record."""

    partition: int
    offset: int
    value: str


class Reporter:
    """Writes events to stdout, each as a line with a JSON object, and flushes each line."""

    def __init__(self, client: str, name: str) -> None:
        self._head = {"client": client, "name": name}

    def write(self, event: str, **more: object) -> None:
        """Write one event with its time `t`, in seconds since the epoch, and its fields `more`."""
        line = {"t": round(time.time(), 3), "event": event, **self._head, **more}
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()

    def failed(self, action: str, error: BaseException | object) -> None:
        """Write an `error` event: the type and text of the library's error during `action`."""
        self.write("error", during=action, error=type(error).__name__, message=str(error))


@dataclass(slots=True)
class Ownership:
    """The partitions that a member owns. Each change is written as an event."""

    reporter: Reporter
    owned: set[int] = field(default_factory=set)

    def assigned(self, partitions: Iterable[int]) -> None:
        """Add partitions, and write an `assigned` event."""
        added = sorted(partitions)
        self.owned.update(added)
        self.reporter.write("assigned", partitions=added, owned=sorted(self.owned))

    def revoked(self, partitions: Iterable[int], *, lost: bool = False) -> None:
        """Remove partitions, and write a `revoked` or a `lost` event.

        `lost`: the group has removed the member, so another member can own the partitions already.
        """
        removed = sorted(partitions)
        self.owned.difference_update(removed)
        event = "lost" if lost else "revoked"
        self.reporter.write(event, partitions=removed, owned=sorted(self.owned))


class Consumer(ABC):
    """A member of a group, in one client library.

    It tells its `Ownership` which partitions the group has assigned to it or revoked.
    """

    @abstractmethod
    def poll(self, timeout_s: float) -> Sequence[ReadRecord]:
        """Return the records that have arrived. Wait for them, but at most `timeout_s`."""

    @abstractmethod
    def commit(self) -> None:
        """Commit the positions, and wait for the broker's answer.

        Raises: exceptions of the library.
        """

    @abstractmethod
    def close(self) -> None:
        """Leave the group without a commit."""


class Producer(ABC):
    """A producer in one client library. It tells its `Acknowledged` the answers to its records."""

    @abstractmethod
    def send(self, number: int, key: bytes, value: bytes) -> None:
        """Send record `number`, without a wait for the broker's answer."""

    @abstractmethod
    def work(self, timeout_s: float) -> None:
        """Give the library time to handle the brokers' answers, `timeout_s` at most."""

    @abstractmethod
    def finish(self, timeout_s: float) -> None:
        """Wait until every record has its answer, for `timeout_s` at most."""


class Acknowledged:
    """Collects the brokers' answers to sent records, and writes them as events.

    An `acknowledged` event has [number, partition, offset] of each record that was stored. A
    `refused` event has the number of a record whose delivery failed. The record is not sent again.
    A broker may have stored a refused record nevertheless, if only the broker's answer was lost.
    """

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter
        self._lock = threading.Lock()  # kafka-python calls back from a thread of its own
        self._waiting: list[tuple[int, int, int]] = []
        self._reported_s = time.monotonic()
        self.count = 0
        self.refused = 0

    def stored(self, number: int, partition: int, offset: int) -> None:
        """Count an acknowledged record, and keep it for the next report."""
        with self._lock:
            self.count += 1
            self._waiting.append((number, partition, offset))

    def lost(self, number: int, error: object) -> None:
        """Count a record whose delivery failed, and write its `refused` event."""
        with self._lock:
            self.refused += 1
        self._reporter.write("refused", number=number, error=str(error))

    def report(self, *, now: bool = False) -> None:
        """Write the acknowledged records since the last report, if REPORT_S seconds have passed.

        With `now`, write them in any case.
        """
        if not now and time.monotonic() - self._reported_s < REPORT_S:
            return
        with self._lock:
            waiting, self._waiting = self._waiting, []
        if waiting:
            self._reported_s = time.monotonic()
            self._reporter.write("acknowledged", records=waiting, total=self.count)


class Stop:
    """Notes that SIGTERM or SIGINT came. A loop ends before its next pass if `is_requested`."""

    def __init__(self) -> None:
        self.is_requested = False
        for signal_number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signal_number, self._note)

    def _note(self, _signal: int, _frame: object) -> None:
        self.is_requested = True


class Client(ABC):
    """A client family: one client library, with its consumer and producer."""

    name: str

    @abstractmethod
    def version(self) -> str:
        """Return the version of the library, for the first event."""

    @abstractmethod
    def consumer(self, options: Options, ownership: Ownership) -> Consumer:
        """Return a member that has subscribed."""

    @abstractmethod
    def producer(self, options: Options, acknowledged: Acknowledged) -> Producer:
        """Return a producer."""


def main(client: Client, arguments: Sequence[str] | None = None) -> int:
    """Run a client program, and return its exit code.

    The code is 1 if `produce` had a record that was refused or got no answer, otherwise 0.
    """
    parser = argparse.ArgumentParser(
        description=f"A consumer or a producer: {client.name}. Events are JSON lines on stdout."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    consume = commands.add_parser("consume", help="be a member of a group until SIGTERM")
    produce = commands.add_parser("produce", help="write numbered records, then end")
    for command in (consume, produce):
        command.add_argument("--bootstrap", required=True, help="host:port[,host:port...]")
        command.add_argument("--topic", required=True)
        command.add_argument(
            "--name", default=f"{client.name}-0", help="client.id, and in each event"
        )
        command.add_argument(
            "--set",
            action="append",
            default=[],
            metavar="KEY=VALUE",
            help="a setting of the client",
        )
    consume.add_argument("--group", required=True)
    consume.add_argument(
        "--until", type=int, default=0, help="end after this many records; 0: never"
    )
    consume.add_argument("--commit-interval", type=float, default=0.5, help="seconds; 0: never")
    produce.add_argument("--count", type=int, default=1_000, help="records; 0: until SIGTERM")
    produce.add_argument("--rate", type=float, default=0.0, help="records a second; 0: no limit")
    produce.add_argument("--value-bytes", type=int, default=0, help="pad values to this size")

    given = parser.parse_args(arguments)
    settings = {}
    for text in given.set:
        key, separator, value = text.partition("=")
        if not separator or not key:
            parser.error(f"--set: expected KEY=VALUE, got {text}")
        settings[key] = value
    # `given` has only the options of its own command. The others get 0 or "".
    options = Options(
        bootstrap=given.bootstrap,
        topic=given.topic,
        group=getattr(given, "group", ""),
        name=given.name,
        until=getattr(given, "until", 0),
        count=getattr(given, "count", 0),
        rate=getattr(given, "rate", 0.0),
        commit_interval_s=getattr(given, "commit_interval", 0.0),
        value_bytes=getattr(given, "value_bytes", 0),
        settings=settings,
    )

    reporter = Reporter(client.name, options.name)
    reporter.write("started", command=given.command, version=client.version())
    run = _consume if given.command == "consume" else _produce
    return run(client, options, reporter)


def _consume(client: Client, options: Options, reporter: Reporter) -> int:
    """Consume and commit until a signal, or until `options.until` records. Returns exit code 0."""
    stop = Stop()
    consumer = client.consumer(options, Ownership(reporter))
    waiting: list[tuple[int, int, str]] = []  # records for the next event
    total = 0
    reported_s = committed_s = time.monotonic()
    has_uncommitted = False  # whether records were read since the last successful commit

    while not stop.is_requested and not (options.until and total >= options.until):
        try:
            records = consumer.poll(POLL_S)
        except Exception as error:
            # An error of the library is written as an event, and does not end the program. The
            # pause keeps a lasting error from filling stdout.
            reporter.failed("poll", error)
            time.sleep(POLL_S)
            continue
        waiting += [(record.partition, record.offset, record.value) for record in records]
        total += len(records)
        has_uncommitted = has_uncommitted or bool(records)
        now_s = time.monotonic()
        if waiting and now_s - reported_s >= REPORT_S:
            reporter.write("records", records=waiting, total=total)
            waiting, reported_s = [], now_s
        if (
            has_uncommitted
            and options.commit_interval_s  # 0: no commits
            and now_s - committed_s >= options.commit_interval_s
        ):
            has_uncommitted = not _commit(consumer, reporter)
            committed_s = time.monotonic()

    if waiting:
        reporter.write("records", records=waiting, total=total)
    # `close` makes the member leave its group. A member that has left can commit no more, so the
    # last commit comes first.
    if has_uncommitted and options.commit_interval_s:
        _commit(consumer, reporter)
    try:
        consumer.close()
    except Exception as error:
        reporter.failed("close", error)
    reporter.write("closed", total=total)
    return 0


def _commit(consumer: Consumer, reporter: Reporter) -> bool:
    """Commit, and write the outcome and the duration as an event. Returns True on success."""
    began_s = time.monotonic()
    try:
        consumer.commit()
    except Exception as error:
        reporter.write(
            "commit_failed",
            error=type(error).__name__,
            message=str(error),
            took_s=round(time.monotonic() - began_s, 3),
        )
        return False
    reporter.write("committed", took_s=round(time.monotonic() - began_s, 3))
    return True


def _produce(client: Client, options: Options, reporter: Reporter) -> int:
    """Produce until a signal, or until `options.count` records. Returns the exit code.

    With a rate, record `number` is due `number / rate` seconds after the beginning. So a late
    record does not delay the records after it.
    """
    stop = Stop()
    acknowledged = Acknowledged(reporter)
    producer = client.producer(options, acknowledged)
    began_s = time.monotonic()
    number = 0
    while not stop.is_requested and not (options.count and number >= options.count):
        if options.rate:
            due_s = began_s + number / options.rate
            while (wait_s := due_s - time.monotonic()) > 0 and not stop.is_requested:
                producer.work(min(wait_s, POLL_S))
                acknowledged.report()
        # `ljust` pads the value with blanks. A longer value stays as it is.
        value = f"{options.name}:{number}".ljust(options.value_bytes)
        producer.send(number, f"k{number}".encode(), value.encode())
        number += 1
        acknowledged.report()
    # 120 s is Kafka's default of delivery.timeout.ms, after which a record counts as failed.
    producer.finish(timeout_s=120.0)
    acknowledged.report(now=True)
    reporter.write(
        "produced", sent=number, acknowledged=acknowledged.count, refused=acknowledged.refused
    )
    # A record without an answer is neither acknowledged nor refused.
    return 1 if acknowledged.refused or acknowledged.count < number else 0
