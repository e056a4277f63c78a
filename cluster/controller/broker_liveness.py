"""The controller's knowledge from heartbeats: which brokers are alive, and which may stop.

Each unfenced broker has a session. The session ends if the broker sends no heartbeat for the length
of the session timeout. The controller then fences the broker. For a controlled shutdown, the
controller also remembers which metadata each broker has applied.

All this is not in the metadata log. So when a controller starts, every unfenced broker gets a new
session, and a controlled shutdown begins again with the broker's next heartbeat.

Source: Kafka `BrokerHeartbeatManager`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from cluster.controller.metadata_image import BrokerRegistration
from protocol.ids import BrokerId
from protocol.messages.controller import BrokerHeartbeatRequest

UNKNOWN_METADATA_OFFSET = -1
"""Stands for the metadata offset of a broker that has not sent a heartbeat yet.

It is below every offset, so other brokers may not stop before this heartbeat has come.
"""


class BrokerControlState(Enum):
    """States of a broker; the state determines the answer to its heartbeats.

    FENCED: the broker may not lead.
    UNFENCED: the broker may lead.
    CONTROLLED_SHUTDOWN: the broker has asked to stop, and its leaderships move away.
    SHUTDOWN_NOW: the broker may stop.
    """

    FENCED = "FENCED"
    UNFENCED = "UNFENCED"
    CONTROLLED_SHUTDOWN = "CONTROLLED_SHUTDOWN"
    SHUTDOWN_NOW = "SHUTDOWN_NOW"

    @property
    def is_fenced(self) -> bool:
        """True if the broker is fenced in this state."""
        return self in (BrokerControlState.FENCED, BrokerControlState.SHUTDOWN_NOW)


@dataclass(slots=True)
class _Session:
    """The session of one unfenced broker.

    `last_contact_us` is the time of the broker's last heartbeat. `metadata_offset` is the offset up
    to which the broker had then applied the metadata log. In a controlled shutdown, the broker may
    stop when all active brokers have applied the log up to `shutdown_offset`. Without a controlled
    shutdown, `shutdown_offset` is None.
    """

    last_contact_us: int
    metadata_offset: int
    shutdown_offset: int | None = None


class BrokerLiveness:
    """The sessions of all unfenced brokers. A fenced broker has no session."""

    def __init__(self, session_timeout_us: int) -> None:
        self._session_timeout_us = session_timeout_us
        self._sessions: dict[BrokerId, _Session] = {}
        """The session of each unfenced broker."""

    def touch(
        self, broker_id: BrokerId, now_us: int, metadata_offset: int = UNKNOWN_METADATA_OFFSET
    ) -> None:
        """Begin the broker's session, or begin it anew, because of a heartbeat.

        The heartbeat reports `metadata_offset`. A controller that starts calls this method without
        a heartbeat, and so without an offset.
        """
        session = self._sessions.get(broker_id)
        if session is None:
            self._sessions[broker_id] = _Session(now_us, metadata_offset)
        else:
            session.last_contact_us = now_us
            session.metadata_offset = metadata_offset

    def remove(self, broker_id: BrokerId) -> None:
        """End the session, and the controlled shutdown, of a broker that was fenced."""
        self._sessions.pop(broker_id, None)

    def tracked(self) -> tuple[BrokerId, ...]:
        """Return the brokers that have a session."""
        return tuple(self._sessions)

    def silent_us(self, broker_id: BrokerId, now_us: int) -> int | None:
        """Return the time since the broker's last heartbeat, None if it has no session."""
        session = self._sessions.get(broker_id)
        return None if session is None else now_us - session.last_contact_us

    def has_valid_session(self, broker_id: BrokerId, now_us: int) -> bool:
        """Return True if the broker has a session that has not ended."""
        silent_us = self.silent_us(broker_id, now_us)
        return silent_us is not None and silent_us < self._session_timeout_us

    def find_stale_broker(self, now_us: int) -> BrokerId | None:
        """Return the broker that has been silent the longest, if its session has ended."""
        broker_id = self._longest_silent()
        if broker_id is None or self.has_valid_session(broker_id, now_us):
            return None
        return broker_id

    def next_check_us(self) -> int | None:
        """Return the end of the session that ends first, None without sessions."""
        broker_id = self._longest_silent()
        if broker_id is None:
            return None
        return self._sessions[broker_id].last_contact_us + self._session_timeout_us

    # -- controlled shutdown --

    def begin_controlled_shutdown(self, broker_id: BrokerId, shutdown_offset: int) -> None:
        """Allow the broker to stop once all active brokers have applied `shutdown_offset`.

        Only the first call has an effect. Source: Kafka maybeUpdateControlledShutdownOffset.
        """
        session = self._sessions[broker_id]
        if session.shutdown_offset is None:
            session.shutdown_offset = shutdown_offset

    def shutting_down(self) -> tuple[BrokerId, ...]:
        """Return the brokers that are in a controlled shutdown."""
        return tuple(
            broker_id
            for broker_id, session in self._sessions.items()
            if session.shutdown_offset is not None
        )

    def lowest_active_offset(self) -> int | None:
        """Return the lowest metadata offset that an active broker has reported.

        An active broker is unfenced and not in a controlled shutdown. Returns None if there is no
        active broker.
        """
        return min(
            (
                session.metadata_offset
                for session in self._sessions.values()
                if session.shutdown_offset is None
            ),
            default=None,
        )

    def states(
        self,
        broker: BrokerRegistration,
        request: BrokerHeartbeatRequest,
        has_leaderships: Callable[[], bool],
    ) -> tuple[BrokerControlState, BrokerControlState]:
        """Return the broker's states before and after its heartbeat `request`; change nothing.

        `has_leaderships` returns True if the broker leads a partition. It is called only if needed,
        because it searches all partitions.

        Source: Kafka BrokerHeartbeatManager.calculateNextBrokerState.
        """
        session = self._sessions.get(broker.broker_id)
        # The session counts here, and not `in_controlled_shutdown` in the metadata: if the
        # controller has restarted, the shutdown begins again.
        if session is not None and session.shutdown_offset is not None:
            current = BrokerControlState.CONTROLLED_SHUTDOWN
        elif broker.fenced:
            current = BrokerControlState.FENCED
        else:
            current = BrokerControlState.UNFENCED

        following = current
        match current:
            case BrokerControlState.FENCED:
                if request.want_shut_down:
                    following = BrokerControlState.SHUTDOWN_NOW
                # The broker must have read its own registration, whose offset is the broker epoch.
                elif not request.want_fence and (
                    request.current_metadata_offset >= broker.broker_epoch
                ):
                    following = BrokerControlState.UNFENCED
            case BrokerControlState.UNFENCED:
                if request.want_shut_down:
                    # A broker that also wants to be fenced asks for an immediate stop.
                    following = (
                        BrokerControlState.CONTROLLED_SHUTDOWN
                        if has_leaderships() and not request.want_fence
                        else BrokerControlState.SHUTDOWN_NOW
                    )
                elif request.want_fence:
                    following = BrokerControlState.FENCED
            case BrokerControlState.CONTROLLED_SHUTDOWN:
                if not has_leaderships() and self._all_have_learnt(session):
                    following = BrokerControlState.SHUTDOWN_NOW
            case BrokerControlState.SHUTDOWN_NOW:
                # `current` is never SHUTDOWN_NOW, because a broker in that state is fenced.
                pass
        return current, following

    def _all_have_learnt(self, session: _Session | None) -> bool:
        """Return True if every active broker has applied the metadata of this shutdown."""
        if session is None or session.shutdown_offset is None:  # only for mypy
            return False
        lowest = self.lowest_active_offset()  # None: no active broker has to apply the metadata
        return lowest is None or session.shutdown_offset <= lowest

    def _longest_silent(self) -> BrokerId | None:
        """Return the broker whose last heartbeat is the oldest, None without sessions."""
        return min(
            self._sessions,
            key=lambda broker_id: self._sessions[broker_id].last_contact_us,
            default=None,
        )
