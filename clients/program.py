"""What all client programs in Python have in common: command line, events, and the two loops.

The program of a library implements Client, Consumer and Producer with a few calls of that library,
and passes its Client to `main`. Everything else is here, so that all programs behave alike and
write the same events:

- `consume` reads records as a member of a group, and commits its positions from time to time.
- `produce` sends records with the values `NAME:0`, `NAME:1` and so on, and reports which of them
  the brokers have acknowledged.
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
"""The longest wait for records. A SIGTERM during the wait is noticed only when the wait ends."""
REPORT_S = 0.5
"""The time for which records are gathered before they are reported as one event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of the command line. An option that the command does not have is 0 or "".

    - `name`: the client.id, which is also in each event.
    - `until`: the number of records after which `consume` ends; 0: `consume` ends at a signal.
    - `count`: the number of records after which `produce` ends; 0: `produce` ends at a signal.
    - `rate`: the number of records that `produce` sends in a second; 0: as many as it can.
    - `commit_interval_s`: the time between two commits of `consume`; 0: it never commits.
    - `value_bytes`: `produce` pads the values of records with blanks to this size.
    - `settings`: settings of the client library, by its own names.
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
    """A record that `consume` has read."""

    partition: int
    offset: int
    value: str


class Reporter:
    """Writes events to stdout, each as a line with a JSON object."""

    def __init__(self, client: str, name: str) -> None:
        self._fields_of_every_event = {"client": client, "name": name}

    def write(self, event: str, **more: object) -> None:
        """Write an event. `more`: the fields of the event besides time, name and client."""
        line = {"t": round(time.time(), 3), "event": event, **self._fields_of_every_event, **more}
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()

    def failed(self, action: str, error: BaseException | object) -> None:
        """Write that the library has raised an error. `action`: what the library was called for."""
        self.write("error", during=action, error=type(error).__name__, message=str(error))


@dataclass(slots=True)
class Ownership:
    """The partitions that a member owns at the moment. Each change is written as an event."""

    reporter: Reporter
    owned: set[int] = field(default_factory=set)

    def assigned(self, partitions: Iterable[int]) -> None:
        """Add partitions, and write an `assigned` event."""
        added = sorted(partitions)
        self.owned.update(added)
        self.reporter.write("assigned", partitions=added, owned=sorted(self.owned))

    def revoked(self, partitions: Iterable[int], *, lost: bool = False) -> None:
        """Remove partitions, and write a `revoked` or a `lost` event.

        `lost`: True if the group has removed the member. Other members may own the partitions
        already.
        """
        removed = sorted(partitions)
        self.owned.difference_update(removed)
        event = "lost" if lost else "revoked"
        self.reporter.write(event, partitions=removed, owned=sorted(self.owned))


class Consumer(ABC):
    """A member of a group, as a client library implements it.

    The member reports to its Ownership which partitions the group has assigned or revoked.
    """

    @abstractmethod
    def poll(self, timeout_s: float) -> Sequence[ReadRecord]:
        """Wait for records, `timeout_s` at most, and return those that have arrived."""

    @abstractmethod
    def commit(self) -> None:
        """Commit the positions, and wait for the broker's answer.

        Raises: exceptions of the library.
        """

    @abstractmethod
    def close(self) -> None:
        """Leave the group without a commit."""


class Producer(ABC):
    """A producer, as a client library implements it.

    The producer passes the brokers' answers to its DeliveryReports.
    """

    @abstractmethod
    def send(self, number: int, key: bytes, value: bytes) -> None:
        """Send the record with this number. Do not wait for the broker's answer."""

    @abstractmethod
    def work(self, timeout_s: float) -> None:
        """Let the library handle answers of the brokers, for `timeout_s` at most."""

    @abstractmethod
    def finish(self, timeout_s: float) -> None:
        """Wait until all records are answered, for `timeout_s` at most."""


class DeliveryReports:
    """Collects the brokers' answers to the records of a producer, and writes events about them.

    An `acknowledged` event has several records, `[number, partition, offset]` each. A `refused`
    event has the number of one record whose delivery has failed for good. Such a record may be
    stored nevertheless, if only the broker's answer was lost.
    """

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter
        self._lock = threading.Lock()  # kafka-python calls these methods in another thread
        self._unreported: list[tuple[int, int, int]] = []
        self._last_report_s = time.monotonic()
        self.acknowledged_count = 0
        self.refused_count = 0

    def acknowledged(self, number: int, partition: int, offset: int) -> None:
        """Note that a broker has stored a record. The next report has it."""
        with self._lock:
            self.acknowledged_count += 1
            self._unreported.append((number, partition, offset))

    def refused(self, number: int, error: object) -> None:
        """Note that the delivery of a record has failed, and write the event `refused` now."""
        with self._lock:
            self.refused_count += 1
        self._reporter.write("refused", number=number, error=str(error))

    def report(self, *, now: bool = False) -> None:
        """Write the records that were acknowledged since the last report.

        Less than REPORT_S after the last report, nothing is written, unless `now` is True.
        """
        if not now and time.monotonic() - self._last_report_s < REPORT_S:
            return
        with self._lock:
            unreported = self._unreported
            self._unreported = []
        if unreported:
            self._last_report_s = time.monotonic()
            self._reporter.write("acknowledged", records=unreported, total=self.acknowledged_count)


