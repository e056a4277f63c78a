"""Run the fake cluster in virtual time (a simulated clock).

The nodes of the fake cluster only send and answer heartbeats.
"""

from collections.abc import Callable, Coroutine
from typing import Any

from cluster.host.host import Host
from cluster.node_factory import Node
from cluster.spec import BrokerSpec, ClusterSpec, ConsumerSpec
from cluster.trace.digest import TraceDigest
from cluster.virtual.runtime import VirtualRuntime
from protocol.ids import NodeName
from protocol.trace import TraceKind, TraceRow
from tests.support.harness.fake_cluster import FakeBroker, FakeConsumer, fake_builder, fake_spec


class Run:
    """A run of the fake cluster, with all that the run has recorded.

    `rows` are the rows of the trace, in which all events are recorded. `digest` is a hash over all
    rows: if two runs have equal digests, the runs were equal. `lines` are the lines of the log,
    each with its time, its node and its text.
    """

    def __init__(
        self,
        consumer: Callable[[Host, ClusterSpec, ConsumerSpec], FakeConsumer] = FakeConsumer,
        *,
        seed: int = 1,
        trace_messages: bool = True,
        copy_messages: bool = False,
        spec: ClusterSpec | None = None,
        broker: Callable[[Host, BrokerSpec], Node] = FakeBroker,
    ) -> None:
        self.rows: list[TraceRow] = []
        self.lines: list[tuple[int, NodeName, str]] = []
        self.digest = TraceDigest()
        self.runtime = VirtualRuntime(
            fake_spec() if spec is None else spec,
            seed=seed,
            run_id="test",
            observers=(self.rows.append, self.digest),
            trace_messages=trace_messages,
            copy_messages=copy_messages,
            log=lambda *line: self.lines.append(line),
            build=fake_builder(consumer, broker),
        )

    def run(self, main: Coroutine[Any, Any, None]) -> None:
        """Start the cluster, run `main`, and stop the cluster in any case."""

        async def whole() -> None:
            await self.runtime.start()
            try:
                await main
            finally:
                await self.runtime.stop()

        self.runtime.run(whole())

    def rows_of(self, node: str, *kinds: TraceKind) -> list[TraceRow]:
        """Return the rows of a node. If kinds are given, return only rows of these kinds."""
        return [row for row in self.rows if row.node == node and (not kinds or row.kind in kinds)]
