"""Sends an administrator's requests to the right nodes, and retries as Kafka's AdminClient does.

A request that any broker can answer goes to the least loaded broker. A request for the controller
goes directly to one of the controllers (KIP-919, `bootstrap.controllers`). If that controller
answers NOT_CONTROLLER, or does not answer, the next controller is tried.

Other requests are about several groups or partitions, which are called *keys* here. Each key must
be sent to its own broker, for example a group to its coordinator:

1. If the broker of a key is unknown, a lookup asks for it.
2. All keys with the same broker are sent to it in one request.
3. If the answer has a retriable error for a key, this key is sent again after a backoff. The other
   keys do not wait for it.
4. If the error means that the broker is the wrong one, the key goes back to step 1.

An Ask describes a request about keys, and a Lookup describes how to find their brokers.

Source: Kafka KafkaAdminClient, ControllerNodeProvider, AdminApiDriver, AdminApiLookupStrategy,
AdminApiHandler.
"""

from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from cluster.client.net.errors import (
    DISCONNECTED,
    NO_BROKER_AVAILABLE,
    TIMED_OUT,
    ClientError,
    error_from_code,
)
from cluster.client.net.futures import RequestFuture, Wakeup
from cluster.client.net.network_client import KnownNode, NetworkClient
from cluster.client.net.retries import MS, retry_backoff, with_retries
from cluster.host.connection_purposes import ADMIN, BOOTSTRAP
from cluster.host.host import Host
from cluster.spec import ClusterSpec
from protocol.api import AnyRequest, AnyResponse
from protocol.config import ConsumerConfig
from protocol.errors import ErrorCode, SimulationError
from protocol.ids import BrokerId, broker_name

# K is a key; V the value in a key's outcome; A the response to an Ask; F the response to a Lookup.
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
A = TypeVar("A", bound=AnyResponse)
F = TypeVar("F", bound=AnyResponse)

_TRIES_MIN = 3
"""Number of requests without an answer for which a caller's `timeout_ms` must suffice."""

_NOT_HERE = frozenset(
    {
        ErrorCode.NOT_COORDINATOR.name,
        ErrorCode.COORDINATOR_NOT_AVAILABLE.name,
        ErrorCode.NOT_LEADER_OR_FOLLOWER.name,
        ErrorCode.LEADER_NOT_AVAILABLE.name,
        DISCONNECTED,
        TIMED_OUT,
    }
)
"""Errors after which the broker of a key must be looked up again."""


