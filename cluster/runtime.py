"""Runtime: the interface through which an experiment starts, queries, disturbs and stops a cluster.

There are three runtimes: `virtual` (one process, simulated time), `local` (one process, real time)
and `ray` (many processes, real time). An experiment is a coroutine that awaits only methods of its
Runtime, so that the same experiment runs in all of them.

A Runtime offers the single steps of an experiment: start the cluster, kill a node, disturb a link
between nodes, ask for the cluster's state and so on. A Runtime does not know which faults an
experiment has, or what the experiment shows.
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
"""The name, in the trace, of the process that conducts the run."""

RowObserver = Callable[[TraceRow], None]
"""Called with each row of the trace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStatus:
    """A partition in the metadata of the active controller.

    `leader` is -1 if the partition has no leader.
    """

    leader: BrokerId
    leader_epoch: int
    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStatus:
    """A group in the memory of its coordinator.

    `offsets_partition` is the index of the group's partition of `__consumer_offsets`.
    """

    coordinator: BrokerId
    offsets_partition: int
    state: str
    generation: int
    members: tuple[str, ...]
    leader: str | None = None
    """Member id of the group's leader; None while the group has no leader."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberStatus:
    """A consumer's own view of its membership.

    `state` is the name of Kafka's MemberState. `waiting` are the consumer's requests without an
    answer. `ended_by` is the name of the error that ended the consumer's application; None if no
    error has ended it.
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
    ended_by: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperStatus:
    """A ZooKeeper server.

    `state` is LOOKING (for a leader), FOLLOWING or LEADING. `epoch` is the epoch of the server's
    leader; -1 while the server is looking for a leader. `zxid` is the newest transaction that the
    server has applied. `sessions` is the number of sessions that are open after this transaction.
    """

    state: str
    is_serving: bool
    epoch: int
    zxid: int
    sessions: int


class NodeState(StrEnum):
    """State of a node, which the runtime knows because it starts, kills and pauses nodes itself."""

    NOT_STARTED = "not started"  # the run starts it later
    UP = "up"
    STOPPING = "stopping"  # in a controlled shutdown
    PAUSED = "paused"
    DOWN = "down"


@dataclass(slots=True, kw_only=True)
class ClusterStatus:
    """The state of the cluster at one moment, as far as its nodes have answered.

    `nodes` has every node, because the runtime itself knows their states. In the other dicts, dead
    and paused nodes are missing. `groups` has an entry of a group for each broker that has loaded
    it. Normally this is one broker; if two brokers act as the group's coordinator, there are two
    entries. `controller` is the active controller.
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
    """Number of connections of each connected Kafka client."""
    refused_clients: dict[str, int] = field(default_factory=dict)
    """Number of connections of Kafka clients that a broker closed. The keys are texts of the form
    "<broker>: <reason>"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HitNode:
    """A node that was killed, paused or asked to stop.

    `incarnation` counts the node's starts from 0. `pid` is None if the node has no own process.
    """

    node: NodeName
    incarnation: int
    pid: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineEvent:
    """A machine did not answer for some time, although the experiment did nothing to it.

    `from_us` and `until_us` are on the run's clock; `until_us` is None while the silence lasts.
    `nodes` were on the machine when the silence began. `is_lost` is True if the run has given up
    the machine, and starts its nodes on other machines. If the run cannot continue without the
    machine, `ends_run` has the reason; otherwise it is "".
    """

    address: str
    from_us: int
    until_us: int | None
    nodes: tuple[NodeName, ...]
    is_lost: bool = False
    ends_run: str = ""

    @property
    def sentence(self) -> str:
        """The event as a sentence for reports."""
        machine = f"machine {self.address}"
        if self.is_lost:
            return f"{machine} was lost at {self.from_us / 1e6:.1f} s"
        if self.until_us is None:
            return f"{machine} has not answered since {self.from_us / 1e6:.1f} s"
        return (
            f"{machine} was disturbed from {self.from_us / 1e6:.1f} to {self.until_us / 1e6:.1f} s"
        )


