"""How fast and how large a cluster of `coordlab up` is when real Kafka clients use it.

The clients use librdkafka, a client library for Kafka in C, whose Python package is
confluent_kafka. Five things are measured:

1. Start: the time from the start of `up` to the first commit of a consumer, on the local runtime
   and on Ray. The baseline is a Python process that only imports the client library.
2. Memory of `up` with three brokers and twelve consumers. The baseline is a Python process that
   only imports asyncio.
3. Requests a second over one TCP connection, one request after the other: Heartbeat, and Produce of
   1 KB. The baseline is a bare asyncio server that answers the same requests with as many bytes.
4. Records a second (of 100 bytes) of a producer and of a consumer, with three brokers. The baseline
   of both is the producer with librdkafka's own mock cluster. There is no such baseline for the
   consumer, because the mock cluster stores nothing that another process could read.
5. CPU of `up` while a group of 200 consumers waits. With one partition, 199 of the consumers own
   nothing. With 200 empty partitions, each consumer polls one. The baseline is one core.
"""

import asyncio
import json
import re
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.measurement import Measurement, median_ratio
from partition_log.batches import build_batch
from protocol.compression import NO_CODECS
from protocol.records.batch import Record
from protocol.records.kafka_format import encode_batch

ROOT = Path(__file__).resolve().parent.parent
LIBRDKAFKA = ROOT / "clients" / "librdkafka.py"
FIRST_COMMIT_S = {"local": 1.5, "ray": 10.0}
"""Goal: the longest time from the start of `up` to the first commit, for each runtime."""
MEMORY_MB = 256.0
"""Goal: the most memory of `up` with twelve clients."""
BARE_SERVER_SHARE = 0.2
"""Goal: the least ratio of requests a second to those of the bare server."""
RECORDS_PER_SECOND = 20_000.0
"""Goal: the least number of records a second."""
OWNING_NOTHING_PERCENT = 5.0
"""Goal: the most CPU, in per cent of a core, while 199 of 200 members own nothing."""
POLLING_PERCENT = 30.0
"""Goal: the most CPU, in per cent of a core, while each of 200 members polls a partition."""
REAL_KAFKA_START = "real Kafka 3.9.1, controller and three brokers: 8.5 s"
ROUNDS = 5
"""Number of measurements of a figure."""
RAY_ROUNDS = 3
"""Number of measurements of the start on Ray, which takes longer."""
REQUESTS = 2_000
"""Number of requests in a round."""
RECORDS = 200_000
RECORD_BYTES = 100
MEMBERS = 200
SETTLED_S = 20.0
"""Time after which the group of a new cluster is surely stable."""
WATCHED_S = 10.0
"""Time over which the CPU of waiting members is measured."""
# Kafka's numbers (API keys) of the two requests.
HEARTBEAT = 12
PRODUCE = 0
NO_DELAY = ("--var", "cluster.config.group.initial.rebalance.delay.ms=0")
"""Options by which a new group does not wait for more members."""

ECHO_SERVER_PROGRAM = """
import asyncio, sys

class Echo(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport, self.unread = transport, bytearray()

    def data_received(self, data):
        self.unread += data
        while len(self.unread) >= 4:
            end = 4 + int.from_bytes(self.unread[:4], "big")
            if len(self.unread) < end:
                return
            correlation_id, payload = self.unread[8:12], int(sys.argv[1])
            del self.unread[:end]
            self.transport.write(payload.to_bytes(4, "big") + correlation_id + bytes(payload - 4))

async def serve():
    server = await asyncio.get_running_loop().create_server(Echo, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()

asyncio.run(serve())
"""
"""The program of the bare server. It answers each request with the request's correlation id and as
many bytes as its command line says."""
MANY_MEMBERS_PROGRAM = """
import sys, threading, time
from confluent_kafka import Consumer

bootstrap, count = sys.argv[1], int(sys.argv[2])
consumers = []
for number in range(count):
    consumer = Consumer({
        "bootstrap.servers": bootstrap, "group.id": "idle", "client.id": f"idle-{number}",
        "auto.offset.reset": "earliest", "enable.auto.commit": False,
        "partition.assignment.strategy": "range", "topic.metadata.refresh.interval.ms": 300000,
    })
    consumer.subscribe(["orders"])
    consumers.append(consumer)
print("subscribed", flush=True)
while True:
    for consumer in consumers:
        consumer.poll(0)
    time.sleep(0.2)
"""
"""A program with many consumers of one group, which runs until it is killed."""
SPEED_PROGRAM = """
import json, sys, time
from confluent_kafka import Consumer, Producer

bootstrap, records, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
settings = {"linger.ms": 20, "acks": "all", "queue.buffering.max.messages": 1000000}
if bootstrap == "mock":
    settings["test.mock.num.brokers"] = 3
else:
    settings["bootstrap.servers"] = bootstrap
producer, value, failed = Producer(settings), b"v" * size, []
def done(error, message):
    if error is not None:
        failed.append(error)
producer.produce("orders", value, on_delivery=done)  # connects, and learns the topic
producer.flush(60)
began = time.perf_counter()
for number in range(records):
    producer.produce("orders", value, on_delivery=done)
    if number % 1000 == 0:
        producer.poll(0)
left = producer.flush(120)
produced = records / (time.perf_counter() - began)
consumed = 0.0
if bootstrap != "mock":
    consumer = Consumer({
        "bootstrap.servers": bootstrap, "group.id": "speed", "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    })
    consumer.subscribe(["orders"])
    count, first = 0, 0.0
    while count < records:
        messages = consumer.consume(10000, 1.0)
        if messages and not first:
            first = time.perf_counter()  # without the time that joining takes
        count += len(messages)
    consumed = records / (time.perf_counter() - first)
    consumer.close()
print(json.dumps({"produced": produced, "consumed": consumed, "failed": len(failed) + left}))
"""
"""A program with a producer that produces all records, and a consumer that then reads them. It
prints the records a second of both, and the number of records that were not acknowledged."""


