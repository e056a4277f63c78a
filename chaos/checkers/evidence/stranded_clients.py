"""Consumers that know only brokers which are lost for good, as in Kafka 3.9.

A client asks its bootstrap servers only until it gets a first answer. From then on it asks the
brokers that the last answer to its request Metadata listed. An answer lists only unfenced brokers.
So a client can lose the cluster for ever. We call such a client stranded:

1. Of three brokers, broker-0 and broker-1 are fenced. The client gets an answer that lists broker-2
   only.
2. broker-2 is lost, and never starts again.
3. The other two come back. The client never hears of them.

(Since Kafka 3.8 the setting `metadata.recovery.strategy` offers a way back, which is the default
since 4.0, KIP-899.)

The trace does not show which brokers a client knows. It shows its lookups of the coordinator. A
stranded client's lookups all fail: it finds no broker that it could ask, or the broker that it asks
is down.
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
    """A series of lookups that all failed as those of a stranded client do."""

    first_us: int  # time of the first of them, in microseconds of the run
    last_us: int = 0
    asked: dict[str, None] = field(default_factory=dict)  # brokers that were down when asked


class StrandedClients:
    """Follows the brokers that metadata can have listed, and the failed lookups of consumers."""

    def __init__(self) -> None:
        self._unfenced: frozenset[str] = frozenset()
        # The lists of brokers that answers to Metadata may have had so far: each set of brokers
        # that were unfenced at the same time. The dict is used as an ordered set.
        self._listed: dict[frozenset[str], None] = {}
        # Nodes that have ended and not started again. A set will do: nothing iterates over it.
        self._down: set[str] = set()
        self._failures: dict[str, _Failures] = {}  # by consumer

    def lost_brokers(self, consumer: str, *, since_us: int, until_us: int) -> frozenset[str]:
        """Return the brokers that a stranded consumer knows; empty if it is not stranded.

        It counts as stranded if all its lookups failed from `since_us` to `until_us` (times of the
        run in microseconds), and all brokers that it may know are down now.
        """
        failures = self._failures.get(consumer)
        if failures is None or failures.first_us > since_us or failures.last_us < until_us:
            return frozenset()
        # Which of the lists does the client have? One with a broker that it has asked. It is
        # stranded if all brokers of such a list are down.
        known = (
            listed
            for broker in failures.asked
            for listed in self._listed
            if broker in listed and listed <= self._down
        )
        return next(known, frozenset())  # one such list suffices

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
        """Note the list of brokers in answers from now on. Clients ignore an empty list."""
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
