"""Consumers that know only brokers which are lost for good, as in Kafka 3.9.

A client asks its bootstrap servers only until it gets a first answer. From then on it asks the
brokers that were listed in the last answer to its request Metadata. An answer lists only unfenced
brokers, those that the controller counts as alive. So a client can lose the cluster for ever. We
call such a client stranded. For example:

1. Of three brokers, broker-0 and broker-1 are fenced. The client gets an answer that lists broker-2
   only.
2. broker-2 is lost, and never starts again.
3. broker-0 and broker-1 come back. The client never learns of them.

(Since Kafka 3.8 the setting `metadata.recovery.strategy` offers a way back. Since Kafka 4.0 this
way is the default, see KIP-899.)

The trace does not show which brokers a client knows. But the trace shows the client's lookups of
the coordinator. All lookups of a stranded client fail: the client finds no broker to ask, or the
broker that it asks is down.
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
    """A series of lookups of one consumer that failed as the lookups of a stranded client do."""

    # Times of the first and the last lookup, in microseconds of the run
    first_us: int
    last_us: int = 0
    asked: dict[str, None] = field(default_factory=dict)  # brokers that were down when asked


class StrandedClients:
    """Follows the brokers that metadata can have listed, and the failed lookups of consumers."""

    def __init__(self) -> None:
        self._unfenced: frozenset[str] = frozenset()
        # The lists of brokers that answers to Metadata may have had so far: each set of brokers
        # that were unfenced at the same time. The dict is used as an ordered set.
        self._listed: dict[frozenset[str], None] = {}
        # Nodes that have ended and not started again. Nothing iterates over them, so their order
        # does not matter and a set will do.
        self._down: set[str] = set()
        self._failures: dict[str, _Failures] = {}  # by consumer

    def lost_brokers(self, consumer: str, *, since_us: int, until_us: int) -> frozenset[str]:
        """Return the brokers that a stranded consumer knows; empty if it is not stranded.

        The consumer counts as stranded if two conditions hold. All its lookups failed from
        `since_us` to `until_us` (times of the run in microseconds). And all brokers of a list that
        the consumer may have got are down now.
        """
        failures = self._failures.get(consumer)
        if failures is None or failures.first_us > since_us or failures.last_us < until_us:
            return frozenset()
        # The client has a list with every broker that it asks. So each list that has one of the
        # asked brokers may be the client's list. The client is stranded if all brokers of such a
        # list are down.
        known = (
            listed
            for broker in failures.asked
            for listed in self._listed
            if broker in listed and listed <= self._down
        )
        return next(known, frozenset())  # the first such list suffices

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
        """Note the list of brokers that answers to Metadata have from now on.

        An empty list is not noted, because clients ignore it.
        """
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