class Runtime(ABC):
    """A cluster that an experiment starts, queries, disturbs and stops."""

    name: str
    """`virtual`, `local` or `ray`."""

    @abstractmethod
    def now_us(self) -> int:
        """Return the microseconds since the run began, by the run's own clock, without drift."""

    @abstractmethod
    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run `main` to its end on this runtime's loop and return its result.

        Raises: the exceptions of `main`; KeyboardInterrupt after a Ctrl-C. After an exception,
        `run` may be called again, with a coroutine that ends all faults and stops the cluster.
        """

    @abstractmethod
    async def sleep(self, delay_us: int) -> None:
        """Wait for `delay_us` of the run's clock."""

    @abstractmethod
    async def start(self, *, apart: bool = False) -> None:
        """Start every node; return when the processes run, long before the groups are stable.

        In virtual time all nodes start at the same moment, so their timers would fire together
        during the whole run. If `apart` is True, the nodes start at random moments instead, and
        their timers begin as if the cluster had run for long. In real time `apart` has no effect.

        Raises: ClusterStartError if a node cannot be started; the nodes that were started are
        stopped before that.
        """

    def out_of_step_us(self) -> int:
        """Return how long to wait, once all groups are stable, before the first fault is planned.

        In virtual time the wait is random. Without the wait, a fault would hit the members at the
        same point between two heartbeats in every run. In real time the wait is 0.
        """
        return 0

    @abstractmethod
    async def status(self) -> ClusterStatus:
        """Return the cluster's present state. No fault disturbs this query."""

    def bootstrap_servers(self) -> tuple[str, ...]:
        """Return the addresses ("host:port") at which real Kafka clients reach the brokers.

        There are none in virtual time, and without ClusterSpec.listener.
        """
        return ()

    # -- lives of nodes; UnknownNode is raised if the node does not exist or is in a wrong state --

    @abstractmethod
    async def start_node(self, node: NodeName) -> None:
        """Start a node whose spec says `starts_later`."""

    @abstractmethod
    async def crash(self, node: NodeName) -> HitNode:
        """Kill the node's process as `kill -9` does; its disk keeps what was appended."""

    @abstractmethod
    async def power_loss(self, node: NodeName) -> HitNode:
        """Kill the node's process, and remove from its logs all bytes that were not flushed."""

    @abstractmethod
    async def shut_down(self, node: NodeName) -> HitNode:
        """Ask the node to stop, as SIGTERM does; return before the node has stopped.

        Before it stops, a broker makes others the leaders of its partitions, and a consumer leaves
        its group.
        """

    @abstractmethod
    async def restart(self, node: NodeName, *, empty_disk: bool = False) -> None:
        """Start a dead node again, on its disk or on an empty one, as a new incarnation."""

    @abstractmethod
    async def pause(self, node: NodeName) -> HitNode:
        """Stop the node as SIGSTOP does, so that its connections stay open and silent."""

    @abstractmethod
    async def resume(self, node: NodeName) -> None:
        """Let a paused node continue. Its timers fire first; then it gets the waiting messages."""

    # -- links --

    @abstractmethod
    async def set_link_rules(self, rules: Sequence[LinkRule]) -> None:
        """Replace all link rules; returns when both ends of each rule apply them.

        A node that starts later gets the rules before it runs, a paused node before it continues.
        """

    @abstractmethod
    async def reset_links(
        self,
        sources: Sequence[NodeName],
        destinations: Sequence[NodeName],
        purposes: Sequence[str] = (),
    ) -> int:
        """Close the connections between the two sets of nodes; return their number.

        A node has a separate connection for each purpose, such as heartbeats. If `purposes` are
        given, only connections for these purposes are closed. Messages in flight are lost, and both
        ends see Disconnected.
        """

    # -- the administrator --

    @abstractmethod
    async def ask_as_admin(
        self,
        question: Callable[Concatenate[Host, ClusterSpec, P], Awaitable[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Run `question` as the administrator (the node "admin-0"), and return its result.

        The administrator reaches the brokers over the same network as a client. The functions for
        `question` are in `cluster.client.admin.orders`. The function and its arguments must be
        picklable, because they may run in another process.

        Raises: the exceptions of `question`.
        """

    @abstractmethod
    def trace(self, event: TraceEvent) -> None:
        """Write an event of the run itself; its trace row is of the node "driver"."""

    @abstractmethod
    async def stop(self) -> None:
        """Stop every node and collect their traces. May be called twice, and after errors."""

    @property
    def clock_error_us(self) -> int:
        """Largest possible difference between two nodes' clocks; 0 if they share one clock."""
        return 0

    @property
    def machine_events(self) -> tuple[MachineEvent, ...]:
        """The MachineEvents so far, including those that have not ended."""
        return ()

    async def settle_contact(self) -> None:  # noqa: B027 - most runtimes have one machine
        """Wait until every machine has answered, or is in `machine_events`.

        The run calls this after a failure, because a failure that a lost machine has caused is not
        counted as a failure of this tool.
        """

    @property
    def nodes_without_trace(self) -> tuple[NodeName, ...]:
        """Nodes whose rows were lost with a machine; complete once the cluster was stopped."""
        return ()

    @property
    def losses(self) -> tuple[str, ...]:
        """Sentences on missing parts of the trace; complete once the cluster was stopped."""
        return ()

    @property
    def disk_trouble(self) -> str | None:
        """Sentence on the first write that a node's disk refused; None without such a write."""
        return None

    @abstractmethod
    def failures(self) -> tuple[str, ...]:
        """Return the tool's own failures so far, such as tasks that died.

        They are never a verdict about Kafka.
        """


class ClusterStartError(Exception):
    """A node could not be started; the message has the node and the reason."""


class UnknownNode(SimulationError):
    """A named node does not exist, or is not in the state that the step requires."""


class NodeTaskFailed(SimulationError):
    """A node's task or callback raised an exception, which is a bug of this project.

    The run ends; its trace has a TASK_FAILED row.
    """