def run() -> tuple[Measurement, ...]:
    """Measure all figures. Each figure has a cluster of its own."""
    starts = (_first_commit("local", ROUNDS), _first_commit("ray", RAY_ROUNDS))
    return (*starts, _memory(), *_requests(), *_records(), *_waiting_members())


# -- clusters and processes ----------------------------------------------------------------------


@contextmanager
def _running_cluster(*arguments: str) -> Iterator[tuple["subprocess.Popen[str]", str, float]]:
    """Run a cluster; yield its process, its bootstrap servers, and the time of the start.

    Raises: RuntimeError if the process ends before it has printed its bootstrap servers.
    """
    with tempfile.TemporaryDirectory(prefix="coordlab-bench-") as folder:
        began_s = time.perf_counter()
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "coordlab",
                "up",
                f"--runs={folder}",
                *NO_DELAY,
                "--no-analyze",
                "--no-report",
                *arguments,
            ],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            matches = (re.search(r"bootstrap servers: (\S+)", line) for line in _lines(process))
            match = next((found for found in matches if found is not None), None)
            if match is None:
                raise RuntimeError(f"`up` printed no bootstrap servers: {process.wait()}")
            _drain(process)
            yield process, match[1], began_s
        finally:
            process.terminate()
            process.wait(120)


def _drain(process: "subprocess.Popen[str]") -> None:
    """Start a process that reads and drops the further output of `process`.

    Otherwise the pipe would become full, and `process` would wait until somebody reads.
    """
    subprocess.Popen(["cat"], stdin=process.stdout, stdout=subprocess.DEVNULL)


