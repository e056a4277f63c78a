"""Consumers that know only brokers which are lost for good, as in Kafka 3.9.

With the first answer to its request Metadata, a client forgets its bootstrap servers. From then on
it asks only the brokers of the last answer. An answer lists only unfenced brokers (the controller
fences a broker that it counts as dead). So a client can be stranded in these steps:
1. Some brokers are fenced. An answer lists only the other brokers.
2. The listed brokers are lost, and none of them starts again.
3. The fenced brokers come back. The client never hears of them.
Kafka 3.8 added a way back, which is the default since 4.0: the setting
`metadata.recovery.strategy` (KIP-899).

The trace has no row of the brokers that a client knows. But the trace shows the client's lookups of
the coordinator. A stranded client's lookups all fail: no known broker can be reached, or the broker
that the client asked is down.
"""

from dataclasses import dataclass, field

from cluster.client.net.errors import NO_BROKER_AVAILABLE
from protocol.trace import TraceKind, TraceRow

STRANDING_KINDS = frozenset(
    {
        TraceKind.BROKER_FENCED,
        TraceKind.BROKER_UNFENCED,
        TraceKind.NODE_STARTED,
        TraceKind.NODE_KILLED,
        TraceKind.NODE_STOPPED,
        TraceKind.COORDINATOR_FOUND,
        TraceKind.COORDINATOR_LOOKUP_FAILED,
    }
)
"""Kinds of rows that StrandedClients must see."""
STRANDED = "knows only brokers that are lost for good"
"""Name of the excuse for clients that cannot find the cluster again."""


@dataclass(slots=True)
class _Failures:
    """A series of failed lookups: each found no broker to ask, or asked a broker that is down.

    Units: `first_us` and `last_us` are times of the run in microseconds.
    """

    first_us: int
    last_us: int = 0
    asked: dict[str, None] = field(default_factory=dict)  # brokers that were down when asked


class StrandedClients:
    """Follows the brokers that metadata can have listed, and the failed lookups of consumers."""

    def __init__(self) -> None:
        self._unfenced: frozenset[str] = frozenset()
        # An ordered set of every set of brokers that an answer to Metadata may have listed: all
        # brokers that were unfenced at some time.
        self._listed: dict[frozenset[str], None] = {}
        # Nodes that ended and did not start again. Nothing iterates over this set.
        self._down: set[str] = set()
        self._failures: dict[str, _Failures] = {}  # by consumer

    def lost_brokers(self, consumer: str, *, since_us: int, until_us: int) -> frozenset[str]:
        """Return the brokers that a stranded consumer knows; empty if it is not stranded.

        A consumer is stranded if all its lookups failed from `since_us` to `until_us`, and the
        brokers that it knows are down now. Units: microseconds of the run.
        """
        failures = self._failures.get(consumer)
        if failures is None or failures.first_us > since_us or failures.last_us < until_us:
            return frozenset()
        # A set of brokers that the client may know: it contains a broker that the client asked, and
        # all of its brokers are down.
        known = (
            listed
            for broker in failures.asked
            for listed in self._listed
            if broker in listed and listed <= self._down
        )
        return next(known, frozenset())  # one such set suffices

    def observe(self, row: TraceRow) -> None:
        """Take a row of STRANDING_KINDS."""
        match row.kind:
            case TraceKind.BROKER_FENCED:
                self._list(self._unfenced - {row.peer or ""})
            case TraceKind.BROKER_UNFENCED:
                self._list(self._unfenced | {row.peer or ""})
            case TraceKind.NODE_KILLED | TraceKind.NODE_STOPPED:
                self._down.add(row.peer or row.node)
                # A new process of a consumer asks its bootstrap servers again.
                self._failures.pop(row.peer or row.node, None)
            case TraceKind.NODE_STARTED:
                self._down.discard(row.peer or row.node)
            case TraceKind.COORDINATOR_FOUND:
                self._failures.pop(row.node, None)
            case TraceKind.COORDINATOR_LOOKUP_FAILED:
                self._note_failure(row)
            case _:
                pass

    def _list(self, unfenced: frozenset[str]) -> None:
        """Note the brokers that metadata lists from now on. Clients ignore an empty list."""
        self._unfenced = unfenced
        if unfenced:
            self._listed[unfenced] = None

    def _note_failure(self, row: TraceRow) -> None:
        """Continue the consumer's series of failures, or end it if a living broker was asked."""
        has_asked = row.error != NO_BROKER_AVAILABLE
        if has_asked and row.peer not in self._down:
            self._failures.pop(row.node, None)
            return
        failures = self._failures.setdefault(row.node, _Failures(first_us=row.time_us))
        failures.last_us = row.time_us
        if row.peer is not None:
            failures.asked[row.peer] = None
