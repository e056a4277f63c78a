"""Real Kafka clients can connect to a broker of a run on Ray.

The listener for these clients is a part of the broker's process, so a kill or a pause of the
process hits the listener, too. Here the client is a plain socket that calls itself `raw`. It sends
the request ApiVersions in version 0.
"""

import asyncio
from pathlib import Path

import pytest

from cluster.ray.runtime import RayRuntime
from cluster.spec import BrokerSpec, ClusterSpec, ControllerSpec, ListenerSpec
from protocol.config import BrokerConfig
from protocol.ids import broker_name
from tests.support.harness.listening_cluster import PATIENCE_S, KafkaConnection

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.usefixtures("local_ray")]

BROKER = broker_name(0)
API_VERSIONS = 18
"""The number of the API ApiVersions in Kafka's protocol."""


async def connect(runtime: RayRuntime) -> KafkaConnection:
    """Connect to the only broker, waiting until it listens."""
    (server,) = runtime.bootstrap_servers()
    host, port = server.split(":")
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                return KafkaConnection(*await asyncio.open_connection(host, int(port)))
            except ConnectionRefusedError:
                await asyncio.sleep(0.05)


def test_listener_shares_the_fate_of_its_process_and_keeps_its_port(tmp_path: Path) -> None:
    """During a pause of the broker the listener is silent, and answers afterwards.

    A kill of the broker ends the connections. After a restart the listener has the same port.
    """
    runtime = RayRuntime(
        ClusterSpec(
            controllers=(ControllerSpec(node_id=100),),
            brokers=(BrokerSpec(broker_id=0),),
            topics=(),
            # The session is short, because a restarted broker waits for the end of its old session.
            broker_config=BrokerConfig(
                broker_session_timeout_ms=1_000, broker_heartbeat_interval_ms=100
            ),
            listener=ListenerSpec(),
        ),
        seed=1,
        run_id="listening",
        run_dir=tmp_path,
    )

    async def story() -> None:
        await runtime.start()
        connection = await connect(runtime)
        assert await connection.ask(API_VERSIONS, version=0)

        await runtime.pause(BROKER)
        connection.send_request(API_VERSIONS, version=0, correlation_id=2)
        assert await connection.is_silent()
        await runtime.resume(BROKER)
        answer = await connection.answer()
        assert answer[0] == 2  # the correlation id

        servers_before = runtime.bootstrap_servers()
        await runtime.crash(BROKER)
        assert await connection.ended()
        assert runtime.bootstrap_servers() == ()

        await runtime.restart(BROKER)
        assert runtime.bootstrap_servers() == servers_before
        second_connection = await connect(runtime)
        assert await second_connection.ask(API_VERSIONS, version=0)
        # The client has one connection: the first one ended with the kill.
        assert (await runtime.status()).kafka_clients == {"client:raw": 1}

    try:
        runtime.run(story())
    finally:
        runtime.run(runtime.stop())
    assert runtime.failures() == ()
