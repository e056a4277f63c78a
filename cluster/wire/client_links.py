"""Link rules for Kafka clients, which have no Host that could apply the rules.

A fault disturbs the link between two nodes by link rules. The rules are applied at both ends of the
link, by a LinkGate in the host of each node. A Kafka client is a process from outside and has no
host. So the listener of the broker has a gate for each client. The requests of the client pass
through this gate on their way to the broker, and the broker's answers on their way back.
"""

import random
from collections.abc import Callable, Sequence
from functools import partial

from cluster.host.connection_purposes import KAFKA_CLIENT
from cluster.host.connections import ConnectionEnd
from cluster.host.frames import CloseFrame, Frame, ResponseFrame
from cluster.links.gate import After, LinkGate
from cluster.links.rules import LinkRule
from protocol.ids import Incarnation, NodeName


class _ClientConnections:
    """Answers the questions of a LinkGate about the connections of a Kafka client."""

    def purpose_of(self, end: ConnectionEnd) -> str | None:
        """Return the purpose of every connection of a Kafka client."""
        return KAFKA_CLIENT

    def close_frames_of_lost_peer(
        self, peer: NodeName, incarnation: Incarnation | None = None
    ) -> tuple[CloseFrame, ...]:
        """Return no frames: when a broker dies, its listener ends the clients' TCP connections."""
        return ()


class ClientLinks:
    """The gates of one listener's clients. A client has a gate only while rules need it."""

    def __init__(
        self,
        *,
        after: After,
        to_broker: Callable[[Frame], None],
        to_client: Callable[[Frame], None],
        rng_for: Callable[[NodeName, str], random.Random],
    ) -> None:
        """Begin without rules.

        `to_broker` and `to_client` carry a frame on when no rule holds it any more. `rng_for` takes
        a client and the id of a rule, and returns the random stream for both.
        """
        self._after = after
        self._to_broker = to_broker
        self._to_client = to_client
        self._rng_for = rng_for
        self._rules: tuple[LinkRule, ...] = ()
        self._gates: dict[NodeName, LinkGate] = {}
        """The gates of the clients that need one."""

    def set_rules(self, rules: Sequence[LinkRule]) -> None:
        """Replace all rules, for present and later clients."""
        self._rules = tuple(rules)
        for gate in self._gates.values():
            gate.set_rules(self._rules)

    def send(self, client: NodeName, frame: Frame) -> None:
        """Send a frame of a client to the broker."""
        gate = self._gate(client)
        if gate is None:
            self._to_broker(frame)
        else:
            gate.send(frame)

    def receive(self, client: NodeName, frame: Frame) -> None:
        """Deliver a frame of the broker to a client."""
        gate = self._gate(client)
        if gate is None:
            self._to_client(frame)
        else:
            gate.receive(frame)

    def reset(self, client: NodeName, closes: Sequence[CloseFrame]) -> None:
        """Drop the waiting frames of closed connections; `closes` has a frame for each of these."""
        gate = self._gates.get(client)
        if gate is not None:
            gate.reset(closes)

    def _gate(self, client: NodeName) -> LinkGate | None:
        """Return a client's gate; make it or drop it as needed.

        Returns None if no rule is in force and no frame waits in the gate: frames then need no
        gate.
        """
        gate = self._gates.get(client)
        if gate is not None:
            # Without rules, the gate must stay until its waiting frames have left, so that no later
            # frame overtakes them.
            if gate.is_idle and not self._rules:
                del self._gates[client]
                return None
            return gate
        if not self._rules:
            return None
        gate = self._gates[client] = LinkGate(
            client,
            _ClientConnections(),
            after=self._after,
            transmit=self._to_broker,
            deliver=self._to_client,
            lost=_never_lost,
            rng_for=partial(self._rng_for, client),
        )
        gate.set_rules(self._rules)
        return gate


def _never_lost(frame: ResponseFrame) -> None:
    """Do nothing; never called, because responses are lost in the gate of the broker's host."""
