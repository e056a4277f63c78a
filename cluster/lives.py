"""The acts that begin, interrupt and end the lives of nodes, such as a start, a pause or a kill.

Each runtime starts and ends nodes in its own way, but the acts and their rules are the same in all
runtimes. An act is legal only in some states of the node. For example, a node that is down cannot
be killed. An act that is not legal is refused with a message.

A start of a node begins an *incarnation*, which ends when the node is killed or has shut down. A
NodeLife is the node with all its incarnations.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Generic, TypeVar

from cluster.host.host import Host
from cluster.node_factory import Node
from cluster.runtime import ClusterStatus, NodeState, UnknownNode
from cluster.spec import BrokerSpec, ClusterSpec, NodeSpec
from protocol.causes import KillCause
from protocol.ids import BrokerId, NodeName
from protocol.trace import TraceEvent, TraceKind

ADMIN_NODE = NodeName("admin-0")
"""The administrator's node. The runtime itself runs it, to send requests to brokers for
Runtime.ask_as_admin."""

NodeBuilder = Callable[[NodeSpec, ClusterSpec, Host], Node]
"""Creates a node on a Host, without starting it; normally `node_factory.build_node`."""


class LifeAct(Enum):
    """An act on a node, such as a kill.

    The value of each act has three parts:

    1. the states of the node in which the act is legal;
    2. the end of the message with which it is refused in the other states, as in "broker-0 is down
       already and cannot be killed";
    3. the kind of the row that the runtime writes for the act into the trace (the run's record of
       events); None for a start or restart, because the node itself writes a row when it starts.
    """

    START = ((NodeState.NOT_STARTED,), "and cannot be started", None)
    RESTART = ((NodeState.DOWN,), "and cannot be restarted", None)
    KILL = (
        (NodeState.UP, NodeState.STOPPING, NodeState.PAUSED),
        "already and cannot be killed",
        TraceKind.NODE_KILLED,
    )
    SHUT_DOWN = ((NodeState.UP,), "and cannot be shut down", TraceKind.NODE_STOPPING)
    PAUSE = ((NodeState.UP, NodeState.STOPPING), "and cannot be paused", TraceKind.NODE_PAUSED)
    RESUME = ((NodeState.PAUSED,), "and cannot be resumed", TraceKind.NODE_RESUMED)

    def __init__(
        self, legal_in: tuple[NodeState, ...], refusal: str, traced: TraceKind | None
    ) -> None:
        self.legal_in = legal_in
        self.refusal = refusal
        self.traced = traced

    def check(self, node: NodeName, state: NodeState) -> None:
        """Raise UnknownNode if this act is not legal in the state of `node`."""
        if state not in self.legal_in:
            raise UnknownNode(f"{node} is {state} {self.refusal}")


class NodeLife(ABC):
    """What the runtime knows of a node. Each runtime adds its own data."""

    def __init__(self, name: NodeName, spec: NodeSpec) -> None:
        self.name = name
        self.spec = spec
        self.incarnations = 0
        """Number of incarnations so far."""

    @property
    @abstractmethod
    def live_state(self) -> NodeState | None:
        """UP, STOPPING or PAUSED; None while no incarnation lives.

        A node that was paused during a shutdown is PAUSED.
        """

    @property
    def state(self) -> NodeState:
        """State of the node, as the runtime knows it."""
        live = self.live_state
        if live is not None:
            return live
        return NodeState.DOWN if self.incarnations > 0 else NodeState.NOT_STARTED


L = TypeVar("L", bound=NodeLife)


class NodeLives(Generic[L]):
    """Every node of a run, by name. `trace` writes a trace row of the runtime itself."""

    def __init__(
        self,
        cluster: ClusterSpec,
        lives: Iterable[L],
        *,
        build: NodeBuilder,
        trace: Callable[[TraceEvent], None],
    ) -> None:
        self._cluster = cluster
        self._build = build
        self._trace_act = trace
        self._lives = {life.name: life for life in lives}

    def states(self) -> dict[NodeName, NodeState]:
        """Return the state of every node."""
        return {name: life.state for name, life in self._lives.items()}

    def _status(self) -> ClusterStatus:
        """Return a status with the states of the nodes, to which the nodes add what they know."""
        states = self.states()
        dead = (NodeState.DOWN, NodeState.NOT_STARTED)
        return ClusterStatus(
            nodes=states,
            brokers_alive={
                BrokerId(life.spec.broker_id): states[name] not in dead
                for name, life in self._lives.items()
                if isinstance(life.spec, BrokerSpec)
            },
        )

    def _begin(self, node: NodeName, act: LifeAct, *, cause: KillCause | None = None) -> L:
        """Check that `act` is legal, write its trace row, and return the node's life.

        The caller then carries the act out. `cause` says why a node is killed; None for a crash.
        Raises: UnknownNode if there is no such node, or the act is not legal in its state.
        """
        life = self._life(node)
        act.check(node, life.state)
        if act.traced is not None:
            self._trace_act(TraceEvent(kind=act.traced, peer=node, cause=cause))
        return life

    def _life(self, node: NodeName) -> L:
        life = self._lives.get(node)
        if life is None:
            raise UnknownNode(f"no node {node}; there are {', '.join(self._lives)}")
        return life