class GaveUp(ClientError):
    """No final answer came in time. `name` is the name of the last retriable error.

    `waited_us` is the time for which the caller has waited.
    """

    def __init__(self, name: str, *, waited_us: int) -> None:
        super().__init__(name, retriable=True)
        self.waited_us = waited_us


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookup(Generic[K, F]):
    """How to find the brokers of keys, by a request that any broker can answer.

    `request` returns the request for some keys, such as a FindCoordinator request for groups.
    `places` takes the answer and the keys, and returns the broker of each key, or an error.
    """

    request: Callable[[tuple[K, ...]], AnyRequest]
    response_type: type[F]
    places: Callable[[F, tuple[K, ...]], Mapping[K, BrokerId | ClientError]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask(Generic[K, V, A]):
    """A request about keys that have the same broker.

    `request` returns the request for some keys. `outcomes` takes the answer, the broker and the
    keys, and returns a value for each key, or an error, which may be retriable.
    """

    request: Callable[[tuple[K, ...]], AnyRequest]
    response_type: type[A]
    outcomes: Callable[[A, BrokerId, tuple[K, ...]], Mapping[K, V | ClientError]]
    on_silence: Callable[[BrokerId, str], None] | None = None
    """Function that is called with the broker and the error when a request got no answer.

    The broker may have carried out the request nevertheless. None if no call is needed."""


class AdminDriver:
    """Sends the requests of one AdminClient, which may take `timeout_ms` in all.

    The default is `default.api.timeout.ms` (60 s). If `timeout_ms` is given, the driver waits for a
    single answer at most a third of this time, so that it can ask another broker after a silent
    one.
    """

    def __init__(self, host: Host, cluster: ClusterSpec, *, timeout_ms: int | None = None) -> None:
        # Kafka's AdminClientConfig has the same timeouts and backoffs as ConsumerConfig.
        config = ConsumerConfig()
        # Every broker of the cluster is a bootstrap server.
        brokers = tuple(KnownNode(broker.name, BOOTSTRAP) for broker in cluster.brokers)
        self.host = host
        self.backoff = retry_backoff(host, config)
        self.wakeup = Wakeup(host)
        self.network = NetworkClient(
            host, config, known_nodes=lambda: brokers, on_disconnect=self.wakeup.set
        )
        self._timeout_ms = config.default_api_timeout_ms

        request_timeout_ms = config.request_timeout_ms
        if timeout_ms is not None:
            self._timeout_ms = timeout_ms
            # `-(-a // b)` is a / b rounded up.
            request_timeout_ms = min(request_timeout_ms, -(-timeout_ms // _TRIES_MIN))
        self._request_timeout_us = request_timeout_ms * MS
        # For requests that wait for replication (`waits`); `timeout_ms` does not shorten this time.
        self._longest_request_us = config.request_timeout_ms * MS
        self.deadline_us = host.now_us() + self._timeout_ms * MS
        self._controllers = tuple(
            KnownNode(controller.name, ADMIN) for controller in cluster.controllers
        )
        # Index of the controller to ask next; after a failure it is the following one.
        self._controller_index = 0

    async def ask_controller(
        self, request: AnyRequest, response_type: type[A], error_of: Callable[[A], ErrorCode]
    ) -> A:
        """Return the active controller's answer; `error_of` extracts its top-level error.

        Raises: TimeoutError if the time is over; ClientError if an error is not retriable.
        """

        async def attempt() -> A:
            node = self._controllers[self._controller_index]
            try:
                response = await self._ask(node, request, response_type)
                error = error_of(response)
                if error is not ErrorCode.NONE:
                    raise error_from_code(error)
            except ClientError as failure:
                # NOT_CONTROLLER, a lost connection and a timeout are retriable. After these errors
                # the next controller is asked.
                if failure.retriable:
                    self._controller_index = (self._controller_index + 1) % len(self._controllers)
                raise
            return response

        return await self._retry(attempt, "the controller")

    async def ask_broker(self, request: AnyRequest, response_type: type[A]) -> A:
        """Return the answer of the least loaded broker. Raises: TimeoutError."""

        async def attempt() -> A:
            node = self.network.least_loaded_node()
            if node is None:
                raise ClientError(NO_BROKER_AVAILABLE, retriable=True)
            return await self._ask(node, request, response_type)

        return await self._retry(attempt, "a broker")

    async def ask_each(
        self,
        keys: Mapping[K, BrokerId | None] | Sequence[K],
        ask: Ask[K, V, A],
        lookup: Lookup[K, F] | None = None,
        *,
        waits: bool = False,
    ) -> dict[K, V | ClientError]:
        """Send the request about each key to its broker; return the outcomes in the keys' order.

        The outcome of a key is GaveUp if no final answer came in time. `keys` may be a mapping that
        has the broker of each key, or None for a broker that `lookup` must find. Without `lookup`,
        each key is sent only to the given broker. `waits` means that the broker answers only when a
        record is replicated; then a request may take all the time that is left, up to
        `request.timeout.ms`.

        Raises: SimulationError if `lookup` is None and a key has no broker.
        """
        places = keys if isinstance(keys, Mapping) else dict.fromkeys(keys)
        if lookup is None and None in places.values():
            raise SimulationError("a key without a broker needs a lookup")
        timeout_us = self._longest_request_us if waits else self._request_timeout_us
        return await _KeyedRequest(self, places, ask, lookup, timeout_us).run()

    def send(
        self,
        node: KnownNode,
        request: AnyRequest,
        response_type: type[A],
        *,
        timeout_us: int,
        on_answer: Callable[[RequestFuture[A]], None] | None = None,
    ) -> RequestFuture[A]:
        """Send a request; it ends at `deadline_us` at the latest, and then sets `wakeup`."""
        future = self.network.send(
            node.name,
            node.purpose,
            request,
            response_type,
            timeout_us=min(timeout_us, self.deadline_us - self.host.now_us()),
        )
        if on_answer is not None:
            future.add_listener(on_answer)
        future.add_listener(lambda _future: self.wakeup.set())
        return future

    def close(self) -> None:
        """Close every connection."""
        self.network.close()

    async def _ask(self, node: KnownNode, request: AnyRequest, response_type: type[A]) -> A:
        """Send one request; return its answer. Raises: ClientError (TIMED_OUT at the deadline)."""
        # `with_retries` may begin an attempt at the deadline. Then no time is left for an answer.
        if self.host.now_us() >= self.deadline_us:
            raise ClientError(TIMED_OUT, retriable=True)
        future = self.send(node, request, response_type, timeout_us=self._request_timeout_us)
        if not await self.wakeup.wait_for(future, self.deadline_us):
            raise ClientError(TIMED_OUT, retriable=True)
        if future.error is not None:
            raise future.error
        return future.value

    async def _retry(self, attempt: Callable[[], Awaitable[A]], asked: str) -> A:
        """Repeat `attempt` until it succeeds or the time is over.

        `asked` says in the TimeoutError who did not answer, such as "a broker".
        """
        try:
            response: A = await with_retries(self.host, self.backoff, self.deadline_us, attempt)
        except ClientError as error:
            if not error.retriable:
                raise
            raise TimeoutError(
                f"no answer from {asked} in {self._timeout_ms} ms: {error.name}"
            ) from error
        return response


@dataclass(slots=True)
class _Progress(Generic[V]):
    """The progress of the request about one key.

    `broker` is the broker to ask; None if it must be looked up. `attempts` is the number of failed
    attempts, and `retry_at_us` the end of the backoff after the last one. `is_asked` is True while
    a request or lookup with this key is in flight. `error` is the last retriable error. `outcome`
    is set once `is_done` is True.
    """

    broker: BrokerId | None
    attempts: int = 0
    retry_at_us: int = 0
    is_asked: bool = False
    error: ClientError | None = None
    outcome: V | ClientError | None = None
    is_done: bool = False


class _KeyedRequest(Generic[K, V, A, F]):
    """Carries out one Ask for many keys; each goes through the steps of the module's docstring.

    `timeout_us` limits the wait for one answer. A key is *due* if it is not done, no request with
    it is in flight, and its backoff is over.
    """

    def __init__(
        self,
        driver: AdminDriver,
        places: Mapping[K, BrokerId | None],
        ask: Ask[K, V, A],
        lookup: Lookup[K, F] | None,
        timeout_us: int,
    ) -> None:
        self._driver = driver
        self._host = driver.host
        self._ask = ask
        self._lookup = lookup
        self._timeout_us = timeout_us
        self._began_us = driver.host.now_us()
        self._keys: dict[K, _Progress[V]] = {
            key: _Progress(broker=broker) for key, broker in places.items()
        }

    async def run(self) -> dict[K, V | ClientError]:
        """Send requests until every key is done or the time is over; return all outcomes."""
        deadline_us = self._driver.deadline_us
        while any(not progress.is_done for progress in self._keys.values()):
            now_us = self._host.now_us()
            if now_us >= deadline_us:
                break
            self._send_due_requests(now_us)
            await self._driver.wakeup.wait(self._next_due_us())

        if self._ask.on_silence is not None:
            # Requests that are still in flight will get no answer. Keys with the same broker share
            # a request, so each broker is reported once. A key without a broker is in a lookup.
            asked = [each.broker for each in self._keys.values() if each.is_asked]
            for broker in dict.fromkeys(each for each in asked if each is not None):
                self._ask.on_silence(broker, TIMED_OUT)
        return {key: self._outcome(progress) for key, progress in self._keys.items()}

    def _send_due_requests(self, now_us: int) -> None:
        """Send a request to each broker with due keys, and a lookup for keys without a broker."""
        keys_without_broker: list[K] = []
        by_broker: dict[BrokerId, list[K]] = {}
        for key, progress in self._keys.items():
            if progress.is_done or progress.is_asked or progress.retry_at_us > now_us:
                continue
            if progress.broker is None:
                keys_without_broker.append(key)
            else:
                by_broker.setdefault(progress.broker, []).append(key)
        # `ask_each` has checked that there is a lookup; the second condition is for the type
        # checker.
        if keys_without_broker and self._lookup is not None:
            self._look_up(tuple(keys_without_broker), self._lookup)
        for broker, broker_keys in by_broker.items():
            self._ask_broker(broker, tuple(broker_keys))

    def _look_up(self, keys: tuple[K, ...], lookup: Lookup[K, F]) -> None:
        """Ask the least loaded broker for the brokers of `keys`."""
        node = self._driver.network.least_loaded_node()
        if node is None:
            for key in keys:
                self._retry(key, ClientError(NO_BROKER_AVAILABLE, retriable=True))
            return

        def on_answer(future: RequestFuture[F]) -> None:
            self._note_answered(keys)
            if future.error is not None:
                for key in keys:
                    self._take_error(key, future.error)
                return
            places = lookup.places(future.value, keys)
            for key in keys:
                place = places[key]
                if isinstance(place, ClientError):
                    self._take_error(key, place)
                else:
                    self._keys[key].broker = place

        self._note_sent(keys)
        self._driver.send(
            node,
            lookup.request(keys),
            lookup.response_type,
            timeout_us=self._timeout_us,
            on_answer=on_answer,
        )

    def _ask_broker(self, broker: BrokerId, keys: tuple[K, ...]) -> None:
        """Send the request about `keys` to their broker, and process each key's outcome."""
        ask = self._ask

        def on_answer(future: RequestFuture[A]) -> None:
            self._note_answered(keys)
            if future.error is not None:
                if ask.on_silence is not None:
                    ask.on_silence(broker, future.error.name)
                outcomes: Mapping[K, V | ClientError] = dict.fromkeys(keys, future.error)
            else:
                outcomes = ask.outcomes(future.value, broker, keys)
            for key in keys:
                outcome = outcomes[key]
                if not isinstance(outcome, ClientError):
                    self._finish(key, outcome)
                    continue
                self._take_error(key, outcome)
                # Without a lookup the caller has chosen the broker, so the key stays with it.
                if outcome.name in _NOT_HERE and self._lookup is not None:
                    self._keys[key].broker = None

        self._note_sent(keys)
        self._driver.send(
            KnownNode(broker_name(broker), ADMIN),
            ask.request(keys),
            ask.response_type,
            timeout_us=self._timeout_us,
            on_answer=on_answer,
        )

    def _note_sent(self, keys: tuple[K, ...]) -> None:
        for key in keys:
            self._keys[key].is_asked = True

    def _note_answered(self, keys: tuple[K, ...]) -> None:
        for key in keys:
            self._keys[key].is_asked = False

    def _take_error(self, key: K, error: ClientError) -> None:
        """Schedule another attempt after a retriable error; otherwise the error is the outcome."""
        if error.retriable:
            self._retry(key, error)
        else:
            self._finish(key, error)

    def _retry(self, key: K, error: ClientError) -> None:
        """Schedule another attempt for a key, after the backoff."""
        progress = self._keys[key]
        progress.error = error
        progress.retry_at_us = self._host.now_us() + self._driver.backoff.delay_us(
            progress.attempts
        )
        progress.attempts += 1

    def _finish(self, key: K, outcome: V | ClientError) -> None:
        progress = self._keys[key]
        progress.outcome = outcome
        progress.is_done = True

    def _next_due_us(self) -> int:
        """Return the time of the next retry, or the deadline if that is earlier."""
        waiting = (
            progress.retry_at_us
            for progress in self._keys.values()
            if not progress.is_done and not progress.is_asked
        )
        return min([self._driver.deadline_us, *waiting])

    def _outcome(self, progress: _Progress[V]) -> V | ClientError:
        """Return the outcome of a key; GaveUp with the last error if it has no outcome."""
        if progress.is_done:
            return progress.outcome  # type: ignore[return-value]  # _finish has set it
        name = TIMED_OUT if progress.error is None else progress.error.name
        return GaveUp(name, waited_us=self._host.now_us() - self._began_us)
