"""An administrator's requests, each repeated as Kafka's AdminClient repeats them.

Some go to any broker, some to the controllers themselves (KIP-919, `bootstrap.controllers`): one
that answers NOT_CONTROLLER, or not at all, is followed by the next. Errors of single partitions are
answers: the caller judges them. Source: Kafka KafkaAdminClient, ControllerNodeProvider.
"""

from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from typing import TypeVar

from cluster.client.admin.admin_driver import AdminDriver, Ask, Lookup
from cluster.client.net.errors import NO_BROKER_AVAILABLE, TIMED_OUT, ClientError, error_from_code
from cluster.client.net.futures import Wakeup
from cluster.client.net.network_client import KnownNode, NetworkClient
from cluster.client.net.retries import MS, retry_backoff, with_retries
from cluster.host.connection_purposes import ADMIN, BOOTSTRAP
from cluster.host.host import Host
from cluster.spec import ClusterSpec
from protocol.api import AnyRequest, AnyResponse
from protocol.config import ConsumerConfig
from protocol.errors import ErrorCode
from protocol.ids import BrokerId

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
F = TypeVar("F", bound=AnyResponse)
R = TypeVar("R", bound=AnyResponse)


_TRIES_MIN = 3
"""A request that nobody answers can be sent so often, where the caller chose the time."""


class AdminCalls:
    """The requests of one administrative act, which has `default.api.timeout.ms` (60 s) in all.

    Units: `timeout_ms` is another time for all of it. A single request then takes no more than a
    third of that, so that a broker that says nothing leaves time to ask another.
    """

    def __init__(self, host: Host, cluster: ClusterSpec, *, timeout_ms: int | None = None) -> None:
        # AdminClientConfig has the consumer's timeouts and backoffs.
        config = ConsumerConfig()
        brokers = tuple(KnownNode(broker.name, BOOTSTRAP) for broker in cluster.brokers)
        self._host = host
        self._timeout_ms = config.default_api_timeout_ms
        request_timeout_ms = config.request_timeout_ms
        if timeout_ms is not None:
            self._timeout_ms = timeout_ms
            request_timeout_ms = min(request_timeout_ms, -(-timeout_ms // _TRIES_MIN))
        self._request_timeout_us = request_timeout_ms * MS
        self._longest_request_us = config.request_timeout_ms * MS
        self._deadline_us = host.now_us() + self._timeout_ms * MS
        self._backoff = retry_backoff(host, config)
        self._wakeup = Wakeup(host)
        self._network = NetworkClient(
            host, config, known_nodes=lambda: brokers, on_disconnect=self._wakeup.set
        )
        self._controllers = tuple(
            KnownNode(controller.name, ADMIN) for controller in cluster.controllers
        )
        self._index = 0

    async def ask_controller(
        self, request: AnyRequest, response_type: type[R], error_of: Callable[[R], ErrorCode]
    ) -> R:
        """Return the active controller's answer; `error_of` gives its error as a whole.

        Raises: TimeoutError at the end of the act's time; ClientError that no retry can help.
        """

        async def attempt() -> R:
            node = self._controllers[self._index]
            try:
                response = await self._ask(node, request, response_type)
                error = error_of(response)
                if error is not ErrorCode.NONE:
                    raise error_from_code(error)
            except ClientError as failure:
                if failure.retriable:
                    self._index = (self._index + 1) % len(self._controllers)
                raise
            return response

        return await self._retry(attempt, "the controller")

    async def ask_broker(self, request: AnyRequest, response_type: type[R]) -> R:
        """Return the answer of the least loaded broker. Raises: TimeoutError."""

        async def attempt() -> R:
            node = self._network.least_loaded_node()
            if node is None:
                raise ClientError(NO_BROKER_AVAILABLE, retriable=True)
            return await self._ask(node, request, response_type)

        return await self._retry(attempt, "a broker")

    async def ask_each(
        self,
        keys: Mapping[K, BrokerId | None] | Sequence[K],
        ask: Ask[K, V, R],
        lookup: Lookup[K, F] | None = None,
        *,
        waits: bool = False,
    ) -> dict[K, V | ClientError]:
        """Return what came of each key, each looked up, asked and repeated on its own.

        `waits`: the answer may take its time, as one does that waits for a log: then a request may
        take all the time that is left, up to `request.timeout.ms`.
        """
        driver: AdminDriver[K, V] = AdminDriver(
            self._host,
            self._network,
            self._wakeup,
            self._backoff,
            request_timeout_us=self._longest_request_us if waits else self._request_timeout_us,
            deadline_us=self._deadline_us,
        )
        return await driver.run(keys, ask, lookup)

    def close(self) -> None:
        """Close every connection."""
        self._network.close()

    async def _ask(self, node: KnownNode, request: AnyRequest, response_type: type[R]) -> R:
        left_us = self._deadline_us - self._host.now_us()
        if left_us <= 0:
            raise ClientError(TIMED_OUT, retriable=True)
        future = self._network.send(
            node.name,
            node.purpose,
            request,
            response_type,
            timeout_us=min(self._request_timeout_us, left_us),
        )
        future.add_listener(lambda _future: self._wakeup.set())
        if not await self._wakeup.wait_for(future, self._deadline_us):
            raise ClientError(TIMED_OUT, retriable=True)
        if future.error is not None:
            raise future.error
        return future.value

    async def _retry(self, attempt: Callable[[], Awaitable[R]], asked: str) -> R:
        """Repeat `attempt` until it succeeds or the time is over."""
        try:
            response: R = await with_retries(self._host, self._backoff, self._deadline_us, attempt)
        except ClientError as error:
            if not error.retriable:
                raise
            raise TimeoutError(
                f"no answer from {asked} in {self._timeout_ms} ms: {error.name}"
            ) from error
        return response
