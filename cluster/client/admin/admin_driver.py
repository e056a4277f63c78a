"""One kind of request about many keys: who is asked about each, and when it is asked again.

A key (a group, a partition, a broker) is looked up first unless its broker is known; keys of one
broker share a request; each is repeated on its own, so that a group whose coordinator loads holds
up no other. Errors that say "not here" send a key back to its lookup. What a request means, and
which of its errors may be retried, is its caller's business.
Source: Kafka AdminApiDriver, AdminApiLookupStrategy, AdminApiHandler.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from cluster.client.net.errors import DISCONNECTED, NO_BROKER_AVAILABLE, TIMED_OUT, ClientError
from cluster.client.net.futures import RequestFuture, Wakeup
from cluster.client.net.network_client import KnownNode, NetworkClient
from cluster.client.net.retries import ExponentialBackoff
from cluster.host.connection_purposes import ADMIN
from cluster.host.host import Host
from protocol.api import AnyRequest, AnyResponse
from protocol.errors import ErrorCode, SimulationError
from protocol.ids import BrokerId, broker_name

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
A = TypeVar("A", bound=AnyResponse)
F = TypeVar("F", bound=AnyResponse)

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
"""After these a key is looked up again before it is asked again."""


class GaveUp(ClientError):
    """The time was over before an answer that counts. `name` is what came last."""

    def __init__(self, name: str, *, waited_us: int) -> None:
        super().__init__(name, retriable=True)
        self.waited_us = waited_us


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookup(Generic[K, F]):
    """Finds the broker of keys; any broker may be asked.

    Shape: `places` has a broker, or why there is none, for every key of the request.
    """

    request: Callable[[tuple[K, ...]], AnyRequest]
    response_type: type[F]
    places: Callable[[F, tuple[K, ...]], Mapping[K, BrokerId | ClientError]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask(Generic[K, V, A]):
    """Asks a broker about keys.

    Shape: `outcomes` has a value, or an error that says whether it may be retried, for every key.
    """

    request: Callable[[tuple[K, ...]], AnyRequest]
    response_type: type[A]
    outcomes: Callable[[A, BrokerId, tuple[K, ...]], Mapping[K, V | ClientError]]
    on_silence: Callable[[BrokerId, str], None] | None = None
    """Told of each request that may have been carried out although no answer came, and why."""


@dataclass(slots=True)
class _Progress(Generic[V]):
    """How far one key is.

    Units: times are on the host's clock. `broker` is who is asked about it, `error` the latest that
    was retried.
    """

    broker: BrokerId | None
    attempts: int = 0
    retry_at_us: int = 0
    is_asked: bool = False
    error: ClientError | None = None
    outcome: V | ClientError | None = None
    is_done: bool = False


class AdminDriver(Generic[K, V]):
    """The keys of one request. `run` may be called once.

    Units: `request_timeout_us` is the longest wait for one answer, `deadline_us` a time of the
    host's clock.
    """

    def __init__(
        self,
        host: Host,
        network: NetworkClient,
        wakeup: Wakeup,
        backoff: ExponentialBackoff,
        *,
        request_timeout_us: int,
        deadline_us: int,
    ) -> None:
        self._host = host
        self._network = network
        self._wakeup = wakeup
        self._backoff = backoff
        self._request_timeout_us = request_timeout_us
        self._deadline_us = deadline_us
        self._began_us = host.now_us()
        self._keys: dict[K, _Progress[V]] = {}

    async def run(
        self,
        keys: Mapping[K, BrokerId | None] | Sequence[K],
        ask: Ask[K, V, A],
        lookup: Lookup[K, F] | None = None,
    ) -> dict[K, V | ClientError]:
        """Return what came of each key, in their order; GaveUp for those without an answer in time.

        Shape: without a `lookup` every key has its broker, and is asked nowhere else.
        Raises: SimulationError for a key that can never be asked.
        """
        places = keys if isinstance(keys, Mapping) else dict.fromkeys(keys)
        if lookup is None and None in places.values():
            raise SimulationError("a key without a broker needs a lookup")
        self._keys = {key: _Progress(broker=broker) for key, broker in places.items()}
        while any(not progress.is_done for progress in self._keys.values()):
            now_us = self._host.now_us()
            if now_us >= self._deadline_us:
                break
            self._send_what_is_due(ask, lookup, now_us)
            await self._wakeup.wait(self._next_look_us())
        if ask.on_silence is not None:
            asked = [each.broker for each in self._keys.values() if each.is_asked]
            for broker in dict.fromkeys(each for each in asked if each is not None):
                ask.on_silence(broker, TIMED_OUT)
        return {key: self._outcome(progress) for key, progress in self._keys.items()}

    def _send_what_is_due(
        self, ask: Ask[K, V, A], lookup: Lookup[K, F] | None, now_us: int
    ) -> None:
        homeless: list[K] = []
        by_broker: dict[BrokerId, list[K]] = {}
        for key, progress in self._keys.items():
            if progress.is_done or progress.is_asked or progress.retry_at_us > now_us:
                continue
            if progress.broker is None:
                homeless.append(key)
            else:
                by_broker.setdefault(progress.broker, []).append(key)
        if homeless and lookup is not None:
            self._look_up(tuple(homeless), lookup)
        for broker, mine in by_broker.items():
            self._ask(broker, tuple(mine), ask, stays=lookup is None)

    def _look_up(self, keys: tuple[K, ...], lookup: Lookup[K, F]) -> None:
        node = self._network.least_loaded_node()
        if node is None:
            for key in keys:
                self._retry(key, ClientError(NO_BROKER_AVAILABLE, retriable=True))
            return

        def on_answer(future: RequestFuture[F]) -> None:
            self._answered(keys)
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

        self._send(node, lookup.request(keys), lookup.response_type, keys, on_answer)

    def _ask(
        self, broker: BrokerId, keys: tuple[K, ...], ask: Ask[K, V, A], *, stays: bool
    ) -> None:
        def on_answer(future: RequestFuture[A]) -> None:
            self._answered(keys)
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
                if outcome.name in _NOT_HERE and not stays:
                    self._keys[key].broker = None

        node = KnownNode(broker_name(broker), ADMIN)
        self._send(node, ask.request(keys), ask.response_type, keys, on_answer)

    def _send(
        self,
        node: KnownNode,
        request: AnyRequest,
        response_type: type[A],
        keys: tuple[K, ...],
        on_answer: Callable[[RequestFuture[A]], None],
    ) -> None:
        for key in keys:
            self._keys[key].is_asked = True
        left_us = self._deadline_us - self._host.now_us()
        timeout_us = min(self._request_timeout_us, left_us)
        future = self._network.send(
            node.name, node.purpose, request, response_type, timeout_us=timeout_us
        )
        future.add_listener(on_answer)
        future.add_listener(lambda _future: self._wakeup.set())

    def _answered(self, keys: tuple[K, ...]) -> None:
        for key in keys:
            self._keys[key].is_asked = False

    def _take_error(self, key: K, error: ClientError) -> None:
        if error.retriable:
            self._retry(key, error)
        else:
            self._finish(key, error)

    def _retry(self, key: K, error: ClientError) -> None:
        progress = self._keys[key]
        progress.error = error
        progress.retry_at_us = self._host.now_us() + self._backoff.delay_us(progress.attempts)
        progress.attempts += 1

    def _finish(self, key: K, outcome: V | ClientError) -> None:
        progress = self._keys[key]
        progress.outcome = outcome
        progress.is_done = True

    def _next_look_us(self) -> int:
        """Return when something is due unless an answer comes first."""
        waiting = (
            progress.retry_at_us
            for progress in self._keys.values()
            if not progress.is_done and not progress.is_asked
        )
        return min([self._deadline_us, *waiting])

    def _outcome(self, progress: _Progress[V]) -> V | ClientError:
        if progress.is_done:
            return progress.outcome  # type: ignore[return-value]  # _finish has set it
        name = TIMED_OUT if progress.error is None else progress.error.name
        return GaveUp(name, waited_us=self._host.now_us() - self._began_us)
