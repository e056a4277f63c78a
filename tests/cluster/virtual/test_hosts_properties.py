"""Three nodes that send requests to one another, under random faults.

Hypothesis draws a list of steps, for example: a sends a request to b, b gets a link rule, b is
paused, 2 ms pass, b crashes. `play` carries the steps out in a `World`, heals all faults, and waits
until everything has settled. Then the tests check what must always be true: each request has one
outcome, and no connection is half open.

The nodes are plain hosts, without brokers or consumers. Everything that travels between two hosts
is a frame. A link rule holds frames back (a cut or a clog) or delays them (a slow link). A host has
a gate, where the frames wait that a rule holds back. It also has a backlog, for the frames that
arrive during a pause.

A link has a host at each end. On real machines the two may get a rule at different times. The
tests do this, too: a step gives rules to some of the nodes only.
"""

from dataclasses import dataclass, field

from hypothesis import example, given
from hypothesis import strategies as st

from cluster.host.client_connection import ClientConnection
from cluster.host.connections import ConnectionEnd
from cluster.host.host import Connection, Disconnected, RequestTimedOut
from cluster.host.incoming_request import IncomingRequest
from cluster.links.rules import Clog, Cut, LinkRule, Slow
from cluster.spec import LinkModel
from cluster.virtual.host import VirtualHost
from protocol.api import AnyRequest, AnyResponse
from protocol.ids import NodeName
from protocol.messages.discovery import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
    MetadataResponseTopic,
)
from tests.support.builders.link_frames import A, B, C, rule
from tests.support.harness.virtual_hosts import HostLab

NODES = (A, B, C)
PAIRS = ((A, B), (B, A), (A, C), (C, B))
"""The pairs of nodes between which connections, rules and resets are drawn."""
PURPOSES = ("coordinator", "client")
SETUP_US = 20_000
"""Timeout for opening a connection."""
TIMEOUT_US = 30_000
"""Timeout of a request."""
SETTLING_US = 1_000_000
"""Longer than all timeouts and delays here, so every request has an outcome after this time."""


@dataclass(frozen=True)
class Connect:
    """A node opens a connection."""

    node: NodeName
    peer: NodeName
    purpose: str


@dataclass(frozen=True)
class Send:
    """A client sends a request on one of the connections.

    `connection` is the index of the connection in the list of all connections. If there are fewer,
    the count begins again: of three connections, index 4 is the second one. The request is a
    FindCoordinator if `finds` is True, or else a Metadata request. A `parked` request is answered
    late.
    """

    connection: int
    finds: bool
    parked: bool


@dataclass(frozen=True)
class Close:
    """A client closes a connection. The index is as in `Send`."""

    connection: int


@dataclass(frozen=True)
class SetRules:
    """These rules replace the present rules of some nodes."""

    nodes: tuple[NodeName, ...]
    rules: tuple[LinkRule, ...]


@dataclass(frozen=True)
class NodeFault:
    """A fault of one node, or the end of a fault: pause, resume, crash or restart."""

    node: NodeName
    kind: str


@dataclass(frozen=True)
class Reset:
    """The connections between two nodes end."""

    node: NodeName
    peer: NodeName
    purposes: tuple[str, ...]


@dataclass(frozen=True)
class Wait:
    """Time passes."""

    duration_us: int


Step = Connect | Send | Close | SetRules | NodeFault | Reset | Wait


@dataclass
class SentRequest:
    """A request with its outcomes, such as "answered", and the number of times it was served."""

    number: int
    """The index of the request in `World.requests`."""
    connection: Connection
    outcomes: list[str] = field(default_factory=list)
    served: int = 0


