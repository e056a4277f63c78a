"""A member of a group, and its parked requests.

In a rebalance a member sends two requests that are not answered immediately. The coordinator parks
them: it keeps a JoinGroup until all members have joined, and a SyncGroup until the leader's
assignment is stored. The member's fields `awaiting_join` and `awaiting_sync` have the parked
requests. The class Group counts the members whose JoinGroup is parked.

Source: Kafka `MemberMetadata` (scala); docs/kafka/BEHAVIOUR.md 4.1.
"""

from dataclasses import dataclass, field

from protocol.errors import IllegalTransition
from protocol.ids import RequestId
from protocol.messages.group import JoinGroupRequestProtocol


@dataclass(slots=True, kw_only=True)
class ParkedJoin:
    """A JoinGroup that waits for its answer.

    `answered` is usually False. It is True if the handler failed after it had parked the request:
    the client has got UNKNOWN_SERVER_ERROR, but the request stays parked, as in Kafka. The end of
    the join phase must then not send a second answer.
    """

    request_id: RequestId
    api_version: int  # decides about the form of the answer
    answered: bool = False


@dataclass(slots=True, kw_only=True)
class Member:
    """One member.

    - `group_instance_id`: a configured name, None if the client has none. A member with this name
      is static: it keeps its place in the group when it restarts.
    - `rebalance_timeout_ms`: how long a rebalance waits for the member to rejoin.
    - `session_timeout_ms`: how long the member may be silent before it is removed.
    - `protocol_type`: kind of client, such as "consumer" or "connect".
    - `supported_protocols`: the ways to assign partitions that the member knows, most preferred
      first. Each protocol has a name, such as "range", and the member's metadata for the protocol,
      which is a consumer's subscription. The group's record has only the protocol that the group
      has selected. So a member that was loaded from the log supports only this protocol, until it
      rejoins.
    """

    # These fields are stored in the group's record.
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    supported_protocols: tuple[JoinGroupRequestProtocol, ...]
    assignment: bytes = b""
    # The fields below are not stored, so they are lost when another coordinator takes over.
    # True in the member's first join phase. The client cannot send heartbeats yet, so the member's
    # timer runs for five minutes, in place of the session timeout.
    is_new: bool = False
    awaiting_join: ParkedJoin | None = None  # its JoinGroup, while parked
    awaiting_sync: RequestId | None = None  # its SyncGroup, while parked
    # The key of the member's timer. The group sets it when it adds the member or changes its id.
    # Every heartbeat needs the key, and building it each time would be slow.
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
        """True if the member stays in the group even if its timer fires now.

        Source: Kafka `MemberMetadata.hasSatisfiedHeartbeat`.
        """
        # The client of a parked request waits for the answer, so its silence does not mean that it
        # is dead. An exception is a member in its first join phase, whose five-minute timer must be
        # able to end the wait.
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
        """Return the candidate that the member prefers most, None if it supports none.

        The keys of `candidates` are names of protocols. The dict is used as a set, so its values
        have no meaning.
        """
        return next((name for name in self.protocol_names() if name in candidates), None)
