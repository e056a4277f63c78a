"""Outputs: the effects of one input of a ServerCore, as one ordered list.

A ServerCore has no network and no clock. It returns what must be done as a list of outputs, and its
node carries out the outputs in the order of the list. The order matters. For example, the event of
a watch must be sent before the answer that shows the change (rule ZK-19 of
docs/kafka/ZOOKEEPER_CONSUMER.md). A leader must send a proposal before the commit of this proposal.

In some outputs, this server is a *learner*: a server that follows a leader.
"""

from dataclasses import dataclass, field

from cluster.host.incoming_request import AcceptedConnection
from protocol.api import AnyNotice
from protocol.effects import CancelTimer, Reply, SetTimer
from protocol.messages.zookeeper_quorum import QuorumRequest, ServerId
from protocol.trace import TraceEvent


@dataclass(frozen=True, slots=True)
class Notify:
    """Sends a notice on a connection: a message that answers no request."""

    connection: AcceptedConnection
    notice: AnyNotice


@dataclass(frozen=True, slots=True)
class HangUp:
    """Closes a connection that a client or another server opened."""

    connection: AcceptedConnection


@dataclass(frozen=True, slots=True)
class AskLeader:
    """Sends a request on this learner's connection to its leader.

    The first request opens the connection.

    The answer comes back as the input `leader_answered`, the end of the connection as
    `leader_lost`.
    """

    leader: ServerId
    request: QuorumRequest


@dataclass(frozen=True, slots=True)
class LeaveLeader:
    """Closes this learner's connection to its leader.

    Answers and notices that still arrive on this connection are ignored.
    """


@dataclass(frozen=True, slots=True)
class AskVote:
    """Asks another server for its vote; the answer comes back as the input `voted`."""

    server: ServerId
    election_round: int


Output = (
    Reply
    | Notify
    | HangUp
    | AskLeader
    | LeaveLeader
    | AskVote
    | SetTimer
    | CancelTimer
    | TraceEvent
)


@dataclass(slots=True)
class ServerResult:
    """The outputs of one input, in order."""

    outputs: list[Output] = field(default_factory=list)

    def add(self, output: Output) -> None:
        """Append an output."""
        self.outputs.append(output)
