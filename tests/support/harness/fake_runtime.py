"""A runtime without nodes: the clock moves when code sleeps, and tests script the status.

The driver is the process that conducts a run: it starts the cluster, injects faults and reads the
cluster's status. It does so through the interface `Runtime`. The fake is for tests of the driver's
code. It keeps each call that changes the cluster in `acts`, as a short text. A script is a function
that changes the fake at some time.

An incarnation is the number of a node's restarts. A generation counts a group's rebalances. The ISR
are the in-sync replicas of a partition. The trace is the run's table of events.
"""

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from chaos.experiment.structs import (
    FIRST_CONTROLLER_ID,
    Experiment,
    consumer_name,
    coordinated_groups,
    group_partition,
    producer_name,
    to_cluster_spec,
)
from cluster.client.admin.orders import fetch_committed_offsets
from cluster.host.host import Host, WaitingRequest
from cluster.links.rules import LinkRule
from cluster.lives import LifeAct
from cluster.runtime import (
    ClusterStatus,
    GroupStatus,
    HitNode,
    MachineEvent,
    MemberStatus,
    NodeState,
    PartitionStatus,
    RowObserver,
    Runtime,
)
from cluster.spec import ClusterSpec, ConsumerSpec, ZooKeeperConsumerSpec, starts_later
from protocol.causes import OffsetFetchCause
from protocol.ids import (
    CONSUMER_OFFSETS,
    BrokerId,
    NodeName,
    Offset,
    TopicPartition,
    broker_name,
    controller_name,
)
from protocol.trace import TraceEvent, TraceKind, stamp

P = ParamSpec("P")
T = TypeVar("T")

Script = Callable[["FakeRuntime"], None]


