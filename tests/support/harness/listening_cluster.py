"""A cluster on the local runtime whose brokers listen for Kafka clients, and a raw client.

The local runtime runs all nodes in one process and in real time. A listener is the port at which a
broker accepts connections in Kafka's wire protocol.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from cluster.local.runtime import LocalRuntime
from cluster.spec import BrokerSpec, ClusterSpec, ControllerSpec, ListenerSpec, TopicSpec
from protocol.api import Api
from protocol.config import BrokerConfig
from protocol.trace import TraceKind, TraceRow

QUICK = {
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 2,
    "broker.session.timeout.ms": 900,
    "broker.heartbeat.interval.ms": 100,
    "num.partitions": 3,
}
"""Settings with which a failover takes a second."""
PATIENCE_S = 30.0
"""Longest wait for an answer; only a test that fails waits so long."""


class KafkaConnection:
    """A client that writes bytes as a test wishes, and reads answers."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        """Write bytes."""
        self.writer.write(data)

    def send_request(
        self, api: int, version: int, body: bytes = b"", *, correlation_id: int = 1
    ) -> None:
        """Write a request with the client id `raw`.

        The header has version 1 of Kafka's request headers. Its fields are the number of the API,
        the version, the correlation id, and the client id.
        """
        # \x00\x03 is the length of the client id `raw`.
        payload = b"%b%b%b\x00\x03raw%b" % (
            api.to_bytes(2, "big"),
            version.to_bytes(2, "big"),
            correlation_id.to_bytes(4, "big"),
            body,
        )
        self.send(len(payload).to_bytes(4, "big") + payload)

    async def answer(self) -> tuple[int, bytes]:
        """Return correlation id and body of the next answer."""
        size = int.from_bytes(await self._exactly(4), "big")
        payload = await self._exactly(size)
        return int.from_bytes(payload[:4], "big"), payload[4:]

    async def ask(self, api: int, version: int, body: bytes = b"") -> bytes:
        """Send a request and return the body of its answer."""
        self.send_request(api, version, body)
        return (await self.answer())[1]

    async def ended(self) -> bool:
        """Wait until the broker has closed the connection; return False if bytes came before."""
        try:
            last_bytes = await asyncio.wait_for(self.reader.read(), PATIENCE_S)
        except ConnectionResetError:  # the broker had not read all bytes of the client
            return True
        return last_bytes == b""

    async def is_silent(self) -> bool:
        """Return True if no byte arrives for a moment."""
        try:
            await asyncio.wait_for(self.reader.read(1), 0.2)
        except TimeoutError:
            return True
        return False

    def close(self) -> None:
        """End the connection."""
        self.writer.close()

    async def _exactly(self, size: int) -> bytes:
        return await asyncio.wait_for(self.reader.readexactly(size), PATIENCE_S)


class ListeningCluster:
    """One run of a cluster. `settings` are the brokers' settings, with `_` for `.` in their names.

    A story is the part of a test that uses the cluster. `rows` is filled when the run has ended.
    """

    def __init__(self, run_dir: Path, *, brokers: int = 1, **settings: Any) -> None:  # noqa: ANN401 (values of settings)
        changes = {name.replace("_", "."): value for name, value in settings.items()}
        self.rows: list[TraceRow] = []
        self.runtime = LocalRuntime(
            ClusterSpec(
                controllers=(ControllerSpec(node_id=100),),
                brokers=tuple(BrokerSpec(broker_id=number) for number in range(brokers)),
                topics=(
                    TopicSpec(name="__consumer_offsets", partitions=2, replication_factor=brokers),
                ),
                broker_config=msgspec.convert(
                    {**QUICK, "default.replication.factor": brokers, **changes}, BrokerConfig
                ),
                listener=ListenerSpec(),
            ),
            seed=1,
            run_id="listening",
            run_dir=run_dir,
            observers=[self.rows.append],
        )

    def play(self, story: Callable[["ListeningCluster"], Awaitable[None]]) -> None:
        """Start the cluster, play a story once the brokers serve, and stop the cluster."""

        async def run() -> None:
            await self.runtime.start()
            # Wait until broker 0 listens; the others are started together with it.
            (await self.connect()).close()
            await asyncio.wait_for(story(self), 2 * PATIENCE_S)

        try:
            self.runtime.run(run())
        finally:
            self.runtime.run(self.runtime.stop())
        assert self.runtime.failures() == ()

    @property
    def bootstrap(self) -> str:
        """Return the brokers that are up, as bootstrap servers."""
        return ",".join(self.runtime.bootstrap_servers())

    async def connect(self, broker: int = 0) -> KafkaConnection:
        """Connect to a broker; try again until it listens."""
        host, port = self.runtime.bootstrap_servers()[broker].split(":")
        # 1,000 attempts 20 ms apart: 20 s.
        for _ in range(1_000):
            try:
                return KafkaConnection(*await asyncio.open_connection(host, int(port)))
            except ConnectionRefusedError:
                await asyncio.sleep(0.02)
        raise AssertionError(f"broker {broker} does not listen")

    def refusals(self) -> list[str]:
        """Return the reasons for which brokers closed connections, from the rows of the trace."""
        # The detail of such a row is a JSON text, which has "reason":"<text>".
        return [
            str((row.detail or "").partition('"reason":"')[2].partition('"')[0])
            for row in self.rows
            if row.kind == TraceKind.CONNECTION_REFUSED
        ]

    def requests(self, api: Api) -> list[TraceRow]:
        """Return the rows of requests that brokers received from Kafka clients."""
        return [
            row
            for row in self.rows
            if row.kind == TraceKind.REQUEST_RECEIVED
            and row.api == api.label
            and (row.peer or "").startswith("client:")
        ]
