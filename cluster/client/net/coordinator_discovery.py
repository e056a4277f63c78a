"""Discovery of a group's coordinator: find it, remember it, forget it when it fails.

A group's coordinator is the broker that leads the group's partition of `__consumer_offsets`. This
module owns the believed coordinator and the lookup in flight. Brokers answer lookups from their own
metadata, which may be stale: they name a dead coordinator until the controller has fenced it (taken
its leaderships away). So a search goes as follows:
1. A lookup names a broker, which is believed immediately.
2. If the connection to this broker is refused or held back, the belief is dropped.
3. The next lookup begins. Steps 1 to 3 repeat until an answer names a broker that can be reached.
A connection is held back while the client waits for its reconnect backoff. The client has a
connection for each node and each purpose. Requests to the coordinator use the connection with the
purpose `COORDINATOR`.
When the belief is dropped, the member keeps its state and its generation (the number of its
rebalance).
Source: Kafka AbstractCoordinator; docs/kafka, BEHAVIOUR 7.2.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from cluster.client.net.errors import (
    NO_BROKER_AVAILABLE,
    ClientError,
    error_from_code,
)
from cluster.client.net.futures import RequestFuture, Wakeup
from cluster.client.net.metadata import Metadata
from cluster.client.net.network_client import NetworkClient
from cluster.client.net.retries import ExponentialBackoff, with_retries
from cluster.host.connection_purposes import COORDINATOR
from cluster.host.host import Host
from protocol.api import AnyRequest, AnyResponse
from protocol.causes import CoordinatorUnknownCause
from protocol.errors import ErrorCode
from protocol.ids import BrokerId, GroupId, MemberId, NodeName, broker_name
from protocol.messages.discovery import (
    CoordinatorType,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from protocol.trace import TraceEvent, TraceKind

R = TypeVar("R", bound=AnyResponse)


@dataclass(frozen=True, slots=True)
class CoordinatorNode:
    """The broker believed to coordinate the group. `found` numbers the discoveries, from 1."""

    broker_id: BrokerId
    name: NodeName
    found: int


class CoordinatorDiscovery:
    """A client's belief about its group's coordinator."""

    def __init__(
        self,
        host: Host,
        group_id: GroupId,
        network: NetworkClient,
        metadata: Metadata,
        backoff: ExponentialBackoff,
        *,
        request_timeout_us: int,
        wakeup: Wakeup,
        member_id: Callable[[], MemberId],
        on_change: Callable[[], None],
    ) -> None:
        """Create a discovery that knows no coordinator.

        wakeup: set at the end of each lookup.
        member_id: supplies a column of the trace.
        on_change: called when a coordinator was found or marked unknown.
        """
        self._host = host
        self._group_id = group_id
        self._network = network
        self._metadata = metadata
        self._backoff = backoff
        self._request_timeout_us = request_timeout_us
        self._wakeup = wakeup
        self._member_id = member_id
        self._on_change = on_change
        self._coordinator: CoordinatorNode | None = None
        self._lookup: RequestFuture[None] | None = None
        self._found = 0  # number of discoveries so far
        # True if the last lookup failed. Then the next lookup must wait for newer metadata.
        self._metadata_wanted = False

    def believed_coordinator(self) -> CoordinatorNode | None:
        """Return the believed coordinator, without a check of its connection."""
        return self._coordinator

    def coordinator(self) -> CoordinatorNode | None:
        """Return the coordinator, None if unknown.

        A coordinator whose connection is held back becomes unknown.
        Source: Kafka AbstractCoordinator.checkAndGetCoordinator.
        """
        node = self._coordinator
        if node is not None and self._network.is_unavailable(node.name, COORDINATOR):
            self.mark_unknown(CoordinatorUnknownCause.UNAVAILABLE)
            return None
        return node

    def mark_unknown(self, cause: str) -> None:
        """Forget the coordinator; requests in flight to it fail.

        The member, which uses this object, keeps its state and its generation.

        `cause` is an error's name or a CoordinatorUnknownCause.
        """
        node = self._coordinator
        if node is None:
            return
        self._coordinator = None
        self._trace(TraceKind.COORDINATOR_UNKNOWN, peer=node.name, cause=cause)
        self._network.disconnect(node.name, COORDINATOR)
        self._on_change()

    def lookup(self) -> RequestFuture[None]:
        """Send FindCoordinator to the least loaded node, or join the lookup in flight.

        The future succeeds once the coordinator is set. It fails with a retriable error, or with a
        fatal one that the application gets. Source: Kafka AbstractCoordinator.lookupCoordinator.
        """
        if self._lookup is not None:
            return self._lookup
        asked = self._network.least_loaded_node()
        if asked is None:
            self._trace(TraceKind.COORDINATOR_LOOKUP_FAILED, error=NO_BROKER_AVAILABLE)
            return RequestFuture.failed(ClientError(NO_BROKER_AVAILABLE, retriable=True))
        lookup = self._lookup = RequestFuture[None]()

        def answered(future: RequestFuture[FindCoordinatorResponse]) -> None:
            self._answered(asked.name, future, lookup)

        self._network.send(
            asked.name,
            asked.purpose,
            FindCoordinatorRequest(
                key_type=CoordinatorType.GROUP, coordinator_keys=(self._group_id,)
            ),
            FindCoordinatorResponse,
            timeout_us=self._request_timeout_us,
        ).add_listener(answered)
        return lookup

    def abandon_lookup(self) -> None:
        """Let the next lookup send a new request. An answer to the one in flight still counts.

        Source: Kafka AbstractCoordinator.clearFindCoordinatorFuture in HeartbeatThread.run.
        """
        self._lookup = None

    async def ensure_known(self, deadline_us: int) -> bool:
        """Look up with backoff until the coordinator is known; return False at `deadline_us`.

        Raises: ClientError that no retry can help.
        Source: Kafka AbstractCoordinator.ensureCoordinatorReady.
        """
        if self.coordinator() is not None:
            return True
        self._metadata_wanted = False  # it may be True from an earlier search that failed
        try:
            await with_retries(self._host, self._backoff, deadline_us, self._find_once, deadline_us)
        except ClientError as error:
            if not error.retriable:
                raise  # a retriable error means that the deadline has passed
        return self._coordinator is not None

    def send(
        self, request: AnyRequest, response_type: type[R], *, timeout_us: int | None = None
    ) -> RequestFuture[R]:
        """Send `request` to the coordinator; `timeout_us` None means `request.timeout.ms`.

        Fails with COORDINATOR_NOT_AVAILABLE if the coordinator is unknown. If a request gets no
        answer, the coordinator that it was sent to becomes unknown before the caller is notified.
        Source: Kafka AbstractCoordinator.CoordinatorResponseHandler.
        """
        node = self.coordinator()
        if node is None:
            return RequestFuture.failed(error_from_code(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        future = self._network.send(
            node.name,
            COORDINATOR,
            request,
            response_type,
            timeout_us=self._request_timeout_us if timeout_us is None else timeout_us,
        )

        def forget_silent_coordinator(outcome: RequestFuture[R]) -> None:
            # `node` includes the number of its discovery. If the broker was found again since the
            # request was sent, the numbers differ, and the belief stays.
            if outcome.error is not None and node == self._coordinator:
                self.mark_unknown(outcome.error.name)

        future.add_listener(forget_silent_coordinator)
        return future

    async def _find_once(self, deadline_us: int) -> None:
        """Do one lookup. Raises: ClientError if the coordinator is still unknown after it."""
        if self._metadata_wanted:
            self._metadata_wanted = False
            await self._await_metadata_update(deadline_us)
        if self.coordinator() is not None:
            return
        if self._host.now_us() >= deadline_us:
            raise error_from_code(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        lookup = self.lookup()
        if not await self._wakeup.wait_for(lookup, deadline_us):
            raise error_from_code(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if lookup.error is not None:
            # The broker's metadata may be stale. So the client learns of other brokers before the
            # next lookup.
            self._metadata_wanted = True
            raise lookup.error
        # The lookup named a broker, but the connection to it may be refused or held back by now.
        if self.coordinator() is None:
            raise error_from_code(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    async def _await_metadata_update(self, deadline_us: int) -> None:
        """Request metadata, and wait for an applied answer or the deadline."""
        version = self._metadata.version
        self._metadata.request_update()
        while self._metadata.version == version and self._host.now_us() < deadline_us:
            await self._wakeup.wait(deadline_us)

    def _answered(
        self,
        asked: NodeName,
        future: RequestFuture[FindCoordinatorResponse],
        lookup: RequestFuture[None],
    ) -> None:
        """Believe the named coordinator, or fail the lookup. `asked` is the node that answered."""
        # After `abandon_lookup` this may answer an earlier lookup, while a later one waits.
        if self._lookup is lookup:
            self._lookup = None
        error = future.error
        if error is None:
            named = future.value.coordinators[0]  # the request has one key, the group
            if named.error_code is ErrorCode.NONE:
                self._found += 1
                self._coordinator = CoordinatorNode(
                    BrokerId(named.node_id), broker_name(named.node_id), self._found
                )
                # In this row `cause` is the node that answered.
                self._trace(TraceKind.COORDINATOR_FOUND, peer=self._coordinator.name, cause=asked)
                # Connect early, so that a dead coordinator is noticed before a request needs it.
                self._network.try_connect(self._coordinator.name, COORDINATOR)
                lookup.complete(None)
                self._on_change()
                self._wakeup.set()
                return
            error = error_from_code(named.error_code)
        self._trace(TraceKind.COORDINATOR_LOOKUP_FAILED, peer=asked, error=error.name)
        lookup.fail(error)
        self._wakeup.set()

    def _trace(
        self,
        kind: TraceKind,
        *,
        peer: str | None = None,
        cause: str | None = None,
        error: str | None = None,
    ) -> None:
        self._host.trace(
            TraceEvent(
                kind=kind,
                group=self._group_id,
                member=self._member_id() or None,  # "" before the member has an id
                peer=peer,
                cause=cause,
                error=error,
            )
        )
