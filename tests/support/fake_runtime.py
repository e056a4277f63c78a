"""A runtime without nodes: its clock moves when somebody sleeps, its status is a script's.

For tests of whoever drives a Runtime. Everything asked of it is kept in `acts`.
"""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from chaos.experiment import Experiment, consumer_name, group_partition
from cluster.link_rules import LinkRule
from cluster.runtime import (
    ClusterStatus,
    GroupStatus,
    HitNode,
    MemberStatus,
    PartitionStatus,
    RowObserver,
    Runtime,
)
from protocol.ids import (
    CONSUMER_OFFSETS,
    BrokerId,
    NodeName,
    Offset,
    TopicPartition,
    broker_name,
)
from protocol.trace import TraceEvent, TraceKind, stamp

T = TypeVar("T")

Script = Callable[["FakeRuntime"], None]


class FakeRuntime(Runtime):
    """A healthy cluster as the experiment describes it, unless its fields are changed.

    Shape: `at` maps a time in microseconds to what happens then, once, when the clock passes it.
    """

    name = "fake"

    def __init__(self, experiment: Experiment, observer: RowObserver | None = None) -> None:
        self.experiment = experiment
        self.acts: list[str] = []
        self.time_us = 0
        self.at: dict[int, Script] = {}
        self.alive: dict[BrokerId, bool] = {
            BrokerId(index): True for index in range(experiment.cluster.brokers)
        }
        self.leader = BrokerId(0)
        """Of every partition."""
        self.group_state = "Stable"
        self.nobody_joined = False
        self.commits_stand_still = False
        self.first_commit = 1
        self.committed: dict[TopicPartition, Offset] | None = None
        """None: every partition has offset 7."""
        self.tool_failures: list[str] = []
        self.crash_fails_with: Exception | None = None
        self.stopped = False
        self._incarnations: dict[NodeName, int] = {}
        self._observer = observer
        self._rows = 0

    def now_us(self) -> int:
        """Return the clock."""
        return self.time_us

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run `main`, which never waits for anything but this runtime."""
        try:
            main.send(None)
        except StopIteration as end:
            result: T = end.value
            return result
        raise AssertionError("the coroutine waits for something that is not the runtime")

    async def sleep(self, delay_us: int) -> None:
        """Move the clock, and let the script happen on the way."""
        until = self.time_us + delay_us
        for time_us in sorted(self.at):
            if time_us <= until:
                self.time_us = max(self.time_us, time_us)
                self.at.pop(time_us)(self)
        self.time_us = until

    async def start(self) -> None:
        """Start."""
        self.acts.append("start")

    async def status(self) -> ClusterStatus:
        """Return the status that the fields describe."""
        experiment = self.experiment
        config = experiment.cluster.config
        brokers = tuple(self.alive)
        topics = {CONSUMER_OFFSETS: config.offsets_topic_num_partitions}
        topics.update((name, topic.partitions) for name, topic in experiment.topics.items())
        status = ClusterStatus(brokers_alive=dict(self.alive))
        for topic, partitions in topics.items():
            for index in range(partitions):
                status.partitions[TopicPartition(topic, index)] = PartitionStatus(
                    leader=self.leader, leader_epoch=0, replicas=brokers, isr=brokers
                )
        if not self.nobody_joined:
            for group_id in experiment.groups:
                self._report_group(group_id, status)
        return status

    def _report_group(self, group_id: str, status: ClusterStatus) -> None:
        group = self.experiment.groups[group_id]
        members = tuple(str(consumer_name(group_id, index)) for index in range(group.members))
        status.groups[group_id] = [
            GroupStatus(
                coordinator=self.leader,
                offsets_partition=group_partition(self.experiment, group_id),
                state=self.group_state,
                generation=1,
                members=members,
            )
        ]
        for index in range(group.members):
            status.members[consumer_name(group_id, index)] = MemberStatus(
                group_id=group_id,
                member_id=members[index],
                generation=1,
                state="STABLE",
                coordinator=self.leader,
                assigned=(TopicPartition(group.topics[0], index),),
                records_consumed=self.time_us // 100_000,
                commits_acknowledged=self.first_commit
                + (0 if self.commits_stand_still else self.time_us // 200_000),
            )

    async def crash(self, node: NodeName) -> HitNode:
        """Kill a broker."""
        if self.crash_fails_with is not None:
            raise self.crash_fails_with
        self.acts.append(f"crash {node}")
        self.alive[_broker_id(node)] = False
        incarnation = self._incarnations.get(node, 0)
        return HitNode(node=node, incarnation=incarnation, pid=4711)

    async def restart(self, node: NodeName, *, empty_disk: bool = False) -> None:
        """Start a broker again."""
        self.acts.append(f"restart {node}")
        self.alive[_broker_id(node)] = True
        self._incarnations[node] = self._incarnations.get(node, 0) + 1

    async def start_node(self, node: NodeName) -> None:
        """Start a node whose spec says `starts_later`."""
        raise NotImplementedError

    async def power_loss(self, node: NodeName) -> HitNode:
        """Kill the node's process and cut its logs back to what was flushed."""
        raise NotImplementedError

    async def shut_down(self, node: NodeName) -> HitNode:
        """Ask the node to stop as SIGTERM does, and return at once."""
        raise NotImplementedError

    async def pause(self, node: NodeName) -> HitNode:
        """Stop the node as SIGSTOP does."""
        raise NotImplementedError

    async def resume(self, node: NodeName) -> None:
        """Let a paused node go on."""
        raise NotImplementedError

    async def set_link_rules(self, rules: Sequence[LinkRule]) -> None:
        """Replace all link rules."""
        raise NotImplementedError

    async def reset_links(
        self,
        sources: Sequence[NodeName],
        destinations: Sequence[NodeName],
        purposes: Sequence[str] = (),
    ) -> int:
        """End all connections between the two sets of nodes."""
        raise NotImplementedError

    async def elect_preferred_leaders(self, partitions: Sequence[TopicPartition] | None) -> None:
        """Ask the controller for ElectLeaders(PREFERRED)."""
        raise NotImplementedError

    async def move_leader(self, partition: TopicPartition, broker: BrokerId) -> None:
        """Make `broker` the preferred leader of `partition`, and elect it."""
        raise NotImplementedError

    async def committed_offsets(self, group_id: str) -> dict[TopicPartition, Offset]:
        """Return what the script says is committed."""
        self.acts.append(f"read offsets of {group_id}")
        if self.committed is not None:
            return self.committed
        return {
            TopicPartition(topic, index): Offset(7)
            for topic in self.experiment.groups[group_id].topics
            for index in range(self.experiment.topics[topic].partitions)
        }

    def trace(self, event: TraceEvent) -> None:
        """Stamp an event of the driver and show it to the observer."""
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
        """Return the failures that the script wants."""
        return tuple(self.tool_failures)


def _broker_id(node: NodeName) -> BrokerId:
    broker_id = BrokerId(int(node.rpartition("-")[2]))
    if broker_name(broker_id) != node:
        raise AssertionError(f"{node} is no broker")
    return broker_id
