"""A broker's attempts to register while its controller is down, so that connections are refused."""

from itertools import pairwise

from cluster.broker.channels import BrokerIdentity, ControllerChannel
from cluster.broker.control.registration import BrokerHeartbeats
from cluster.host.frames import OpenFrame
from cluster.spec import BrokerSpec
from protocol.config import BrokerConfig
from protocol.ids import BrokerId, NodeName
from tests.support.harness.virtual_hosts import LATENCY_US, HostLab

REFUSED_US = 2 * LATENCY_US
"""The time from an attempt to connect to its refusal: a message there, and a message back."""


def test_backoff_doubles_up_to_half_the_session() -> None:
    """The waits between attempts double up to a limit: half of the broker's session.

    Kafka also varies the waits at random; our broker does not.

    Source: Kafka BrokerLifecycleManager.resendExponentialBackoff.
    """
    lab = HostLab()
    host = lab.host("broker-0")

    async def on_caught_up() -> None:
        raise AssertionError("the broker never registers, so it never catches up")

    heartbeats = BrokerHeartbeats(
        host,
        # The lab has no host controller-100.
        ControllerChannel(host, (NodeName("controller-100"),), purpose="heartbeats"),
        BrokerIdentity(broker_id=BrokerId(0)),
        BrokerSpec(broker_id=0),
        BrokerConfig(broker_session_timeout_ms=1_000),
        metadata_offset=lambda: 0,
        on_caught_up=on_caught_up,
    )
    attempts: list[int] = []  # the time of each attempt to connect, in us, exact to 10 ms

    async def main() -> None:
        host.spawn(heartbeats.run(), name="heartbeats")
        # Look every 10 ms, for 2 s, whether the broker has tried to connect again.
        for _ in range(200):
            opened_count = sum(isinstance(frame, OpenFrame) for frame in lab.frames)
            new_count = opened_count - len(attempts)
            attempts.extend([host.now_us()] * new_count)
            await host.sleep(10_000)

    lab.run(main())

    # The wait begins when the attempt before it is refused.
    waits = [later - earlier - REFUSED_US for earlier, later in pairwise(attempts)]
    # The waits begin at 100 ms (retry.backoff.ms). The limit is 500 ms, half the session of 1 s.
    assert [round(wait_us, -4) for wait_us in waits[:5]] == [  # rounded to 10 ms
        100_000,
        200_000,
        400_000,
        500_000,
        500_000,
    ]
