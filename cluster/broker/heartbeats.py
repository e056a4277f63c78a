"""The broker's life as the controller sees it: registration, then heartbeats.

A broker that cannot reach the controller goes on serving; it only goes on trying. Source: Kafka
`BrokerLifecycleManager`; DEVIATION: it tries for ever, without
initial.broker.registration.timeout.ms, and its backoff has no jitter.
"""

from collections.abc import Awaitable, Callable

from tenacity import AsyncRetrying, retry_if_exception_type, wait_exponential

from cluster.broker.controller_channel import ControllerChannel
from cluster.broker.identity import BrokerIdentity
from cluster.broker.metadata_cache import MetadataCache
from cluster.host import Disconnected, Host, RequestTimedOut
from cluster.spec import BrokerSpec
from protocol.config import BrokerConfig
from protocol.controller_messages import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from protocol.envelope import AnyRequest, AnyResponse
from protocol.errors import ErrorCode, SimulationError
from protocol.ids import BrokerEpoch

PORT = 9092
STARTING_INTERVAL_US = 10_000
"""Between the heartbeats of a broker that has not read its own registration yet."""
RESEND_BACKOFF_S = 0.1


class _ControllerRefused(Exception):
    """The controller answered with an error: try again later."""


class BrokerHeartbeats:
    """Registers this incarnation, and heartbeats for as long as it lives."""

    def __init__(
        self,
        host: Host,
        channel: ControllerChannel,
        identity: BrokerIdentity,
        spec: BrokerSpec,
        config: BrokerConfig,
        cache: MetadataCache,
        on_caught_up: Callable[[], Awaitable[None]],
    ) -> None:
        self._host = host
        self._channel = channel
        self._identity = identity
        self._spec = spec
        self._cache = cache
        self._on_caught_up = on_caught_up
        self._interval_us = config.broker_heartbeat_interval_ms * 1_000
        # KAFKA-14392: a request that hangs must leave time for another within the session.
        self._timeout_us = config.broker_session_timeout_ms * 1_000 // 2
        self._retrying = AsyncRetrying(
            sleep=self._sleep,
            retry=retry_if_exception_type((Disconnected, RequestTimedOut, _ControllerRefused)),
            wait=wait_exponential(
                multiplier=RESEND_BACKOFF_S, max=config.broker_session_timeout_ms / 2_000
            ),
        )

    async def run(self) -> None:
        """Register; heartbeat until caught up; then serve, be unfenced, and heartbeat on."""
        identity = self._identity
        registration: BrokerRegistrationResponse = await self._retrying(self._register)
        identity.broker_epoch = BrokerEpoch(registration.broker_epoch)
        self._host.log(f"registered with broker epoch {identity.broker_epoch}")
        while not (await self._beat(want_fence=True)).is_caught_up:
            await self._host.sleep(STARTING_INTERVAL_US)
        await self._on_caught_up()
        while True:
            await self._beat(want_fence=False)
            await self._host.sleep(self._interval_us)

    async def _register(self) -> BrokerRegistrationResponse:
        request = BrokerRegistrationRequest(
            broker_id=self._identity.broker_id,
            incarnation_id=self._host.incarnation,
            host=self._spec.name,
            port=PORT,
            rack=self._spec.rack,
        )
        response = await self._call(request)
        if not isinstance(response, BrokerRegistrationResponse):
            raise SimulationError(f"BrokerRegistration was answered by {response}")
        # DUPLICATE_BROKER_REGISTRATION while the session of the life before has not ended.
        self._check(response.error_code)
        return response

    async def _beat(self, *, want_fence: bool) -> BrokerHeartbeatResponse:
        response: BrokerHeartbeatResponse = await self._retrying(
            self._heartbeat, want_fence=want_fence
        )
        return response

    async def _heartbeat(self, *, want_fence: bool) -> BrokerHeartbeatResponse:
        request = BrokerHeartbeatRequest(
            broker_id=self._identity.broker_id,
            broker_epoch=self._identity.broker_epoch,
            current_metadata_offset=self._cache.last_applied_offset,
            want_fence=want_fence,
        )
        response = await self._call(request)
        if not isinstance(response, BrokerHeartbeatResponse):
            raise SimulationError(f"BrokerHeartbeat was answered by {response}")
        self._check(response.error_code)
        return response

    async def _call(self, request: AnyRequest) -> AnyResponse:
        return await self._channel.connection().call(request, timeout_us=self._timeout_us)

    def _check(self, error: ErrorCode) -> None:
        if error == ErrorCode.NOT_CONTROLLER:
            self._channel.try_next_controller()
        if error != ErrorCode.NONE:
            self._host.log(f"the controller answered {error.name}")
            raise _ControllerRefused(error.name)

    async def _sleep(self, seconds: float) -> None:
        await self._host.sleep(round(seconds * 1_000_000))