class World:
    """Three nodes, each of them client and server."""

    def __init__(self) -> None:
        # A frame takes 100 to 300 us. One frame in five takes up to 2 ms more.
        model = LinkModel(base_us=100, jitter_us=200, tail_us=2_000, tail_one_in=5)
        self.lab = HostLab(model)
        self.incarnations = dict.fromkeys(NODES, -1)  # `start` adds 1, so the first is 0
        self.rules: dict[NodeName, tuple[LinkRule, ...]] = dict.fromkeys(NODES, ())
        self.hosts: dict[NodeName, VirtualHost] = {}
        self.connections: list[tuple[VirtualHost, ClientConnection]] = []
        self.requests: list[SentRequest] = []
        self.served: dict[tuple[NodeName, int, int], list[int]] = {}
        """The numbers of the served requests, in the order in which they were served.

        The key is the client, the id of its connection, and the incarnation (life) of the server.
        """
        for node in NODES:
            self.start(node)

    def start(self, node: NodeName) -> None:
        """Start a node that is down, and give it the present rules."""
        if node in self.hosts:
            return
        self.incarnations[node] += 1
        host = self.hosts[node] = self.lab.host(node, self.incarnations[node], traced=False)
        host.set_link_rules(self.rules[node])
        host.serve(lambda request: self._serve(host, request))

    def crash(self, node: NodeName) -> None:
        """Kill a node that is up."""
        host = self.hosts.pop(node, None)
        if host is not None:
            host.crash()

    def connect(self, node: NodeName, peer: NodeName, purpose: str) -> None:
        """Open a connection. Do nothing if the node is down or paused, or is its own peer."""
        host = self.hosts.get(node)
        if host is None or host.is_paused or node == peer:
            return
        connection = host.connect(peer, purpose, setup_timeout_us=SETUP_US)
        assert isinstance(connection, ClientConnection)
        self.connections.append((host, connection))

    def send(self, index: int, *, finds: bool = True, parked: bool = False) -> SentRequest | None:
        """Send a request on a connection; do nothing if its node is down or paused.

        The arguments are the fields of `Send`. Returns the request, or None if nothing was sent.
        """
        host, connection = self.connections[index % len(self.connections)]
        if not host.alive or host.is_paused:
            return None
        sent = SentRequest(len(self.requests), connection)
        self.requests.append(sent)
        # Give the request a name, such as "parked 7" or "at once 7". The name takes the place of
        # the key of a FindCoordinator, or of the topic of a Metadata request. The answer has it,
        # too.
        when = "parked" if parked else "at once"
        name = f"{when} {sent.number}"
        request: AnyRequest
        if finds:
            request = FindCoordinatorRequest(coordinator_keys=(name,))
        else:
            request = MetadataRequest(topics=(name,))

        def on_response(outcome: AnyResponse | Disconnected | RequestTimedOut) -> None:
            assert not host.is_paused  # a paused node must not run
            sent.outcomes.append(_outcome_name(outcome, name))

        connection.send(request, timeout_us=TIMEOUT_US, on_response=on_response)
        assert sent.outcomes == []  # `send` must return before it reports an outcome
        return sent

    def set_rules(self, nodes: tuple[NodeName, ...], rules: tuple[LinkRule, ...]) -> None:
        """Give some nodes other rules."""
        for node in nodes:
            self.rules[node] = rules
            if node in self.hosts:
                self.hosts[node].set_link_rules(rules)

    def reset(self, node: NodeName, peer: NodeName, purposes: tuple[str, ...]) -> None:
        """Reset the connections between two nodes at both ends, as the runtime does."""
        for end, other_end in ((node, peer), (peer, node)):
            if end in self.hosts:
                self.hosts[end].reset_links((other_end,), purposes)

    def wait(self, duration_us: int) -> None:
        """Advance the time."""
        self.lab.run_for(duration_us)

    def heal(self) -> None:
        """Undo every fault, and wait until every request has an outcome."""
        self.set_rules(NODES, ())
        for node in NODES:
            if node in self.hosts:
                self.hosts[node].resume()
            else:
                self.start(node)
        self.wait(SETTLING_US)

    def _serve(self, host: VirtualHost, request: IncomingRequest) -> None:
        assert host.alive
        assert not host.is_paused
        name = _name_of(request.envelope.body)
        number = int(name.rpartition(" ")[2])  # the name is "parked 7" or "at once 7"

        sent = self.requests[number]
        sent.served += 1
        connection = sent.connection
        assert isinstance(connection, ClientConnection)
        key = (request.peer, connection.connection_id, host.incarnation)
        self.served.setdefault(key, []).append(number)

        answer: AnyResponse
        if isinstance(request.envelope.body, FindCoordinatorRequest):
            answer = FindCoordinatorResponse(coordinators=(Coordinator(key=name),))
        else:
            answer = MetadataResponse(topics=(MetadataResponseTopic(name=name),))
        # A parked request waits for 5 ms. This is shorter than the timeout.
        delay_us = 5_000 if name.startswith("parked") else 0
        host.after(delay_us, host.reply, request.request_id, answer)


def _name_of(request: AnyRequest) -> str:
    """Return the name that `World.send` has given to a request."""
    if isinstance(request, FindCoordinatorRequest):
        return request.coordinator_keys[0]
    assert isinstance(request, MetadataRequest)
    assert request.topics is not None
    return request.topics[0]


def _outcome_name(outcome: AnyResponse | Disconnected | RequestTimedOut, name: str) -> str:
    """Return the name of an outcome: "answered", or the class of the failure.

    Also check that an answer belongs to the request with this name.
    """
    match outcome:
        case FindCoordinatorResponse():
            assert outcome.coordinators[0].key == name
            return "answered"
        case MetadataResponse():
            assert outcome.topics[0].name == name
            return "answered"
        case _:
            return type(outcome).__name__


