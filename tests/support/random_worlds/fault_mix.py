"""One run in which every kind of fault is injected into a fake cluster.

Tests of the virtual runtime use this run to see that runs with faults can be repeated exactly. The
fake cluster has three brokers and four consumers, which only exchange heartbeats.

Faults of the network are link rules. A rule names senders and receivers, and says what happens to
the frames (messages) between them: `Cut` loses the frames, `Clog` holds them back, and `Slow`
delays them.
"""

from collections.abc import Callable

from cluster.links.rules import Clog, Cut, LinkRule, Selector, Slow
from cluster.virtual.runtime import VirtualRuntime
from protocol.ids import NodeName
from tests.support.harness.fake_cluster import MS, FakeBroker

SECOND_US = 1_000_000
BROKERS = tuple(NodeName(f"broker-{index}") for index in range(3))
CONSUMERS = tuple(NodeName(f"consumer-{index}") for index in range(4))


class SlowToStop(FakeBroker):
    """A broker that needs half a second to stop when it is asked to.

    The broker also flushes its log once, half a second after its start. Batches that were appended
    later are not flushed. So a test can see that a power loss removes these batches.
    """

    def start(self) -> None:
        """Serve, and flush the log after half a second."""
        super().start()
        self.host.after(500 * MS, self.log.flush)

    def shut_down(self, on_done: Callable[[], None]) -> None:
        """Stop, but only after half a second."""
        self.host.after(500 * MS, on_done)


def rule(
    effect: Cut | Clog | Slow,
    sources: tuple[NodeName, ...],
    destinations: tuple[NodeName, ...],
    rule_id: str = "r",
) -> LinkRule:
    """Return a rule about all frames from `sources` to `destinations`."""
    selector = Selector(sources=sources, destinations=destinations)
    return LinkRule(rule_id=rule_id, selector=selector, effect=effect)


async def everything(runtime: VirtualRuntime) -> None:
    """Inject every kind of fault. Some faults are healed, and the other faults stay in force.

    The faults overlap, and some faults hit a node that another fault has hit before.
    """
    await runtime.sleep(SECOND_US)
    await runtime.set_link_rules(
        [
            rule(Slow(delay_us=3 * MS, jitter_us=9 * MS), CONSUMERS, (BROKERS[0],), "slow"),
            rule(Cut(), (BROKERS[1],), CONSUMERS[:2], "cut"),
            rule(Clog(), CONSUMERS[2:], (BROKERS[1],), "clog"),
        ]
    )
    await runtime.pause(BROKERS[2])
    await runtime.sleep(300 * MS)
    await runtime.reset_links(CONSUMERS[:1], BROKERS)
    await runtime.pause(CONSUMERS[3])
    await runtime.power_loss(BROKERS[0])
    await runtime.sleep(100 * MS)
    await runtime.resume(BROKERS[2])
    await runtime.restart(BROKERS[0])
    # New rules replace all earlier ones: the slow, cut and clogged links are healed now.
    await runtime.set_link_rules([rule(Cut(), CONSUMERS, (BROKERS[2],), "late")])
    await runtime.sleep(500 * MS)
    await runtime.pause(BROKERS[2])
    # This call only asks the broker to stop, and does not wait until it has stopped.
    await runtime.shut_down(BROKERS[1])
