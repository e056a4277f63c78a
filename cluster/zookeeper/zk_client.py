"""The library zkclient, through which Kafka's old consumer used ZooKeeper.

A ZooKeeperHandle is one session. Once the session has expired, the handle is of no use. ZkClient
then opens a new session. It repeats each operation until a server has answered.

A ZkClient also has listeners: functions that are called when the znode at a path has changed.
ZooKeeper reports a change by the event of a watch, which fires only once. The events wait in a
queue. One coroutine, the "event thread" of zkclient, handles the events in order. Before it calls a
listener, it reads the path again, and this read sets the watch again. If a listener fails, the
error is logged, and the next event is handled. Ids such as ZK-22 are rules in
docs/kafka/ZOOKEEPER_CONSUMER.md.

Source: zkclient 0.10 `ZkClient`, `ZkEventThread`; ZK-21 to ZK-24.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from cluster.client.net.futures import Wakeup
from cluster.host.host import Host
from cluster.zookeeper.client import KeeperException, KeeperState, ZooKeeperHandle
from cluster.zookeeper.znodes import parent_of
from protocol.errors import SimulationError
from protocol.ids import NodeName
from protocol.messages.zookeeper import (
    CreateRequest,
    DeleteRequest,
    ExistsRequest,
    ExistsResponse,
    GetChildrenRequest,
    GetChildrenResponse,
    GetDataRequest,
    GetDataResponse,
    KeeperError,
    SessionId,
    SetDataRequest,
    WatcherEvent,
    WatchType,
    ZooKeeperRequest,
    ZooKeeperResponse,
    Zxid,
)

ChildListener = Callable[[str], Awaitable[None]]
"""Called with a path whose list of children has changed."""
DataListener = Callable[[str], Awaitable[None]]
"""Called with a path whose data has changed."""

# Events after which the child listeners of a path are called.
_CHILD_EVENTS = (
    WatchType.NODE_CHILDREN_CHANGED,
    WatchType.NODE_CREATED,
    WatchType.NODE_DELETED,
)
# Events after which the data listeners of a path are called.
_DATA_EVENTS = (WatchType.NODE_DATA_CHANGED, WatchType.NODE_CREATED, WatchType.NODE_DELETED)
_RETRIED = (KeeperError.ConnectionLoss, KeeperError.SessionExpired)
"""Errors after which an operation is carried out again."""


class ListenerFailed(Exception):
    """A listener failed; the event thread logs the error and continues (ZK-21)."""


class ZkClient:
    """A program's access to the ZooKeeper servers, with one session after the other."""

    def __init__(self, host: Host, servers: Sequence[NodeName], session_timeout_ms: int) -> None:
        """Begin to connect."""
        self.notifications = 0
        """Number of watch events so far."""
        self.on_new_session: Callable[[], Awaitable[None]] | None = None
        """Awaited in the event thread after each expiry of the session."""
        self._host = host
        self._servers = tuple(servers)
        self._session_timeout_ms = session_timeout_ms
        self._child_listeners: dict[str, list[ChildListener]] = {}
        self._data_listeners: dict[str, list[DataListener]] = {}
        self._events: deque[tuple[str, Callable[[], Awaitable[None]]]] = deque()
        """The events that the event thread must still handle: (description, function to await)."""
        self._event_wakeup = Wakeup(host)
        self._waiters: list[Wakeup] = []
        """Coroutines that wait for a connection."""
        self._is_closed = False
        self._handle = self._open()
        host.spawn(self._run_events(), name="ZkEventThread")

    @property
    def session_id(self) -> SessionId:
        """Id of the present session; NO_SESSION until it is open."""
        return self._handle.session_id

    @property
    def last_zxid(self) -> Zxid:
        """The newest transaction that an answer of the present session has shown."""
        return self._handle.last_zxid

    @property
    def is_connected(self) -> bool:
        """True if the present session has a connection."""
        return self._handle.is_connected

    # -- operations ------------------------------------------------------------------------------

    async def create(self, path: str, data: str, *, ephemeral: bool = False) -> None:
        """Create a znode. Raises: KeeperException."""
        await self._retry(CreateRequest(path=path, data=data, ephemeral=ephemeral))

    async def create_with_parents(self, path: str, data: str, *, ephemeral: bool = False) -> None:
        """Create a znode; if its parents are missing, create them first, as persistent znodes."""
        try:
            await self.create(path, data, ephemeral=ephemeral)
        except KeeperException as error:
            if error.code is not KeeperError.NoNode:
                raise
            await self.make_path(parent_of(path))
            await self.create(path, data, ephemeral=ephemeral)

    async def make_path(self, path: str) -> None:
        """Create a persistent, empty znode and its missing parents; do nothing if it exists."""
        try:
            await self.create_with_parents(path, "")
        except KeeperException as error:
            if error.code is not KeeperError.NodeExists:
                raise

    async def delete(self, path: str) -> bool:
        """Delete a znode, even one of another session (ZK-08); return True if there was one."""
        try:
            await self._retry(DeleteRequest(path=path))
        except KeeperException as error:
            if error.code is KeeperError.NoNode:
                return False
            raise
        return True

    async def write(self, path: str, data: str) -> None:
        """Set a znode's data; create a missing znode, and its parents, as persistent znodes."""
        try:
            await self._retry(SetDataRequest(path=path, data=data))
        except KeeperException as error:
            if error.code is not KeeperError.NoNode:
                raise
            # As in zkclient, a request to create the parent is sent even if the parent exists; the
            # request then changes nothing. If another client creates the znode meanwhile, the data
            # is replaced.
            await self.make_path(parent_of(path))
            try:
                await self.create(path, data)
            except KeeperException as created:
                if created.code is not KeeperError.NodeExists:
                    raise
                await self._retry(SetDataRequest(path=path, data=data))

    async def read(self, path: str) -> GetDataResponse:
        """Return a znode's data. Raises: KeeperException (NoNode)."""
        request = GetDataRequest(path=path, watch=self._is_listened_to(path))
        answer = await self._retry(request)
        if not isinstance(answer, GetDataResponse):
            raise SimulationError(f"getData answered {type(answer).__name__}")
        return answer

    async def children(self, path: str) -> tuple[str, ...]:
        """Return a znode's children. Raises: KeeperException (NoNode)."""
        request = GetChildrenRequest(path=path, watch=self._is_listened_to(path))
        answer = await self._retry(request)
        if not isinstance(answer, GetChildrenResponse):
            raise SimulationError(f"getChildren answered {type(answer).__name__}")
        return answer.children

    async def exists(self, path: str) -> bool:
        """Return True if there is a znode."""
        try:
            answer = await self._retry(ExistsRequest(path=path, watch=self._is_listened_to(path)))
        except KeeperException as error:
            if error.code is KeeperError.NoNode:
                return False
            raise
        if not isinstance(answer, ExistsResponse):
            raise SimulationError(f"exists answered {type(answer).__name__}")
        return True

    async def wait_until_connected(self) -> None:
        """Wait for a connection, without a time limit."""
        wakeup = Wakeup(self._host)
        while not self._handle.is_connected and not self._is_closed:
            self._waiters.append(wakeup)
            await wakeup.wait(None)  # None: no time limit

    async def _retry(self, request: ZooKeeperRequest) -> ZooKeeperResponse:
        """Carry out an operation, with retries until a server answers (ZK-23).

        A retry uses the present session, which may be newer than the session of the first attempt.
        """
        while True:
            try:
                return await self._handle.call(request)
            except KeeperException as error:
                if error.code not in _RETRIED or self._is_closed:
                    raise
            await self.wait_until_connected()

    # -- listeners -------------------------------------------------------------------------------

    async def subscribe_child_changes(self, path: str, listener: ChildListener) -> None:
        """Call `listener` when the child list of `path` changes; two reads set the watches."""
        self._child_listeners.setdefault(path, []).append(listener)
        await self._watch_children(path)

    async def subscribe_data_changes(self, path: str, listener: DataListener) -> None:
        """Call `listener` when the data of `path` changes; one read sets the watch."""
        self._data_listeners.setdefault(path, []).append(listener)
        await self.exists(path)

    def unsubscribe_all(self) -> None:
        """Remove all listeners. Events that are queued already still call their listeners."""
        self._child_listeners.clear()
        self._data_listeners.clear()
        self.on_new_session = None

    def close(self, on_closed: Callable[[], None]) -> None:
        """Close the session; all of its ephemeral znodes are deleted at once (ZK-59)."""
        self._is_closed = True
        self._events.clear()
        self._event_wakeup.set()
        self._wake_waiters()
        self._handle.close(on_closed)

    def _is_listened_to(self, path: str) -> bool:
        """Return True if `path` has a listener. Each read of such a path sets a watch (ZK-22)."""
        return bool(self._child_listeners.get(path) or self._data_listeners.get(path))

    # -- the event thread ------------------------------------------------------------------------

    def _open(self) -> ZooKeeperHandle:
        """Begin a new session."""
        return ZooKeeperHandle(
            self._host,
            self._servers,
            self._session_timeout_ms,
            on_state=self._state_changed,
            on_event=self._event,
        )

    def _state_changed(self, state: KeeperState) -> None:
        """Wake waiting operations; after an expiry open a new session."""
        if state is KeeperState.SYNC_CONNECTED:
            self._wake_waiters()
        if state is KeeperState.EXPIRED and not self._is_closed:
            # The order matters (ZK-24):
            # 1. Open a new session: the listeners need it.
            # 2. Queue `on_new_session`: the consumer registers again.
            # 3. Queue all listeners: changes during the expired session fired no watch.
            self._handle = self._open()
            if self.on_new_session is not None:
                self._queue("new session", self.on_new_session)
            self._fire_all()

    def _wake_waiters(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            waiter.set()

    def _event(self, event: WatcherEvent) -> None:
        """Queue the listeners of the changed path."""
        self.notifications += 1
        if event.event_type in _CHILD_EVENTS:
            self._fire_children(event.path)
        if event.event_type in _DATA_EVENTS:
            self._fire_data(event.path)

    def _fire_all(self) -> None:
        """Queue all listeners, as if every path had changed."""
        for path in self._child_listeners:
            self._fire_children(path)
        for path in self._data_listeners:
            self._fire_data(path)

    async def _watch_children(self, path: str) -> None:
        """Set a watch on `path`, and a watch on its list of children, by two reads."""
        await self.exists(path)
        try:
            await self.children(path)
        except KeeperException as error:
            if error.code is not KeeperError.NoNode:
                raise

    def _fire_children(self, path: str) -> None:
        """Queue a call of each child listener of `path`, with two reads before it."""
        for listener in self._child_listeners.get(path, ()):
            # `listener=listener`, because otherwise every `run` would call the last listener of the
            # loop.
            async def run(listener: ChildListener = listener) -> None:
                # The watch is set again before the call, so that the listener misses no later
                # change (ZK-22).
                await self._watch_children(path)
                await listener(path)

            self._queue(f"children of {path} changed", run)

    def _fire_data(self, path: str) -> None:
        """Queue a call of each data listener of `path`, with two reads before it."""
        for listener in self._data_listeners.get(path, ()):

            async def run(listener: DataListener = listener) -> None:
                # One read would be enough to set the watch, but zkclient sends both requests.
                await self.exists(path)
                await self.read(path)
                await listener(path)

            self._queue(f"data of {path} changed", run)

    def _queue(self, description: str, run: Callable[[], Awaitable[None]]) -> None:
        self._events.append((description, run))
        self._event_wakeup.set()

    async def _run_events(self) -> None:
        """Call the queued listeners one after the other, until the client is closed."""
        while not self._is_closed:
            if not self._events:
                await self._event_wakeup.wait(None)
                continue
            description, run = self._events.popleft()
            try:
                await run()
            except (KeeperException, ListenerFailed) as error:
                self._host.log(f"Error handling event {description}: {error}")