# Strategies of Hypothesis, which draw the steps. If an alternative stands twice in a list, it is
# drawn twice as often as the others. `()` in place of purposes or APIs stands for all of them.
NODE = st.sampled_from(NODES)
PAIR = st.sampled_from(PAIRS)
RULES = st.builds(
    lambda effect, pair, both_ways, purposes, apis, number: rule(
        effect,
        sources=pair if both_ways else pair[:1],
        destinations=pair if both_ways else pair[1:],
        purposes=purposes,
        apis=apis,
        rule_id=f"r{number}",
    ),
    # The arguments of the lambda, in its order.
    st.sampled_from((Cut(), Clog(), Slow(delay_us=300, jitter_us=3_000))),
    PAIR,
    st.booleans(),
    st.sampled_from(((), (), PURPOSES[:1])),
    st.sampled_from(((), (), ("FindCoordinator",))),
    st.integers(0, 3),
)
RULE_LISTS = st.lists(RULES, max_size=2, unique_by=lambda r: r.rule_id).map(tuple)
SENDS = st.builds(Send, connection=st.integers(0, 7), finds=st.booleans(), parked=st.booleans())
STEPS = st.lists(
    st.one_of(
        SENDS,
        SENDS,
        st.builds(
            lambda pair, purpose: Connect(pair[0], pair[1], purpose),
            PAIR,
            st.sampled_from(PURPOSES),
        ),
        st.builds(Close, st.integers(0, 7)),
        st.builds(SetRules, st.sampled_from((NODES, NODES, (A,), (B,), (C,))), RULE_LISTS),
        st.builds(NodeFault, NODE, st.sampled_from(("pause", "resume", "crash", "restart"))),
        st.builds(
            lambda pair, purposes: Reset(pair[0], pair[1], purposes),
            PAIR,
            st.sampled_from(((), PURPOSES[:1])),
        ),
        # In microseconds. A frame may take 150, 400 or 2,000. The two timeouts are longer than
        # 12,000 and shorter than 40,000.
        st.builds(Wait, st.sampled_from((0, 0, 150, 400, 2_000, 12_000, 40_000))),
    ),
    max_size=60,
)


def play(steps: list[Step]) -> World:
    """Carry out the steps, heal all faults, and wait until every request has an outcome."""
    world = World()
    # Some connections exist from the start, so that a short list of steps has an effect, too.
    for node, peer in PAIRS:
        world.connect(node, peer, PURPOSES[0])
    for step in steps:
        match step:
            case Connect():
                world.connect(step.node, step.peer, step.purpose)
            case Send():
                world.send(step.connection, finds=step.finds, parked=step.parked)
            case Close():
                host, connection = world.connections[step.connection % len(world.connections)]
                if host.alive and not host.is_paused:
                    connection.close()
            case SetRules():
                world.set_rules(step.nodes, step.rules)
            case NodeFault():
                apply_node_fault(world, step)
            case Reset():
                world.reset(step.node, step.peer, step.purposes)
            case Wait():
                world.wait(step.duration_us)
    world.heal()
    return world


def apply_node_fault(world: World, step: NodeFault) -> None:
    """Carry out a fault of one node. Do nothing if the node is in the wrong state for it."""
    host = world.hosts.get(step.node)
    if step.kind == "restart":
        world.start(step.node)
    elif step.kind == "crash":
        world.crash(step.node)
    elif host is None:
        return  # a node that is down can neither pause nor resume
    elif step.kind == "pause":
        host.pause()
    else:
        assert step.kind == "resume"
        host.resume()


@given(STEPS)
def test_every_request_of_a_live_client_has_exactly_one_outcome(steps: list[Step]) -> None:
    """A client must not wait for ever, and must not act twice on one request.

    Each request is also served at most once, and the requests of a connection in their order. A
    client that has died may have no outcome for its last requests.
    """
    world = play(steps)
    assert world.lab.failures == []
    # The key is the identity of the connection object.
    client_hosts = {id(connection): host for host, connection in world.connections}
    for sent in world.requests:
        if client_hosts[id(sent.connection)].alive:
            assert len(sent.outcomes) == 1, sent
        else:
            assert len(sent.outcomes) <= 1, sent
        assert sent.served <= 1
    for numbers in world.served.values():
        assert numbers == sorted(numbers)


# `play` opens a connection from B to A. B cuts its link to A, so the opening times out, and B
# closes the connection. The gate of B holds the close back. Then B dies, and A learns only of the
# death. The test plays this case in addition to the drawn ones.
@example(
    [
        SetRules((B,), (rule(Cut(), sources=(A, B), destinations=(A, B)),)),
        Wait(40_000),
        NodeFault(B, "crash"),
    ]
)
@given(STEPS)
def test_after_healing_a_connection_works_or_is_closed_at_both_ends(steps: list[Step]) -> None:
    """No connection is half open, no frame waits in a gate, and no node has a backlog.

    To see that a connection works, the test sends one more request on it, a probe.
    """
    world = play(steps)
    probes = [
        world.send(index)
        for index, (host, connection) in enumerate(world.connections)
        if host.alive and not connection.is_closed
    ]
    world.wait(SETTLING_US)
    assert all(probe is not None and len(probe.outcomes) == 1 for probe in probes)

    for host, connection in world.connections:
        server = world.hosts[connection.peer]
        end = ConnectionEnd(host.name, connection.connection_id, is_client=False)
        # The server's endpoint knows the purpose of each connection that it has.
        server_has_connection = server.endpoint.purpose_of(end) is not None
        client_has_connection = host.alive and connection.is_open
        assert server_has_connection == client_has_connection, connection.connection_id
        if host.alive:
            assert connection.is_open or connection.is_closed  # it does not hang in its opening

    for host in world.hosts.values():
        assert not host.is_paused
        host.set_link_rules(())  # drops the gate if no frame waits in it
        assert host._gate is None
        assert host._backlog is None
    assert world.lab.failures == []
