"""Every kind of fault of a virtual runtime, in one run of the fake cluster.

The fake cluster has nodes that only exchange heartbeats. A link rule says what happens to the
frames (messages of a connection) that it matches: cut loses them, clog holds them back, slow delays
them.
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
    """A broker that flushes its log half a second after its start, and stops in half a second."""

    def start(self) -> None:
        """Serve; flush after half a second."""
        super().start()
        self.host.after(500 * MS, self.log.flush)

    def shut_down(self, on_done: Callable[[], None]) -> None:
        """Stop half a second later."""
        self.host.after(500 * MS, on_done)


def rule(
    effect: Cut | Clog | Slow,
    sources: tuple[NodeName, ...],
    destinations: tuple[NodeName, ...],
    rule_id: str = "r",
) -> LinkRule:
    """Return a rule for all frames from `sources` to `destinations`."""
    selector = Selector(sources=sources, destinations=destinations)
    return LinkRule(rule_id=rule_id, selector=selector, effect=effect)


async def everything(runtime: VirtualRuntime) -> None:
    """Inject every kind of fault; heal some of them, and leave the others in force.

    Faults overlap, and hit nodes that another fault has hit before.
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
    await runtime.set_link_rules([rule(Cut(), CONSUMERS, (BROKERS[2],), "late")])
    await runtime.sleep(500 * MS)
    await runtime.pause(BROKERS[2])
    await runtime.shut_down(BROKERS[1])
