"""What an experiment sees of a running cluster: the same interface over virtual time and Ray.

An experiment is a coroutine that only awaits this; in virtual time it runs on the virtual loop,
on Ray on a real one. Nothing here knows what a fault or a verdict is.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Concatenate, ParamSpec, TypeVar

from cluster.host.host import Host, WaitingRequest
from cluster.links.rules import LinkRule
from cluster.spec import ClusterSpec
from protocol.errors import SimulationError
from protocol.ids import BrokerId, NodeName, TopicPartition
from protocol.trace import TraceEvent, TraceRow

P = ParamSpec("P")
T = TypeVar("T")

DRIVER = NodeName("driver")
"""The node under which a run traces its own events."""

RowObserver = Callable[[TraceRow], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStatus:
    """A partition as the active controller has it. `leader` -1: none."""

    leader: BrokerId
    leader_epoch: int
    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStatus:
    """A group as the broker that coordinates it has it. `offsets_partition` is the index."""

    coordinator: BrokerId
    offsets_partition: int
    state: str
    generation: int
    members: tuple[str, ...]
    leader: str | None = None
    """Member id of the group's leader; None while it has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberStatus:
    """A consumer as it sees itself. `state` is Kafka's MemberState name.

    Shape: `waiting` are the requests that it has no answer to.
    """

    group_id: str
    member_id: str
    generation: int
    state: str
    coordinator: BrokerId | None
    assigned: tuple[TopicPartition, ...]
    records_consumed: int
    commits_acknowledged: int
    waiting: tuple[WaitingRequest, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperStatus:
    """A server of the ensemble. `state` is LOOKING, FOLLOWING or LEADING.

    Shape: `epoch` is its leader's, -1 while it looks; `zxid` and `sessions` are what it has
    applied.
    """

    state: str
    is_serving: bool
    epoch: int
    zxid: int
    sessions: int


class NodeState(StrEnum):
    """What a runtime itself knows of a node, whatever the cluster believes."""

    NOT_STARTED = "not started"  # it joins later
    UP = "up"
    STOPPING = "stopping"  # in a controlled shutdown
    PAUSED = "paused"
    DOWN = "down"


@dataclass(slots=True, kw_only=True)
class ClusterStatus:
    """One look at the cluster; nodes that cannot answer (dead, paused) are missing.

    `nodes` has every node of the cluster, by the runtime's own knowledge. `groups` holds one entry
    per broker that has the group loaded: two in a split brain. `controller` is the active one.
    """

    nodes: dict[NodeName, NodeState] = field(default_factory=dict)
    controller: NodeName | None = None

    brokers_alive: dict[BrokerId, bool] = field(default_factory=dict)
    brokers_fenced: dict[BrokerId, bool] = field(default_factory=dict)
    partitions: dict[TopicPartition, PartitionStatus] = field(default_factory=dict)
    groups: dict[str, list[GroupStatus]] = field(default_factory=dict)
    members: dict[NodeName, MemberStatus] = field(default_factory=dict)
    records_produced: int = 0
    zookeepers: dict[NodeName, ZooKeeperStatus] = field(default_factory=dict)
    kafka_clients: dict[NodeName, int] = field(default_factory=dict)
    """Kafka clients that are connected, with their numbers of connections."""
    refused_clients: dict[str, int] = field(default_factory=dict)
    """Broker and reason for which it ended connections of Kafka clients, with the number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HitNode:
    """What a fault hit. `pid` is the process that was meant; None where it has none of its own."""

    node: NodeName
    incarnation: int
    pid: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineEvent:
    """A machine that did not answer the driver, by accident.

    Units: microseconds of the run's clock; `until_us` is None while it does not answer.
    Shape: `nodes` were on it when the silence began. `is_lost`: it is not waited for any more, and
    its nodes start elsewhere; `ends_run` says why nothing can go on without it, "" if the run can.
    """

    address: str
    from_us: int
    until_us: int | None
    nodes: tuple[NodeName, ...]
    is_lost: bool = False
    ends_run: str = ""

    @property
    def sentence(self) -> str:
        """What happened, for people."""
        who = f"machine {self.address}"
        if self.is_lost:
            return f"{who} was lost at {self.from_us / 1e6:.1f} s"
        if self.until_us is None:
            return f"{who} does not answer since {self.from_us / 1e6:.1f} s"
        return f"{who} was disturbed from {self.from_us / 1e6:.1f} to {self.until_us / 1e6:.1f} s"


class Runtime(ABC):
    """A cluster that can be started, looked at, broken and stopped."""

    name: str
    """`virtual` or `ray`."""

    @abstractmethod
    def now_us(self) -> int:
        """Return the run's undrifted clock: microseconds since the run began."""

    @abstractmethod
    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run `main` to its end on this runtime's loop and return its result.

        Raises: what `main` raises; KeyboardInterrupt after a Ctrl-C. May be called again after
        either, so that a run can be healed and stopped.
        """

    @abstractmethod
    async def sleep(self, delay_us: int) -> None:
        """Wait on the run's clock."""

    @abstractmethod
    async def start(self, *, apart: bool = False) -> None:
        """Start every node; returns when their processes are up, long before groups are stable.

        `apart`: in virtual time, at moments drawn from the seed, and as if the cluster had stood
        for long; otherwise at once. Real processes start as they do.
        Raises: ClusterStartError if a node cannot be started; whatever was started is stopped.
        """

    def out_of_step_us(self) -> int:
        """Return for how long a steady state is left alone before its time is zero.

        In virtual time it is drawn from the seed, so that no plan begins in step with the members'
        timers; nothing where time is real.
        """
        return 0

    @abstractmethod
    async def status(self) -> ClusterStatus:
        """Look at the cluster. Touched by no fault."""

    def bootstrap_servers(self) -> tuple[str, ...]:
        """Return "host:port" of the listener of each broker that is up, as clients reach it.

        Empty without ClusterSpec.listener, and in virtual time.
        """
        return ()

    # -- lives: each raises UnknownNode if there is no such node, or not in the state it needs --

    @abstractmethod
    async def start_node(self, node: NodeName) -> None:
        """Start a node whose spec says `starts_later`."""

    @abstractmethod
    async def crash(self, node: NodeName) -> HitNode:
        """Kill the node's process as `kill -9` does; its disk keeps what was appended."""

    @abstractmethod
    async def power_loss(self, node: NodeName) -> HitNode:
        """Kill the node's process and cut its logs back to what was flushed."""

    @abstractmethod
    async def shut_down(self, node: NodeName) -> HitNode:
        """Ask the node to stop as SIGTERM does, and return at once; it is DOWN when it is done.

        A broker moves its leaderships first (controlled shutdown), a consumer leaves its group.
        """

    @abstractmethod
    async def restart(self, node: NodeName, *, empty_disk: bool = False) -> None:
        """Start a dead node again, on its disk or on an empty one, as a new incarnation."""

    @abstractmethod
    async def pause(self, node: NodeName) -> HitNode:
        """Stop the node as SIGSTOP does: its connections stay open and silent."""

    @abstractmethod
    async def resume(self, node: NodeName) -> None:
        """Let a paused node go on: first its due timers fire, then what waited is delivered."""

    # -- links --

    @abstractmethod
    async def set_link_rules(self, rules: Sequence[LinkRule]) -> None:
        """Replace all link rules; returns when both ends of each rule have them in force.

        A node that is started later gets them before it runs. A paused one has them when it goes
        on.
        """

    @abstractmethod
    async def reset_links(
        self,
        sources: Sequence[NodeName],
        destinations: Sequence[NodeName],
        purposes: Sequence[str] = (),
    ) -> int:
        """End all connections, of `purposes` if any are named, between the two sets of nodes.

        What is in flight on them is lost, both ends see Disconnected. Returns how many there were.
        """

    # -- the administrator --

    @abstractmethod
    async def ask_as_admin(
        self,
        question: Callable[Concatenate[Host, ClusterSpec, P], Awaitable[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Ask or order something through the cluster's own network, with the host of "admin-0".

        Shape: `question` and what it is called with can be pickled: it may run in another process.
        `cluster.client.admin.orders` has those that exist. Raises: what `question` raises.
        """

    @abstractmethod
    def trace(self, event: TraceEvent) -> None:
        """Write an event of the run itself (node "driver")."""

    @abstractmethod
    async def stop(self) -> None:
        """Stop every node and collect what they traced. May be called twice, and after errors."""

    @property
    def clock_error_us(self) -> int:
        """Return how far apart the clocks of two nodes may be at most; 0 where there is one."""
        return 0

    @property
    def machine_events(self) -> tuple[MachineEvent, ...]:
        """Return the machines that did not answer so far; the last of them may still change."""
        return ()

    async def settle_contact(self) -> None:  # noqa: B027 - most runtimes have one machine
        """Wait until it is known of every machine whether it answers.

        Asked after a failure: what a lost machine makes fail is no failure of the tool.
        """

    @property
    def nodes_without_trace(self) -> tuple[NodeName, ...]:
        """Return the nodes of which rows were lost with a machine, once the cluster was stopped."""
        return ()

    @property
    def losses(self) -> tuple[str, ...]:
        """Return what of the trace is missing, in words, once the cluster was stopped."""
        return ()

    @property
    def disk_trouble(self) -> str | None:
        """Return the first write that a disk refused to a node, in words; None if there is none."""
        return None

    @abstractmethod
    def failures(self) -> tuple[str, ...]:
        """Return the tool's own failures so far (tasks that died): never a verdict about Kafka."""


class ClusterStartError(Exception):
    """A node could not be started; names the node and why."""


class UnknownNode(SimulationError):
    """A node was named that does not exist, or not in the state that was asked for."""


class NodeTaskFailed(SimulationError):
    """A node's task or callback died: our bug. The run is over; its trace says TASK_FAILED."""