@contextmanager
def _running_program(code: str, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
    """Run a Python program for the time of the `with` block."""
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _first_line(process: "subprocess.Popen[str]") -> str:
    """Return the first line that a process prints; "" if it prints none."""
    return next(_lines(process), "").strip()


def _lines(process: "subprocess.Popen[str]") -> Iterator[str]:
    """Yield the lines that a process prints.

    The caller may stop after some lines and go on later.
    """
    if process.stdout is None:
        raise RuntimeError("the process has no pipe")
    for line in process.stdout:  # noqa: UP028 - `yield from` would close the pipe with this generator
        yield line


def _start_client(bootstrap: str, command: str, *arguments: str) -> "subprocess.Popen[str]":
    """Start the client program of librdkafka: `command` is `produce` or `consume`."""
    return subprocess.Popen(
        [
            sys.executable,
            str(LIBRDKAFKA),
            command,
            f"--bootstrap={bootstrap}",
            "--topic=orders",
            *arguments,
        ],
        stdout=subprocess.PIPE,
        text=True,
    )


def _resident_mb(pid: int) -> float:
    """Return the memory of a process that is in RAM, in MiB."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    (kib,) = re.findall(r"VmRSS:\s+(\d+) kB", status)
    return int(kib) / 1024


def _cpu_s(pid: int) -> float:
    """Return the CPU seconds that a process has used so far."""
    # The line is "PID (NAME) S 1 ...", and proc(5) numbers its fields from 1. A name can contain
    # blanks and brackets, so the line is split only after the last bracket. So `fields[0]` is field
    # 3. Field 14 is the CPU time of the process's own code, and field 15 that of the kernel.
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    utime, stime = int(fields[14 - 3]), int(fields[15 - 3])
    ticks_per_second = 100  # Linux's clock tick on all common processors
    return (utime + stime) / ticks_per_second


# -- start and memory ----------------------------------------------------------------------------


def _first_commit(runtime: str, rounds: int) -> Measurement:
    """Measure the time from `up` to the first commit of a consumer."""
    taken_s, imported_s = [], []
    for _ in range(rounds):
        import_began_s = time.perf_counter()
        subprocess.run([sys.executable, "-c", "import confluent_kafka"], check=True)
        imported_s.append(time.perf_counter() - import_began_s)
        with _running_cluster("--topic", "orders:1", "--runtime", runtime) as (
            _,
            bootstrap,
            began_s,
        ):
            producer = _start_client(bootstrap, "produce", "--count", "10")
            consumer = _start_client(
                bootstrap, "consume", "--group", "first", "--commit-interval", "0.001"
            )
            for line in _lines(consumer):
                if '"event": "committed"' in line:
                    taken_s.append(time.perf_counter() - began_s)
                    break
            consumer.terminate()
            consumer.communicate(timeout=30)
            producer.communicate(timeout=30)
    value, baseline = statistics.median(taken_s), statistics.median(imported_s)
    return Measurement(
        name=f"from `up --runtime {runtime}` to the first commit of librdkafka",
        value=value,
        baseline=baseline,
        unit="s",
        baseline_name="an interpreter that imports confluent_kafka",
        ratio=median_ratio(taken_s, imported_s),
        goal=f"at most {FIRST_COMMIT_S[runtime]} s",
        met=value <= FIRST_COMMIT_S[runtime],
        note=REAL_KAFKA_START,
    )


def _memory() -> Measurement:
    """Measure the memory of a cluster with twelve consumers."""
    # The bare program prints a line when it has imported asyncio, and then waits to be killed.
    with _running_program("import asyncio; print(1, flush=True); input()") as bare:
        _first_line(bare)
        baseline = _resident_mb(bare.pid)
    with (
        _running_cluster("--topic", "orders:12") as (process, bootstrap, _),
        _running_program(MANY_MEMBERS_PROGRAM, bootstrap, "12") as members,
    ):
        _first_line(members)
        time.sleep(SETTLED_S)
        value = _resident_mb(process.pid)
    return Measurement(
        name="memory of three brokers with twelve clients",
        value=value,
        baseline=baseline,
        unit="MiB",
        baseline_name="an interpreter that imports asyncio",
        ratio=value / baseline,
        goal=f"under {MEMORY_MB:.0f} MiB",
        met=value < MEMORY_MB,
        note="real Kafka 3.9.1, controller and three brokers: about 1 GB",
    )


# -- requests ------------------------------------------------------------------------------------


def _kafka_string(text: str) -> bytes:
    """Return a string in Kafka's encoding: two bytes with its length, then the text."""
    return struct.pack(">h", len(text)) + text.encode()


def _frame(api: int, version: int, correlation_id: int, body: bytes) -> bytes:
    """Return a request: its size, a header, and `body`.

    The header has the API key, the version of the API, the correlation id, and the client's id. In
    a format of `struct.pack`, `h` is a number of two bytes, and `i` a number of four bytes.
    """
    head = struct.pack(">hhi", api, version, correlation_id) + _kafka_string("bench")
    return struct.pack(">i", len(head) + len(body)) + head + body


def _heartbeat(correlation_id: int) -> bytes:
    """Return a Heartbeat of generation 1. Its last two bytes mean that it has no instance id."""
    body = _kafka_string("payments") + struct.pack(">i", 1) + _kafka_string("m" * 50) + b"\xff\xff"
    return _frame(HEARTBEAT, 3, correlation_id, body)


def _produce(batch: bytes, partition: int, correlation_id: int) -> bytes:
    """Return a Produce with acks -1 (all) and a timeout of 30 s.

    The first two bytes of its body mean that it has no transactional id.
    """
    data = struct.pack(">i", partition) + struct.pack(">i", len(batch)) + batch
    topic = struct.pack(">i", 1) + _kafka_string("orders") + struct.pack(">i", 1) + data
    return _frame(PRODUCE, 7, correlation_id, b"\xff\xff" + struct.pack(">hi", -1, 30_000) + topic)


def _kilobyte_batch() -> bytes:
    """Return a batch of Kafka with one record of 1 KB."""
    record = Record(key=b"k", value=b"v" * 1_024, timestamp_ms=int(time.time() * 1_000))
    return encode_batch(build_batch((record,)), NO_CODECS)


class _SequentialClient:
    """A client that sends one request after the other over one connection."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def rate(self, requests: list[bytes]) -> tuple[float, int]:
        """Send all requests; return the answers a second, and the size of the last answer."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        size = 0
        began_s = time.perf_counter()
        for request in requests:
            writer.write(request)
            size = int.from_bytes(await reader.readexactly(4), "big")
            await reader.readexactly(size)
        took_s = time.perf_counter() - began_s
        writer.close()
        return len(requests) / took_s, size


def _requests() -> Iterator[Measurement]:
    """Measure requests a second over one connection, one request after the other."""
    batch = _kilobyte_batch()
    # `orders:1:1` is the topic `orders` with one partition and one replica.
    with _running_cluster("--brokers", "1", "--topic", "orders:1:1") as (_, bootstrap, _):
        port = int(bootstrap.rpartition(":")[2])
        for name, requests in (
            ("Heartbeat", [_heartbeat(number) for number in range(REQUESTS)]),
            ("Produce of 1 KB", [_produce(batch, 0, number) for number in range(REQUESTS)]),
        ):
            # The bare server's answers must have the size of the cluster's answers.
            _, answer_bytes = asyncio.run(_SequentialClient(port).rate(requests[:100]))
            rates, bare_rates = [], []
            with _running_program(ECHO_SERVER_PROGRAM, str(answer_bytes)) as echo:
                echo_port = int(_first_line(echo))
                for _ in range(ROUNDS):
                    bare_rates.append(asyncio.run(_SequentialClient(echo_port).rate(requests))[0])
                    rates.append(asyncio.run(_SequentialClient(port).rate(requests))[0])
            ratio = median_ratio(rates, bare_rates)
            yield Measurement(
                name=f"{name}: decode, handler and encode",
                value=statistics.median(rates),
                baseline=statistics.median(bare_rates),
                unit="requests/s",
                baseline_name="a bare asyncio server",
                ratio=ratio,
                goal=f"ratio of at least {BARE_SERVER_SHARE}",
                met=ratio >= BARE_SERVER_SHARE,
            )


# -- records -------------------------------------------------------------------------------------


def _records() -> Iterator[Measurement]:
    """Measure records a second of librdkafka's producer and consumer."""
    produced, consumed, mock_produced = [], [], []
    # Few rounds, because each starts a cluster.
    for _ in range(3):
        with _running_program(SPEED_PROGRAM, "mock", str(RECORDS), str(RECORD_BYTES)) as speed:
            mock_produced.append(json.loads(_first_line(speed))["produced"])
        with (
            _running_cluster("--topic", "orders:6") as (_, bootstrap, _),
            _running_program(SPEED_PROGRAM, bootstrap, str(RECORDS), str(RECORD_BYTES)) as speed,
        ):
            figures = json.loads(_first_line(speed))
        if figures["failed"]:
            raise RuntimeError(f"{figures['failed']} records were not acknowledged")
        produced.append(figures["produced"])
        consumed.append(figures["consumed"])
    for name, values in (("producer", produced), ("consumer", consumed)):
        value = statistics.median(values)
        yield Measurement(
            name=f"librdkafka's {name}, records of {RECORD_BYTES} bytes, three brokers",
            value=value,
            baseline=statistics.median(mock_produced),
            unit="records/s",
            baseline_name="its producer with librdkafka's mock cluster",
            ratio=median_ratio(values, mock_produced),
            goal=f"at least {RECORDS_PER_SECOND:,.0f} records/s",
            met=value >= RECORDS_PER_SECOND,
        )


# -- members that wait ---------------------------------------------------------------------------


def _waiting_members() -> Iterator[Measurement]:
    """Measure the CPU of a cluster while the members of a group wait."""
    for name, partitions, goal in (
        (f"{MEMBERS} members, of which {MEMBERS - 1} own nothing", 1, OWNING_NOTHING_PERCENT),
        (f"{MEMBERS} members that poll an empty partition each", MEMBERS, POLLING_PERCENT),
    ):
        with (
            _running_cluster("--topic", f"orders:{partitions}") as (process, bootstrap, _),
            _running_program(MANY_MEMBERS_PROGRAM, bootstrap, str(MEMBERS)) as members,
        ):
            _first_line(members)
            time.sleep(SETTLED_S)
            cpu_before_s, began_s = _cpu_s(process.pid), time.perf_counter()
            time.sleep(WATCHED_S)
            cpu_s = _cpu_s(process.pid) - cpu_before_s
            used_percent = cpu_s / (time.perf_counter() - began_s) * 100
        yield Measurement(
            name=f"CPU of three brokers with {name}",
            value=used_percent,
            baseline=100.0,
            unit="% of a core",
            baseline_name="one core",
            ratio=used_percent / 100,
            goal=f"under {goal:.0f} %",
            met=used_percent < goal,
        )
