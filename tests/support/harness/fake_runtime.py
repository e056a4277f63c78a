"""A fake runtime without nodes, for tests of the driver (the code that conducts a run).

The driver uses a Runtime to start the cluster, to inject faults and to read the cluster's status.
FakeRuntime only notes what the driver tells it to do. The notes are short texts in `acts`, such as
"crash broker-0". The status that FakeRuntime returns describes a healthy cluster, until a test
changes a field of the FakeRuntime.

The clock of a FakeRuntime moves only when the driver sleeps. To change something at a certain time,
a test sets a script, which is a function: `runtime.at[5_000_000] = script`.
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
    """The cluster of an experiment. It is healthy until a test changes a field of this object."""

    name = "fake"

    def __init__(self, experiment: Experiment, observer: RowObserver | None = None) -> None:
        self.experiment = experiment
        # The orders that the driver has given to the runtime so far, as short texts.
        self.acts: list[str] = []
        self.time_us = 0
        # Time -> a script, which is called once, when the clock reaches this time.
        self.at: dict[int, Script] = {}
        self.nodes: dict[NodeName, NodeState] = _first_states(experiment)
        # A test puts a partition here to give it another status. Every other partition is led by
        # `leader`, with all brokers in its ISR.
        self.partitions: dict[TopicPartition, PartitionStatus] = {}
        self.leader = BrokerId(0)
        self.rules: tuple[LinkRule, ...] = ()
        # The number of connections that `reset_links` reports as ended.
        self.open_connections = 3
        # The length of a controlled shutdown; None: a shutdown never ends.
        self.stopping_takes_us: int | None = 1_000_000
        # The state of each paused node before its pause: up or stopping.
        self._state_before_pause: dict[NodeName, NodeState] = {}
        # `ask_as_admin` returns this answer, or raises this exception. A question about committed
        # offsets is answered from `committed` instead.
        self.admin_answer: dict[str, str] | Exception = {}
        # The active controller; None: no controller answers, so the status has no leaders.
        self.controller: NodeName | None = controller_name(FIRST_CONTROLLER_ID)
        # The member id of every group's leader; None: the first member is the leader.
        self.group_leader: str | None = None
        self.group_state = "Stable"
        # If True, the status has no groups, as if no member had joined yet.
        self.nobody_joined = False
        # If True, the numbers of acknowledged commits no longer grow.
        self.commits_stand_still = False
        # The number of commits of each member that were acknowledged until time 0.
        self.commits_at_start = 1
        # The requests of every member that have no answer yet.
        self.waiting: tuple[WaitingRequest, ...] = ()
        # Committed offsets by partition; None: offset 7 is committed in every partition.
        self.committed: dict[TopicPartition, Offset] | None = None
        # Failures of coordlab itself, which the driver must report.
        self.tool_failures: list[str] = []
        # The times at which machines were unreachable.
        self.machines_away: list[MachineEvent] = []
        # The nodes whose traces were lost.
        self.lost_traces: tuple[NodeName, ...] = ()
        # The exception that `crash` raises; None: the call succeeds.
        self.crash_fails_with: Exception | None = None
        # The exception that `power_loss` raises; None: the call succeeds.
        self.power_fails_with: Exception | None = None
        self.stopped = False
        # The number of times that the driver has asked for the status.
        self.statuses_asked = 0
        self._started_at_us: dict[NodeName, int] = {}
        self._incarnations: dict[NodeName, int] = {}
        self._observer = observer
        # The number of rows that the driver has written.
        self._row_count = 0

    def observe_with(self, observer: RowObserver) -> None:
        """From now on, call `observer` with each row that the driver writes."""
        self._observer = observer

    def now_us(self) -> int:
        """Return the time of the clock."""
        return self.time_us

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run `main`, which may await only methods of this runtime."""
        # No method of this runtime really waits. So one step runs the coroutine to its end.
        try:
            main.send(None)
        except StopIteration as end:
            result: T = end.value
            return result
        raise AssertionError("the coroutine waits for something that is not the runtime")

    async def sleep(self, delay_us: int) -> None:
        """Move the clock, and call the scripts whose times come meanwhile."""
        end_us = self.time_us + delay_us
        # `sorted` makes a list. So a script may add scripts to `at` during the loop; the added
        # scripts are called in the next sleep at the earliest.
        for time_us in sorted(self.at):
            if time_us <= end_us:
                self.time_us = max(self.time_us, time_us)
                script = self.at.pop(time_us)
                script(self)
        self.time_us = end_us

    @property
    def machine_events(self) -> tuple[MachineEvent, ...]:
        """Return when machines were unreachable."""
        return tuple(self.machines_away)

    @property
    def nodes_without_trace(self) -> tuple[NodeName, ...]:
        """Return the nodes whose rows are lost."""
        return self.lost_traces

    async def start(self, *, apart: bool = False) -> None:
        """Note that the cluster shall start."""
        self.acts.append("start")

    async def status(self) -> ClusterStatus:
        """Return the status of the cluster, as the fields describe it."""
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
        # Without a controller, the status has no partitions. They are removed only now, because
        # `_report_group` needs their leaders.
        if self.controller is None:
            status.partitions = {}
        return status

    def _report_group(self, group_id: str, status: ClusterStatus) -> None:
        """Add a group to the status.

        All members that were ever started have joined the group, and each owns one partition.
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
                # A node that is paused, stopping or down does not report its own status.
                continue
            # A member consumes a record every 100 ms and commits every 200 ms.
            consumed = (self.time_us - self._started_at_us.get(name, 0)) // 100_000
            commits = self.commits_at_start
            if not self.commits_stand_still:
                commits += self.time_us // 200_000
            status.members[name] = MemberStatus(
                group_id=group_id,
                member_id=members[index],
                generation=1,
                state="STABLE",
                coordinator=leader,
                # Member number n has partition n of the group's first topic.
                assigned=(TopicPartition(group.topics[0], index),),
                records_consumed=consumed,
                commits_acknowledged=commits,
                waiting=self.waiting,
            )

    def _change(self, node: NodeName, act: LifeAct, to: NodeState, words: str) -> HitNode:
        """Change a node's state to `to`, and note the change in `acts`, such as "crash broker-0".

        Raises: the error of `LifeAct.check`, if the present state of the node forbids the act.
        """
        act.check(node, self.nodes[node])
        self.acts.append(f"{words} {node}")
        self.nodes[node] = to
        # A fake node has no process, so any pid will do.
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
        """Let a node begin to stop. It is down after `stopping_takes_us`."""
        hit = self._change(node, LifeAct.SHUT_DOWN, NodeState.STOPPING, "shut down")
        if self.stopping_takes_us is not None:

            def mark_as_down(runtime: FakeRuntime) -> None:
                runtime.nodes[node] = NodeState.DOWN

            self.at[self.time_us + self.stopping_takes_us] = mark_as_down
        return hit

    async def pause(self, node: NodeName) -> HitNode:
        """Pause a node."""
        self._state_before_pause[node] = self.nodes[node]
        return self._change(node, LifeAct.PAUSE, NodeState.PAUSED, "pause")

    async def resume(self, node: NodeName) -> None:
        """Resume a paused node. A node that was stopping before the pause is stopping again."""
        state = self._state_before_pause.pop(node, NodeState.UP)
        self._change(node, LifeAct.RESUME, state, "resume")

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
        """Note the call, and report that `open_connections` were ended."""
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
        """Note the question, and return `admin_answer`.

        If the question is about committed offsets, return the offsets of `committed` instead.
        """
        function: Any = question
        values: list[Any] = [*args, *kwargs.values()]
        # Some callers pass a `partial`, which already contains arguments of the function.
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
        """Return the committed offsets of a group."""
        self.acts.append(f"read offsets of {group_id}")
        # The real request writes a row into the trace for each partition in which nothing is
        # committed, with the offset -1. Do the same.
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
        """Write a row of the driver, and pass it to the observer.

        If the row begins a stage of the run, the stage is also noted in `acts`.
        """
        row = stamp(
            event,
            run="test",
            time_us=self.time_us,
            node_time_us=self.time_us,
            seq=self._row_count,
            node="driver",
            incarnation=0,
        )
        self._row_count += 1
        if event.kind is TraceKind.RUN_STAGE:
            detail = event.detail or {}
            self.acts.append(f"stage {detail['stage']}")
        if self._observer is not None:
            self._observer(row)

    async def stop(self) -> None:
        """Note that the cluster shall stop."""
        self.acts.append("stop")
        self.stopped = True

    def failures(self) -> tuple[str, ...]:
        """Return the failures of coordlab itself."""
        return tuple(self.tool_failures)


def _first_states(experiment: Experiment) -> dict[NodeName, NodeState]:
    """Return the state of every node when the experiment begins: up, or not started."""
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
