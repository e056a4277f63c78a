"""How a broker joins and leaves its cluster: registration, heartbeats, controlled shutdown.

1. The broker registers with the controller. At first the broker is *fenced*: it can lead no
   partition.
2. The broker reads the metadata log. Each heartbeat reports the last offset that the broker has
   read. Once this is the broker's own registration or later, the controller answers that the broker
   has *caught up*. The next heartbeat asks the controller to unfence the broker.
3. If no heartbeat comes for the length of the session timeout, the controller fences the broker
   again. A broker that cannot reach the controller goes on to serve clients, and repeats its
   heartbeats.
4. For a controlled shutdown, the broker asks in its heartbeats for permission to stop. The
   controller first makes other brokers the leaders of the partitions that this broker leads.

Source: Kafka `BrokerLifecycleManager`.
DEVIATION: registration has no time limit (initial.broker.registration.timeout.ms), and the backoff
has no jitter.
"""

from asyncio import Future
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import TypeVar

from cluster.broker.channels import BrokerIdentity, ControllerChannel
from cluster.host.host import Disconnected, Host, RequestTimedOut
from cluster.spec import BrokerSpec
from protocol.api import AnyRequest, AnyResponse
from protocol.config import BrokerConfig
from protocol.errors import ErrorCode, SimulationError
from protocol.ids import BrokerEpoch
from protocol.messages.controller import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)

T = TypeVar("T")

PORT = 9092
"""Port in the registration. No node connects to this port: nodes address each other by name."""
STARTING_INTERVAL_US = 10_000
"""Kafka's interval between heartbeats until the broker has caught up."""
SHUTDOWN_INTERVAL_US = 50_000
"""Kafka's interval between the first two heartbeats of a controlled shutdown."""
RESEND_BACKOFF_US = 100_000
"""Wait before the second attempt of a request. The wait doubles with each further attempt."""


class BrokerState(Enum):
    """Kafka's states of a broker's lifecycle."""

    STARTING = "STARTING"
    """The broker has not caught up."""
    RECOVERY = "RECOVERY"
    """The broker has caught up, and does not know yet that it was unfenced."""
    RUNNING = "RUNNING"
    """The broker was unfenced once. It may have been fenced again since."""
    PENDING_CONTROLLED_SHUTDOWN = "PENDING_CONTROLLED_SHUTDOWN"
    """The broker waits for the controller's permission to shut down."""
    SHUTTING_DOWN = "SHUTTING_DOWN"
    """The broker shuts down, with or without the permission."""


class _ControllerRefused(Exception):
    """The controller answered with an error. The request is then repeated."""


_RETRIED = (Disconnected, RequestTimedOut, _ControllerRefused)
"""Failures of a request after which it is sent again."""


