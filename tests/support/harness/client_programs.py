"""Start the programs in `clients/`, which use real Kafka clients, as processes of their own.

There is one program for each family of clients: librdkafka, kafka-python and Java. A program
consumes or produces, and prints events about what happens. An event is a JSON object in a line of
its own. A program that produces gives its records the numbers 0, 1, 2 and so on.
"""

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
PROGRAMS: dict[str, tuple[str, ...]] = {
    "librdkafka": (sys.executable, str(ROOT / "clients" / "librdkafka.py")),
    "kafka-python": (sys.executable, str(ROOT / "clients" / "kafka_python.py")),
}
JAVA_CLASSES = ROOT / "clients" / "java" / "target" / "classes"
JAVA = (
    *("java", "-Xmx200m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
    *("-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp"),
    f"{JAVA_CLASSES}:{JAVA_CLASSES.parent / 'jars'}/*",
    "LabClient",
)
"""The command of the Java program, with options that let the JVM start quickly and stay small."""
POLL_S = 0.05
"""The time between two checks of the condition in `wait_until`."""
Event = dict[str, Any]
"""One line of a program's output. clients/README.md describes the fields."""
Stored = tuple[int, int]
"""The place of a record: the number of its partition, and its offset."""


class ClientProgram:
    """One running program. One thread reads its events, and another thread its error output."""

    def __init__(self, command: Sequence[str], arguments: Sequence[str]) -> None:
        self.process = subprocess.Popen(
            [*command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self._events: list[Event] = []
        self._lock = threading.Lock()
        self._errors: list[str] = []
        self._readers = [
            threading.Thread(target=self._read_events, daemon=True),
            threading.Thread(target=self._read_errors, daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def events(self, *kinds: str) -> list[Event]:
        """Return the events of these kinds that the program has printed so far."""
        with self._lock:
            return [event for event in self._events if event["event"] in kinds]

    def owned(self) -> frozenset[int]:
        """Return the partitions that the consumer owns, according to its latest event."""
        changes = self.events("assigned", "revoked", "lost")
        return frozenset(changes[-1]["owned"]) if changes else frozenset()

    def consumed(self) -> dict[Stored, str]:
        """Return the values of the records that the consumer has read, by partition and offset."""
        return {
            (partition, offset): value
            for event in self.events("records")
            for partition, offset, value in event["records"]
        }

    def acknowledged(self) -> dict[int, Stored | None]:
        """Return where each acknowledged record is stored, by the number of the record.

        The place is None if the client does not know it. This happens if librdkafka sends a batch
        that the broker has already stored. The broker refuses the batch as a duplicate, and
        librdkafka takes this refusal as an acknowledgement.
        """
        return {
            number: None if offset is None else (partition, offset)
            for event in self.events("acknowledged")
            for number, partition, offset in event["records"]
        }

    def stop(self, timeout_s: float = 60.0) -> int:
        """Send SIGTERM, wait until the program has shut down, and return its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.finish(timeout_s)

    def finish(self, timeout_s: float) -> int:
        """Wait until the program has ended and all its events are read; return its exit code."""
        code = self.process.wait(timeout_s)
        for reader in self._readers:
            reader.join(timeout_s)
        return code

    def kill(self) -> None:
        """Kill the program (SIGKILL), as if it had crashed."""
        self.process.kill()
        self.process.wait()

    def story(self) -> str:
        """Return the program's last events and errors, for the message of a failed test."""
        with self._lock:
            last_events = [json.dumps(event)[:300] for event in self._events[-8:]]
        return "\n".join([*last_events, *self._errors[-8:]])

    def _read_events(self) -> None:
        """Read events until the program ends. This runs in a thread."""
        for line in self.process.stdout or ():
            event = json.loads(line)
            with self._lock:
                self._events.append(event)

    def _read_errors(self) -> None:
        """Read the error output until the program ends. This runs in a thread."""
        self._errors.extend(self.process.stderr or ())


class ClientPrograms:
    """Starts programs of one client family as clients of a cluster."""

    def __init__(self, family: str, bootstrap: str) -> None:
        self._program = JAVA if family == "java" else PROGRAMS[family]
        self._bootstrap = bootstrap
        self._started: list[ClientProgram] = []

    def start(self, command: str, topic: str, name: str, *arguments: str) -> ClientProgram:
        """Start a program; `command` is `consume` or `produce`, and `name` is its client id.

        Further arguments of its command line may follow.
        """
        required = (command, "--bootstrap", self._bootstrap, "--topic", topic, "--name", name)
        program = ClientProgram(self._program, [*required, *arguments])
        self._started.append(program)
        return program

    def kill_all(self) -> None:
        """Kill every program that still runs."""
        for program in self._started:
            if program.process.poll() is None:
                program.kill()


@contextmanager
def client_programs(family: str, bootstrap: str) -> Iterator[ClientPrograms]:
    """Yield an object that starts programs. At the end of the block these programs are killed."""
    programs = ClientPrograms(family, bootstrap)
    try:
        yield programs
    finally:
        programs.kill_all()


def wait_until(
    condition: Callable[[], bool], what: str, *programs: ClientProgram, timeout_s: float = 60.0
) -> None:
    """Wait until `condition` is True.

    Raises: AssertionError after `timeout_s`, with `what` and the last events of the programs.
    """
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline_s:
            stories = "\n--\n".join(program.story() for program in programs)
            raise AssertionError(f"not within {timeout_s:.0f} s: {what}\n{stories}")
        time.sleep(POLL_S)
