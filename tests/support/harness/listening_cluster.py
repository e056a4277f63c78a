"""A cluster whose brokers listen for Kafka clients, and a client that sends raw bytes.

The cluster runs on the local runtime: all nodes are in the process of the test, and run in real
time. Each broker has a listener, which is a port at which it accepts connections in Kafka's wire
protocol.
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
"""Settings with short times: a failover takes about a second."""
PATIENCE_S = 30.0
"""The longest wait for an answer. Only a failing test waits so long."""


class KafkaConnection:
    """A client's connection. A test can write any bytes on it, and read answers."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        """Write bytes."""
        self.writer.write(data)

    def send_request(
        self, api: int, version: int, body: bytes = b"", *, correlation_id: int = 1
    ) -> None:
        """Write a request of the client `raw`, with any body.

        Its header is version 1 of Kafka's request header: the number of the API, the version of the
        request, the correlation id, and the client id.
        """
        # The bytes \x00\x03 are the length of the client id.
        payload = b"%b%b%b\x00\x03raw%b" % (
            api.to_bytes(2, "big"),
            version.to_bytes(2, "big"),
            correlation_id.to_bytes(4, "big"),
            body,
        )
        self.send(len(payload).to_bytes(4, "big") + payload)

    async def answer(self) -> tuple[int, bytes]:
        """Return the correlation id and the body of the next answer."""
        size = int.from_bytes(await self._exactly(4), "big")
        payload = await self._exactly(size)
        return int.from_bytes(payload[:4], "big"), payload[4:]

    async def ask(self, api: int, version: int, body: bytes = b"") -> bytes:
        """Send a request and return the body of its answer."""
        self.send_request(api, version, body)
        return (await self.answer())[1]

    async def ended(self) -> bool:
        """Wait until the broker has closed the connection.

        Return True if the broker closed it without sending any more bytes.
        """
        try:
            last_bytes = await asyncio.wait_for(self.reader.read(), PATIENCE_S)
        except ConnectionResetError:
            # The broker closed the connection before it had read all bytes of the client.
            return True
        return last_bytes == b""

    async def is_silent(self) -> bool:
        """Return True if no byte arrives within 0.2 s."""
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
    """One run of a cluster.

    `settings` are settings of the brokers. Their names have `_` instead of `.`, as in
    `num_partitions=5`. When the run has ended, `rows` has the rows of its trace (its recorded
    events).
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
        """Start the cluster, carry out `story`, and stop the cluster.

        `story` is the part of a test that uses the cluster.
        """

        async def run() -> None:
            await self.runtime.start()
            # Wait until broker 0 listens. All brokers are started at the same time.
            (await self.connect()).close()
            await asyncio.wait_for(story(self), 2 * PATIENCE_S)

        try:
            self.runtime.run(run())
        finally:
            self.runtime.run(self.runtime.stop())
        assert self.runtime.failures() == ()

    @property
    def bootstrap(self) -> str:
        """Return the addresses of the brokers that are up, as a client's bootstrap servers."""
        return ",".join(self.runtime.bootstrap_servers())

    async def connect(self, broker: int = 0) -> KafkaConnection:
        """Connect to a broker. If the broker does not listen yet, try again for at most 20 s."""
        host, port = self.runtime.bootstrap_servers()[broker].split(":")
        # 1,000 attempts that are 20 ms apart make 20 s.
        for _ in range(1_000):
            try:
                return KafkaConnection(*await asyncio.open_connection(host, int(port)))
            except ConnectionRefusedError:
                await asyncio.sleep(0.02)
        raise AssertionError(f"broker {broker} does not listen")

    def refusals(self) -> list[str]:
        """Return why brokers closed connections of clients, from the rows of the trace."""
        # The detail of such a row is JSON that contains "reason":"<text>". The reason ends at the
        # next quotation mark.
        return [
            str((row.detail or "").partition('"reason":"')[2].partition('"')[0])
            for row in self.rows
            if row.kind == TraceKind.CONNECTION_REFUSED
        ]

    def requests(self, api: Api) -> list[TraceRow]:
        """Return the rows about requests of this API that brokers got from Kafka clients."""
        return [
            row
            for row in self.rows
            if row.kind == TraceKind.REQUEST_RECEIVED
            and row.api == api.label
            and (row.peer or "").startswith("client:")
        ]
