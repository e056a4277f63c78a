"""A member of a group, and its parked requests.

A rebalance gives the members of a group their partitions. In its join phase every member sends
JoinGroup. Then a new generation begins: the number of the group's rebalances increases by one.
Every member sends SyncGroup to get its assignment. A request is parked while it waits for its
answer: a JoinGroup for the end of the join phase, a SyncGroup for the assignment.

The coordinator stores a group as a record. Another coordinator that takes the group over loads it,
that is, reads the record. This module owns the fields of one member. The module `group` owns the
set of members and the number of parked members.
Source: Kafka `MemberMetadata` (scala); docs/kafka/BEHAVIOUR.md 4.1.
"""

from dataclasses import dataclass, field

from protocol.errors import IllegalTransition
from protocol.ids import RequestId
from protocol.messages.group import JoinGroupRequestProtocol


@dataclass(slots=True, kw_only=True)
class ParkedJoin:
    """A JoinGroup that waits for its answer.

    `answered`: True if the handler failed after it had parked the request. The client has then got
    UNKNOWN_SERVER_ERROR, but the member stays parked, as in Kafka. When the join phase ends, no
    second answer must be sent.
    """

    request_id: RequestId
    api_version: int
    answered: bool = False


@dataclass(slots=True, kw_only=True)
class Member:
    """One member.

    - `group_instance_id`: a configured name. A member with such a name is static: it keeps its
      place in the group through a restart. The name of a dynamic member is None.
    - `rebalance_timeout_ms`: time that a rebalance waits for the member to join again.
    - `session_timeout_ms`: time without a request after which the member is removed.
    - `protocol_type`: kind of client; "consumer" for consumers.
    - `supported_protocols`: the member's protocols, most preferred first. A protocol is a pair: the
      name of a way to assign partitions, and the member's metadata for it. The stored record has
      only the protocol that the group selected, so after a load a member has only that one.

    Units: timeouts in milliseconds.
    """

    # Hard state: stored in the group's record.
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    supported_protocols: tuple[JoinGroupRequestProtocol, ...]
    assignment: bytes = b""
    # Soft state: lost when another coordinator takes over.
    # True in the member's first join phase. Until that ends, a five-minute timer bounds the
    # member's wait, in place of the session timeout.
    is_new: bool = False
    awaiting_join: ParkedJoin | None = None  # its JoinGroup, while parked
    awaiting_sync: RequestId | None = None  # its SyncGroup, while parked
    # The key of the member's timer. The group sets it when it adds the member, or changes its id.
    # Every heartbeat needs the key, so it is stored instead of being built each time.
    heartbeat_key: str = field(init=False, default="")

    @property
    def is_static(self) -> bool:
        """True if the member has a group.instance.id."""
        return self.group_instance_id is not None

    @property
    def is_parked(self) -> bool:
        """True if a request of the member waits for its answer."""
        return self.awaiting_join is not None or self.awaiting_sync is not None

    @property
    def outlives_session_timeout(self) -> bool:
        """True if the member cannot expire now, even if its timer fires.

        This holds for a member that is parked and not in its first join phase.

        Source: Kafka `MemberMetadata.hasSatisfiedHeartbeat`.
        """
        # The client of a parked request waits for the answer, so silence proves nothing. A new
        # member is the exception: its five-minute timer must be able to end the wait.
        return self.is_parked and not self.is_new

    def metadata(self, protocol_name: str) -> bytes:
        """Return the metadata (the subscription) that the member sent for a protocol.

        Raises: IllegalTransition if the member does not support the protocol.
        """
        for protocol in self.supported_protocols:
            if protocol.name == protocol_name:
                return protocol.metadata
        raise IllegalTransition(
            f"member {self.member_id} supports {self.protocol_names()}, not {protocol_name!r}"
        )

    def protocol_names(self) -> tuple[str, ...]:
        """Return the names of the member's protocols, most preferred first."""
        return tuple(protocol.name for protocol in self.supported_protocols)

    def matches(self, protocols: tuple[JoinGroupRequestProtocol, ...]) -> bool:
        """Return True if `protocols` equal the member's: same names, same order, same bytes."""
        return self.supported_protocols == protocols

    def vote(self, candidates: dict[str, None]) -> str | None:
        """Return the member's most preferred candidate, None if it supports no candidate.

        `candidates` has protocol names as keys; the dict is used as an ordered set.
        """
        return next((name for name in self.protocol_names() if name in candidates), None)
