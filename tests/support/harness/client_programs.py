"""Programs of real Kafka clients (`clients/`), which a test starts as processes of their own.

A family is one client library: librdkafka, kafka-python, or Java. A program prints its events, one
JSON object per line. A producing program gives its records the numbers 0, 1, 2, ...
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
"""The command of the Java program. Its options let the JVM start quickly and use little memory."""
POLL_S = 0.05
Event = dict[str, Any]
"""One line of a program's output; clients/README.md has the fields."""
Stored = tuple[int, int]
"""Place of a record: its partition and its offset."""


class ClientProgram:
    """One running program; threads read its events and its errors."""

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
        """Return the events of these kinds so far."""
        with self._lock:
            return [event for event in self._events if event["event"] in kinds]

    def owned(self) -> frozenset[int]:
        """Return the partitions that the consumer owns, according to its latest event."""
        changes = self.events("assigned", "revoked", "lost")
        return frozenset(changes[-1]["owned"]) if changes else frozenset()

    def consumed(self) -> dict[Stored, str]:
        """Return the records that were read, by partition and offset."""
        return {
            (partition, offset): value
            for event in self.events("records")
            for partition, offset, value in event["records"]
        }

    def acknowledged(self) -> dict[int, Stored | None]:
        """Return partition and offset of each acknowledged record, by the record's number.

        If the client only knows that a record is stored, and not where, the place is None. This
        happens if librdkafka repeats a batch that the broker has already stored. The broker refuses
        the repetition, and librdkafka takes the refusal as an acknowledgement.
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
        """Wait for the program's end and its last events; return its exit code."""
        code = self.process.wait(timeout_s)
        for reader in self._readers:
            reader.join(timeout_s)
        return code

    def kill(self) -> None:
        """Kill the program (SIGKILL), as if it had crashed."""
        self.process.kill()
        self.process.wait()

    def story(self) -> str:
        """Return the program's last events and errors, for a failed assertion."""
        with self._lock:
            last = [json.dumps(event)[:300] for event in self._events[-8:]]
        return "\n".join([*last, *self._errors[-8:]])

    def _read_events(self) -> None:
        """Keep each event, until the output ends with the program."""
        for line in self.process.stdout or ():
            event = json.loads(line)
            with self._lock:
                self._events.append(event)

    def _read_errors(self) -> None:
        self._errors.extend(self.process.stderr or ())


class ClientPrograms:
    """Starts programs of one client family as clients of a cluster."""

    def __init__(self, family: str, bootstrap: str) -> None:
        self._program = JAVA if family == "java" else PROGRAMS[family]
        self._bootstrap = bootstrap
        self._started: list[ClientProgram] = []

    def start(self, command: str, topic: str, name: str, *arguments: str) -> ClientProgram:
        """Start a program; `command` is `consume` or `produce`, `name` is its client id."""
        first = (command, "--bootstrap", self._bootstrap, "--topic", topic, "--name", name)
        program = ClientProgram(self._program, [*first, *arguments])
        self._started.append(program)
        return program

    def kill_all(self) -> None:
        """Kill every program that still runs."""
        for program in self._started:
            if program.process.poll() is None:
                program.kill()


@contextmanager
def client_programs(family: str, bootstrap: str) -> Iterator[ClientPrograms]:
    """Yield a starter of programs; at the end all of them are killed."""
    programs = ClientPrograms(family, bootstrap)
    try:
        yield programs
    finally:
        programs.kill_all()


def wait_until(
    condition: Callable[[], bool], what: str, *programs: ClientProgram, timeout_s: float = 60.0
) -> None:
    """Wait for a condition; on a timeout fail with `what` and the programs' last events."""
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline_s:
            stories = "\n--\n".join(program.story() for program in programs)
            raise AssertionError(f"not within {timeout_s:.0f} s: {what}\n{stories}")
        time.sleep(POLL_S)