class BrokerHeartbeats:
    """Registers this incarnation, and sends heartbeats while it lives."""

    def __init__(
        self,
        host: Host,
        channel: ControllerChannel,
        identity: BrokerIdentity,
        spec: BrokerSpec,
        config: BrokerConfig,
        metadata_offset: Callable[[], int],
        on_caught_up: Callable[[], Awaitable[None]],
    ) -> None:
        """Begin unregistered, in state STARTING.

        `metadata_offset` returns the offset up to which the broker has read the metadata log. The
        heartbeats report this offset. `on_caught_up` is called once, when the broker has caught up.
        """
        self.state = BrokerState.STARTING
        """The state; only this class changes it."""
        self._host = host
        self._channel = channel
        self._identity = identity
        self._spec = spec
        self._metadata_offset = metadata_offset
        self._on_caught_up = on_caught_up
        self._on_shut_down: Callable[[], None] = lambda: None
        """Called when the controller permits the broker to shut down. The function is set by
        `begin_controlled_shutdown`."""
        self._next_at_once = False
        """True if the next heartbeat must be sent without a pause, because a shutdown has begun."""
        self._pausing: Future[None] | None = None
        """The future that ends the current pause; None or done if there is no pause."""
        self._interval_us = config.broker_heartbeat_interval_ms * 1_000
        # If a request gets no answer, the next request must still come before the session is over
        # (KAFKA-14392). So the timeout of a request, and the wait after it, are each at most half
        # of the session timeout.
        self._timeout_us = config.broker_session_timeout_ms * 1_000 // 2
        self._backoff_max_us = config.broker_session_timeout_ms * 1_000 // 2

    async def run(self) -> None:
        """Register this broker, and send heartbeats until it shuts down."""
        identity = self._identity
        registration: BrokerRegistrationResponse = await self._repeat(self._register)
        identity.broker_epoch = BrokerEpoch(registration.broker_epoch)
        self._host.log(f"registered with broker epoch {identity.broker_epoch}")
        # The controller sets `is_caught_up` by the metadata offset in the heartbeat.
        while not (await self._beat()).is_caught_up:
            await self._pause(STARTING_INTERVAL_US)
        await self._on_caught_up()
        if self.state is BrokerState.STARTING:  # otherwise a shutdown has begun meanwhile
            self.state = BrokerState.RECOVERY

        is_first = True  # False once the first heartbeat of a controlled shutdown is answered
        while True:
            answer = await self._beat()
            pause_us = self._interval_us
            match self.state:
                # STARTING is only for the type checker: this state has ended above.
                case BrokerState.STARTING | BrokerState.RECOVERY:
                    if not answer.is_fenced:
                        self.state = BrokerState.RUNNING
                case BrokerState.RUNNING:
                    pass
                case BrokerState.PENDING_CONTROLLED_SHUTDOWN:
                    if answer.should_shut_down:
                        self._host.log("the controller lets this broker shut down")
                        self.end()
                        self._on_shut_down()
                        return
                    if is_first:
                        # The shutdown may be quick, so Kafka asks again soon after its first
                        # heartbeat.
                        is_first = False
                        pause_us = SHUTDOWN_INTERVAL_US
                case BrokerState.SHUTTING_DOWN:
                    return
            await self._pause(pause_us)

    def begin_controlled_shutdown(self, on_shut_down: Callable[[], None]) -> None:
        """Request a controlled shutdown in all heartbeats from now on.

        `on_shut_down` is called when the controller agrees. If the broker is not RUNNING, it leads
        no partition, so it needs no permission, and `on_shut_down` is called immediately.

        Source: Kafka BrokerLifecycleManager.BeginControlledShutdownEvent.
        """
        if self.state is not BrokerState.RUNNING:
            self._host.log(f"no controlled shutdown in state {self.state.value}")
            self.end()
            on_shut_down()
            return
        self.state = BrokerState.PENDING_CONTROLLED_SHUTDOWN
        self._on_shut_down = on_shut_down
        self._next_at_once = True
        if self._pausing is not None and not self._pausing.done():
            self._pausing.set_result(None)

    def end(self) -> None:
        """Enter SHUTTING_DOWN, in which `run` ends after the answer to its next heartbeat."""
        self.state = BrokerState.SHUTTING_DOWN

    async def _register(self) -> BrokerRegistrationResponse:
        """Send one registration, and return the answer. Raises: one of `_RETRIED`."""
        request = BrokerRegistrationRequest(
            broker_id=self._identity.broker_id,
            incarnation_id=self._host.incarnation,
            host=self._spec.name,
            port=PORT,
            rack=self._spec.rack,
            listeners=self._host.listeners,
        )
        response = await self._call(request)
        if not isinstance(response, BrokerRegistrationResponse):
            raise SimulationError(f"BrokerRegistration was answered by {response}")
        # The error is DUPLICATE_BROKER_REGISTRATION as long as the session of this broker's
        # previous incarnation has not ended. It is retried like any other error.
        self._check(response.error_code)
        return response

    async def _beat(self) -> BrokerHeartbeatResponse:
        """Send heartbeats until one is answered without an error; return that answer."""
        return await self._repeat(self._heartbeat)

    async def _repeat(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Repeat `attempt`, with backoff, until it succeeds."""
        backoff_us = RESEND_BACKOFF_US
        while True:
            try:
                return await attempt()
            except _RETRIED:
                pass  # `_check` has logged a refusal; errors of the connection are not logged
            await self._pause(min(backoff_us, self._backoff_max_us))
            backoff_us = min(2 * backoff_us, self._backoff_max_us)

    async def _heartbeat(self) -> BrokerHeartbeatResponse:
        """Send one heartbeat, and return the answer. Raises: one of `_RETRIED`."""
        self._next_at_once = False
        request = BrokerHeartbeatRequest(
            broker_id=self._identity.broker_id,
            broker_epoch=self._identity.broker_epoch,
            current_metadata_offset=self._metadata_offset(),
            # A starting broker has not applied metadata to its replicas, so it must not lead yet.
            # `want_fence` asks the controller to leave the broker fenced, or to fence it.
            want_fence=self.state is BrokerState.STARTING,
            want_shut_down=self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN,
        )
        response = await self._call(request)
        if not isinstance(response, BrokerHeartbeatResponse):
            raise SimulationError(f"BrokerHeartbeat was answered by {response}")
        self._check(response.error_code)
        return response

    async def _call(self, request: AnyRequest) -> AnyResponse:
        return await self._channel.connection().call(request, timeout_us=self._timeout_us)

    def _check(self, error: ErrorCode) -> None:
        """Raise _ControllerRefused for an error; after NOT_CONTROLLER, use the next controller."""
        if error == ErrorCode.NOT_CONTROLLER:
            self._channel.try_next_controller()
        if error != ErrorCode.NONE:
            self._host.log(f"the controller answered {error.name}")
            raise _ControllerRefused(error.name)

    async def _pause(self, delay_us: int) -> None:
        """Wait for `delay_us`; a controlled shutdown that begins ends the wait."""
        # A shutdown may have begun while the last heartbeat was in flight. Then there was no pause
        # that the shutdown could end, so the pause after that heartbeat is left out.
        if self._next_at_once:
            return
        pausing = self._pausing = self._host.create_future()
        timer = self._host.after(delay_us, _wake, pausing)
        await pausing
        timer.cancel()
        self._pausing = None


def _wake(pausing: "Future[None]") -> None:
    """End a pause, unless a shutdown has ended it."""
    if not pausing.done():
        pausing.set_result(None)