class Stop:
    """Notes a SIGTERM or SIGINT, so that a loop can end in order when `is_requested` is True."""

    def __init__(self) -> None:
        self.is_requested = False
        for signal_number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signal_number, self._note)

    def _note(self, _signal: int, _frame: object) -> None:
        self.is_requested = True


class Client(ABC):
    """A client library, with its consumer and its producer."""

    name: str

    @abstractmethod
    def version(self) -> str:
        """Return the version of the library."""

    @abstractmethod
    def consumer(self, options: Options, ownership: Ownership) -> Consumer:
        """Return a member that has subscribed."""

    @abstractmethod
    def producer(self, options: Options, reports: DeliveryReports) -> Producer:
        """Return a producer."""


def main(client: Client, arguments: Sequence[str] | None = None) -> int:
    """Run the program of a client library, and return its exit code.

    The code is 1 if `produce` has sent a record that was not acknowledged, and 0 otherwise.
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

    parsed = parser.parse_args(arguments)
    settings = {}
    for text in parsed.set:
        key, separator, value = text.partition("=")
        if not separator or not key:
            parser.error(f"--set: expected KEY=VALUE, got {text}")
        settings[key] = value
    # `parsed` has only the options of its command. The other command's options get 0 or "".
    options = Options(
        bootstrap=parsed.bootstrap,
        topic=parsed.topic,
        group=getattr(parsed, "group", ""),
        name=parsed.name,
        until=getattr(parsed, "until", 0),
        count=getattr(parsed, "count", 0),
        rate=getattr(parsed, "rate", 0.0),
        commit_interval_s=getattr(parsed, "commit_interval", 0.0),
        value_bytes=getattr(parsed, "value_bytes", 0),
        settings=settings,
    )

    reporter = Reporter(client.name, options.name)
    reporter.write("started", command=parsed.command, version=client.version())
    if parsed.command == "consume":
        return _consume(client, options, reporter)
    return _produce(client, options, reporter)


def _consume(client: Client, options: Options, reporter: Reporter) -> int:
    """Read records and commit, until a signal or the last record. Return the exit code."""
    stop = Stop()
    consumer = client.consumer(options, Ownership(reporter))
    unreported: list[tuple[int, int, str]] = []  # partition, offset and value of records
    total = 0
    last_report_s = last_commit_s = time.monotonic()
    has_uncommitted = False
    commits = options.commit_interval_s != 0

    while not stop.is_requested and not _is_reached(options.until, total):
        try:
            records = consumer.poll(POLL_S)
        except Exception as error:
            # An error of the library does not end the program. The loop pauses, because an error
            # that comes again and again should not fill stdout.
            reporter.failed("poll", error)
            time.sleep(POLL_S)
            continue
        unreported += [(record.partition, record.offset, record.value) for record in records]
        total += len(records)
        if records:
            has_uncommitted = True
        now_s = time.monotonic()
        if unreported and now_s - last_report_s >= REPORT_S:
            reporter.write("records", records=unreported, total=total)
            unreported = []
            last_report_s = now_s
        if commits and has_uncommitted and now_s - last_commit_s >= options.commit_interval_s:
            has_uncommitted = not _commit(consumer, reporter)
            last_commit_s = time.monotonic()

    if unreported:
        reporter.write("records", records=unreported, total=total)
    # The last commit comes before `close`, because a member that has left its group cannot commit.
    if commits and has_uncommitted:
        _commit(consumer, reporter)
    try:
        consumer.close()
    except Exception as error:
        reporter.failed("close", error)
    reporter.write("closed", total=total)
    return 0


def _commit(consumer: Consumer, reporter: Reporter) -> bool:
    """Commit, and write how that went. Return True if the broker has accepted the commit."""
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


def _is_reached(limit: int, number: int) -> bool:
    """Return True if `number` has reached `limit`. A limit of 0 means that there is no limit."""
    return limit != 0 and number >= limit


def _produce(client: Client, options: Options, reporter: Reporter) -> int:
    """Send records until a signal or the last record, and return the exit code."""
    stop = Stop()
    reports = DeliveryReports(reporter)
    producer = client.producer(options, reports)
    began_s = time.monotonic()
    number = 0
    while not stop.is_requested and not _is_reached(options.count, number):
        if options.rate:
            # Wait until the record is due. Its due time is counted from the beginning, and not from
            # the record before. So a record that is late does not delay the records after it.
            due_s = began_s + number / options.rate
            while (wait_s := due_s - time.monotonic()) > 0 and not stop.is_requested:
                producer.work(min(wait_s, POLL_S))
                reports.report()
        value = f"{options.name}:{number}".ljust(options.value_bytes)
        producer.send(number, f"k{number}".encode(), value.encode())
        number += 1
        reports.report()
    # 120 s is Kafka's default of delivery.timeout.ms, after which a record has failed.
    producer.finish(timeout_s=120.0)
    reports.report(now=True)
    acknowledged, refused = reports.acknowledged_count, reports.refused_count
    reporter.write("produced", sent=number, acknowledged=acknowledged, refused=refused)
    # A record without any answer is neither acknowledged nor refused.
    return 1 if refused or acknowledged < number else 0
