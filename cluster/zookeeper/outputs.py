"""What one input of a server asks for: one list, carried out in order.

The order matters: an event that a watch fired must go out before the answer that shows the change
(ZK-19), a leader's proposals before its commits.
"""

from dataclasses import dataclass, field

from cluster.host.incoming_request import AcceptedConnection
from protocol.api import AnyNotice
from protocol.effects import CancelTimer, Reply, SetTimer
from protocol.messages.zookeeper_quorum import QuorumRequest, ServerId
from protocol.trace import TraceEvent


@dataclass(frozen=True, slots=True)
class Notify:
    """Says something unasked on a connection."""

    connection: AcceptedConnection
    notice: AnyNotice


@dataclass(frozen=True, slots=True)
class HangUp:
    """Ends a connection that was accepted."""

    connection: AcceptedConnection


@dataclass(frozen=True, slots=True)
class AskLeader:
    """Sends a request on this learner's connection to its leader, opened by the first one.

    Its outcome comes back as the input `leader_answered`; the connection's end as `leader_lost`.
    """

    leader: ServerId
    request: QuorumRequest


@dataclass(frozen=True, slots=True)
class LeaveLeader:
    """Closes this learner's connection to its leader; nothing of it comes back."""


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
    """Everything that one input asks for, in order."""

    outputs: list[Output] = field(default_factory=list)

    def add(self, output: Output) -> None:
        """Append one more."""
        self.outputs.append(output)