class FakeRuntime(Runtime):
    """The healthy cluster of an experiment; tests change its fields.

    - `at`: scripts by time in microseconds; each is called once, when the clock passes its time.
    - `nodes`: the state of every node.
    - `partitions`: partitions with a status of their own. Every other partition is led by `leader`,
      with all brokers in its ISR.
    """

    name = "fake"

    def __init__(self, experiment: Experiment, observer: RowObserver | None = None) -> None:
        self.experiment = experiment
        self.acts: list[str] = []
        self.time_us = 0
        self.at: dict[int, Script] = {}
        self.nodes: dict[NodeName, NodeState] = _nodes(experiment)
        self.partitions: dict[TopicPartition, PartitionStatus] = {}
        self.rules: tuple[LinkRule, ...] = ()
        self.open_connections = 3
        """Number of connections that each call of `reset_links` reports as ended."""
        self.stopping_takes_us: int | None = 1_000_000
        """Duration of a controlled shutdown; None: it never ends."""
        self._resumes_as: dict[NodeName, NodeState] = {}
        """State of each paused node before its pause: up or stopping."""
        self.admin_answer: dict[str, str] | Exception = {}
        """Answer to every question of `ask_as_admin` but the one for committed offsets.

        An exception is raised in place of an answer.
        """
        self.controller: NodeName | None = controller_name(FIRST_CONTROLLER_ID)
        """The active controller; None: no controller answers, and no leader is known."""
        self.group_leader: str | None = None
        """Member id of every group's leader; None: the first member's."""
        self.leader = BrokerId(0)
        """Leader of every partition that is not in `partitions`."""
        self.group_state = "Stable"
        self.nobody_joined = False  # True: the groups are not in the status
        self.commits_stand_still = False  # True: members report only their first commits
        self.waiting: tuple[WaitingRequest, ...] = ()  # unanswered requests of every member
        self.first_commit = 1  # number of acknowledged commits of each member at time 0
        self.committed: dict[TopicPartition, Offset] | None = None
        """Committed offsets; None: every partition has offset 7."""
        self.tool_failures: list[str] = []  # failures of coordlab itself
        self.machines_away: list[MachineEvent] = []  # each time that a machine was unreachable
        self.lost_traces: tuple[NodeName, ...] = ()  # nodes without a trace
        self.crash_fails_with: Exception | None = None
        self.power_fails_with: Exception | None = None
        self.stopped = False
        self.statuses_asked = 0  # number of status queries
        self._started_at_us: dict[NodeName, int] = {}
        self._incarnations: dict[NodeName, int] = {}
        self._observer = observer
        self._rows = 0  # number of the driver's rows so far

    def observe_with(self, observer: RowObserver) -> None:
        """Pass the rows of the driver to `observer` from now on."""
        self._observer = observer

    def now_us(self) -> int:
        """Return the clock's time."""
        return self.time_us

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run `main`, which may await only methods of this runtime."""
        # No method here really waits: each await returns immediately. So one step runs the whole
        # coroutine.
        try:
            main.send(None)
        except StopIteration as end:
            result: T = end.value
            return result
        raise AssertionError("the coroutine waits for something that is not the runtime")

    async def sleep(self, delay_us: int) -> None:
        """Advance the clock, and call the scripts whose times come meanwhile."""
        until = self.time_us + delay_us
        # The keys are listed first, so that a script may add others for a later sleep.
        for time_us in sorted(self.at):
            if time_us <= until:
                self.time_us = max(self.time_us, time_us)
                self.at.pop(time_us)(self)
        self.time_us = until

    @property
    def machine_events(self) -> tuple[MachineEvent, ...]:
        """Return the machines that are, or were, away."""
        return tuple(self.machines_away)

    @property
    def nodes_without_trace(self) -> tuple[NodeName, ...]:
        """Return the nodes whose rows are lost."""
        return self.lost_traces

    async def start(self, *, apart: bool = False) -> None:
        """Start."""
        self.acts.append("start")

    async def status(self) -> ClusterStatus:
        """Return the status that the fields describe."""
        self.statuses_asked += 1
        experiment = self.experiment
        config = experiment.cluster.config
        brokers = tuple(BrokerId(index) for index in range(experiment.cluster.brokers))
        topics = {CONSUMER_OFFSETS: config.offsets_topic_num_partitions}
        topics.update((name, topic.partitions) for name, topic in experiment.topics.items())
        status = ClusterStatus(
            nodes=dict(self.nodes),
            controller=self.controller,
            brokers_alive={
                broker: self.nodes[broker_name(broker)] is not NodeState.DOWN for broker in brokers
            },
            brokers_fenced=dict.fromkeys(brokers, False),
        )
        for topic, partitions in topics.items():
            for index in range(partitions):
                partition = TopicPartition(topic, index)
                status.partitions[partition] = self.partitions.get(partition) or PartitionStatus(
                    leader=self.leader, leader_epoch=0, replicas=brokers, isr=brokers
                )
        if not self.nobody_joined:
            for group_id in coordinated_groups(experiment):
                self._report_group(group_id, status)
        # Without a controller no leader is known. The partitions are removed only now, because the
        # lines above take each group's coordinator from them.
        if self.controller is None:
            status.partitions = {}
        return status

    def _report_group(self, group_id: str, status: ClusterStatus) -> None:
        """Add a group to the status.

        All members that were started have joined the group, and each owns one partition.
        """
        group = self.experiment.groups[group_id]
        names = [consumer_name(group_id, index) for index in range(group.members_total)]
        started = [name for name in names if self.nodes[name] is not NodeState.NOT_STARTED]
        members = tuple(f"id-of-{name}" for name in started)
        leader = status.partitions[
            TopicPartition(CONSUMER_OFFSETS, group_partition(self.experiment, group_id))
        ].leader
        status.groups[group_id] = [
            GroupStatus(
                coordinator=leader,
                offsets_partition=group_partition(self.experiment, group_id),
                state=self.group_state,
                generation=1,
                members=members,
                leader=self.group_leader or (members[0] if members else None),
            )
        ]
        for index, name in enumerate(started):
            if self.nodes[name] is not NodeState.UP:
                continue  # a node that is paused, stopping or down does not report its own status
            status.members[name] = MemberStatus(
                group_id=group_id,
                member_id=members[index],
                generation=1,
                state="STABLE",
                coordinator=leader,
                # Member number n has partition n of the group's first topic.
                assigned=(TopicPartition(group.topics[0], index),),
                # From its start on a member consumes a record every 100 ms, and it commits every
                # 200 ms.
                records_consumed=(self.time_us - self._started_at_us.get(name, 0)) // 100_000,
                commits_acknowledged=self.first_commit
                + (0 if self.commits_stand_still else self.time_us // 200_000),
                waiting=self.waiting,
            )

    def _change(self, node: NodeName, act: LifeAct, to: NodeState, words: str) -> HitNode:
        """Change a node's state to `to`, and add `words` and the node's name to `acts`.

        Raises: the error of `LifeAct.check` if the act is illegal in the node's present state.
        """
        act.check(node, self.nodes[node])
        self.acts.append(f"{words} {node}")
        self.nodes[node] = to
        return HitNode(node=node, incarnation=self._incarnations.get(node, 0), pid=4711)

    async def crash(self, node: NodeName) -> HitNode:
        """Kill a node."""
        if self.crash_fails_with is not None:
            raise self.crash_fails_with
        return self._change(node, LifeAct.KILL, NodeState.DOWN, "crash")

    async def restart(self, node: NodeName, *, empty_disk: bool = False) -> None:
        """Start a node again."""
        words = "restart on an empty disk:" if empty_disk else "restart"
        self._change(node, LifeAct.RESTART, NodeState.UP, words)
        self._incarnations[node] = self._incarnations.get(node, 0) + 1
        self._started_at_us[node] = self.time_us

    async def start_node(self, node: NodeName) -> None:
        """Start a node whose spec says `starts_later`."""
        self._change(node, LifeAct.START, NodeState.UP, "start")

    async def power_loss(self, node: NodeName) -> HitNode:
        """Cut a node's power."""
        if self.power_fails_with is not None:
            raise self.power_fails_with
        return self._change(node, LifeAct.KILL, NodeState.DOWN, "power loss")

    async def shut_down(self, node: NodeName) -> HitNode:
        """Let a node stop after its shutdown's duration."""
        hit = self._change(node, LifeAct.SHUT_DOWN, NodeState.STOPPING, "shut down")
        if self.stopping_takes_us is not None:
            self.at[self.time_us + self.stopping_takes_us] = lambda runtime: runtime.nodes.update(
                {node: NodeState.DOWN}
            )
        return hit

    async def pause(self, node: NodeName) -> HitNode:
        """Pause a node."""
        self._resumes_as[node] = self.nodes[node]
        return self._change(node, LifeAct.PAUSE, NodeState.PAUSED, "pause")

    async def resume(self, node: NodeName) -> None:
        """Resume a paused node. A node that was stopping before the pause goes on stopping."""
        resumed = self._resumes_as.pop(node, NodeState.UP)
        self._change(node, LifeAct.RESUME, resumed, "resume")

    async def set_link_rules(self, rules: Sequence[LinkRule]) -> None:
        """Replace all link rules."""
        self.acts.append(f"rules {' '.join(rule.rule_id for rule in rules) or 'none'}")
        self.rules = tuple(rules)

    async def reset_links(
        self,
        sources: Sequence[NodeName],
        destinations: Sequence[NodeName],
        purposes: Sequence[str] = (),
    ) -> int:
        """Keep the call, and return the scripted number of connections that it ended."""
        self.acts.append(
            f"reset {' '.join(sources)} - {' '.join(destinations)} ({' '.join(purposes) or 'all'})"
        )
        return self.open_connections

    async def ask_as_admin(
        self,
        question: Callable[Concatenate[Host, ClusterSpec, P], Awaitable[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Keep the request or order, and answer it as scripted."""
        function: Any = question
        values: list[Any] = [*args, *kwargs.values()]
        # Some callers bind the arguments with `partial`.
        if isinstance(function, partial):
            values += function.keywords.values()
            function = function.func
        if function is fetch_committed_offsets:
            return cast("T", self._committed_offsets(*values))
        words = (
            " ".join(map(str, value)) if isinstance(value, list) else str(value) for value in values
        )
        self.acts.append(" ".join((function.__name__, *words)))
        if isinstance(self.admin_answer, Exception):
            raise self.admin_answer
        return cast("T", self.admin_answer)

    def _committed_offsets(
        self, group_id: str, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, Offset]:
        """Return the scripted committed offsets."""
        self.acts.append(f"read offsets of {group_id}")
        # The real request writes a row with the offset -1 for each partition without a commit.
        if self.committed is not None:
            for partition in partitions:
                if partition not in self.committed:
                    self.trace(
                        TraceEvent(
                            kind=TraceKind.OFFSETS_FETCHED,
                            group=group_id,
                            partition=str(partition),
                            offset=-1,
                            cause=OffsetFetchCause.VERIFICATION,
                        )
                    )
            return self.committed
        return {
            TopicPartition(topic, index): Offset(7)
            for topic in self.experiment.groups[group_id].topics
            for index in range(self.experiment.topics[topic].partitions)
        }

    def trace(self, event: TraceEvent) -> None:
        """Make an event of the driver a row of the trace, and show it to the observer."""
        row = stamp(
            event,
            run="test",
            time_us=self.time_us,
            node_time_us=self.time_us,
            seq=self._rows,
            node="driver",
            incarnation=0,
        )
        self._rows += 1
        detail = event.detail or {}
        if event.kind is TraceKind.RUN_STAGE:
            self.acts.append(f"stage {detail['stage']}")
        if self._observer is not None:
            self._observer(row)

    async def stop(self) -> None:
        """Stop."""
        self.acts.append("stop")
        self.stopped = True

    def failures(self) -> tuple[str, ...]:
        """Return the scripted failures."""
        return tuple(self.tool_failures)


def _nodes(experiment: Experiment) -> dict[NodeName, NodeState]:
    """Return the first state of every node of an experiment: up, or not started."""
    spec = to_cluster_spec(experiment)
    nodes = {controller.name: NodeState.UP for controller in spec.controllers}
    nodes.update((broker.name, NodeState.UP) for broker in spec.brokers)
    nodes.update((server.name, NodeState.UP) for server in spec.zookeepers)
    members: tuple[ConsumerSpec | ZooKeeperConsumerSpec, ...] = (
        *spec.consumers,
        *spec.zookeeper_consumers,
    )
    for node in members:
        nodes[node.name] = NodeState.NOT_STARTED if starts_later(node) else NodeState.UP
    for index in range(len(experiment.producers)):
        nodes[producer_name(index)] = NodeState.UP
    return nodes
