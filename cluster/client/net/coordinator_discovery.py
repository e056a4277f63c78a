"""Discovery of a group's coordinator: find it, remember it, forget it when it fails.

A client asks any broker by FindCoordinator; this is called a *lookup* here. The broker answers from
its own metadata, which may be stale: until the controller has fenced a dead coordinator, all
brokers name the dead one. So a client whose coordinator has died goes through these steps:

1. A lookup names a broker. The client believes the answer, and connects to that broker.
2. The connection is refused, so the client forgets the broker again.
3. It sends the next lookup. The answer may name the same broker while the client still waits for
   the backoff of the connection. Then the client forgets the broker again at once. This goes on
   until an answer names a broker that can be reached.

A member that forgets its coordinator stays in its group, with its member id and generation.

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
    """The broker that a lookup named. `found` is 1 for the first successful lookup, then 2, ..."""

    broker_id: BrokerId
    name: NodeName
    found: int


class CoordinatorDiscovery:
    """Finds and remembers the broker that a client believes to be its group's coordinator."""

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

        `wakeup` is set at the end of each lookup. `member_id` returns the member's id for the rows
        of the trace (the run's record of events). `on_change` is called when a coordinator was
        found or forgotten.
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
        # True if the last lookup failed; then the next lookup waits for newer metadata.
        self._metadata_wanted = False

    def believed_coordinator(self) -> CoordinatorNode | None:
        """Return the believed coordinator, even if its connection has failed."""
        return self._coordinator

    def coordinator(self) -> CoordinatorNode | None:
        """Return the believed coordinator; None if the client knows none.

        If the connection to the coordinator has failed, this call forgets the coordinator.
        Source: Kafka AbstractCoordinator.checkAndGetCoordinator.
        """
        node = self._coordinator
        if node is not None and self._network.is_unavailable(node.name, COORDINATOR):
            self.mark_unknown(CoordinatorUnknownCause.UNAVAILABLE)
            return None
        return node

    def mark_unknown(self, cause: str) -> None:
        """Forget the coordinator; requests in flight to it fail.

        `cause` is the reason for the trace: an error's name or a CoordinatorUnknownCause.
        """
        node = self._coordinator
        if node is None:
            return
        self._coordinator = None
        self._trace(TraceKind.COORDINATOR_UNKNOWN, peer=node.name, cause=cause)
        self._network.disconnect(node.name, COORDINATOR)
        self._on_change()

    def lookup(self) -> RequestFuture[None]:
        """Return the lookup in flight; without one, send FindCoordinator to the least loaded node.

        The future succeeds once the coordinator is known. If it fails with an error that is not
        retriable, the application gets that error.

        Source: Kafka AbstractCoordinator.lookupCoordinator.
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
        """Make the next `lookup` send a new request, although one is in flight.

        If the abandoned request is answered later, its answer still counts.

        Source: Kafka AbstractCoordinator.clearFindCoordinatorFuture in HeartbeatThread.run.
        """
        self._lookup = None

    async def ensure_known(self, deadline_us: int) -> bool:
        """Repeat lookups until one finds the coordinator; return False after `deadline_us`.

        Raises: ClientError if a lookup fails with an error that is not retriable.
        Source: Kafka AbstractCoordinator.ensureCoordinatorReady.
        """
        if self.coordinator() is not None:
            return True
        self._metadata_wanted = False  # it may be True from an earlier search that failed
        try:
            await with_retries(self._host, self._backoff, deadline_us, self._find_once, deadline_us)
        except ClientError as error:
            # A retriable error means that the deadline has passed.
            if not error.retriable:
                raise
        return self._coordinator is not None

    def send(
        self, request: AnyRequest, response_type: type[R], *, timeout_us: int | None = None
    ) -> RequestFuture[R]:
        """Send `request` to the coordinator, with `request.timeout.ms` as the default timeout.

        The future fails with COORDINATOR_NOT_AVAILABLE if no coordinator is known. If the request
        gets no answer, the coordinator is forgotten before listeners of the future are called.
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
            # A later lookup may have named the same broker again. Then the two objects differ in
            # `found`, and the failure of this old request says nothing about the new belief.
            if outcome.error is not None and node == self._coordinator:
                self.mark_unknown(outcome.error.name)

        future.add_listener(forget_silent_coordinator)
        return future

    async def _find_once(self, deadline_us: int) -> None:
        """Do one lookup. Raises: ClientError if it has found no coordinator that can be reached."""
        if self._metadata_wanted:
            self._metadata_wanted = False
            await self._await_metadata_update(deadline_us)
        # A lookup of another part of the client may have found the coordinator meanwhile.
        if self.coordinator() is not None:
            return
        if self._host.now_us() >= deadline_us:
            raise error_from_code(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        lookup = self.lookup()
        if not await self._wakeup.wait_for(lookup, deadline_us):
            raise error_from_code(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if lookup.error is not None:
            # The asked broker may have failed. Newer metadata tells which other brokers to ask.
            self._metadata_wanted = True
            raise lookup.error
        # The lookup has named a broker, but its connection may have failed since.
        if self.coordinator() is None:
            raise error_from_code(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    async def _await_metadata_update(self, deadline_us: int) -> None:
        """Request newer metadata, and wait until it has arrived, at most until the deadline."""
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
        # After `abandon_lookup`, this may be the answer to an earlier lookup than `self._lookup`.
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
                # In a COORDINATOR_FOUND row, the column `cause` has the node that answered.
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
