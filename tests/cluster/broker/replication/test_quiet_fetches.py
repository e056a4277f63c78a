"""A leader need not read each partition for each Fetch of a follower.

A partition is quiet for a follower if the follower's last Fetch found nothing new there, and
nothing has changed since. `QuietFetches` remembers the quiet partitions, and the leader skips them.
A leader that skips partitions must give the same answers as a leader that reads all partitions, and
propose the same changes of an ISR. The tests make a leader that reads all partitions with
`NeverQuiet`, which remembers no quiet partition.

A, B and C are brokers: A leads, B and C follow.
"""

import random

import pytest

from chaos.exploration.batches import play_seed
from chaos.exploration.space import load_space
from cluster.broker.replication.fetch_reader import FetchReader, PartitionKey
from cluster.broker.replication.quiet_fetches import QuietFetches, QuietTopic
from partition_log.log import PartitionLog
from partition_log.memory_storage import MemoryLogStorage
from partition_log.outcomes import FetchResult, IsrProposal, ReplicaConfig
from partition_log.replica import Partition
from protocol.effects import ACKS_ALL
from protocol.errors import ErrorCode
from protocol.ids import BrokerEpoch, BrokerId, TopicPartition
from protocol.messages.controller import AlterPartitionPartitionResponse
from protocol.messages.log import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from tests.support.builders.partition_logs import A, B, C, records

TOPIC = "orders"
PARTITIONS = 6
LAG_MAX_US = 1_000_000
"""A follower that has not caught up for this time must leave the ISR."""
STEPS = 300
"""Number of random events in a test."""


class NeverQuiet(QuietFetches):
    """Remembers no quiet partition, so that the leader reads every partition for every Fetch."""

    def topic(
        self, topic: FetchTopic, replica_id: int, replica_epoch: int, *, is_new: bool
    ) -> QuietTopic | None:
        """Return None: no partition of the topic counts as quiet."""
        del topic, replica_id, replica_epoch, is_new
        return None


class Leader:
    """The partitions that broker A leads, with the reader that answers Fetches from them.

    Like ReplicaManager in a broker, it reports each change of a partition to its QuietFetches.
    """

    def __init__(self, quiet: type[QuietFetches]) -> None:
        # The brokers that may be in an ISR, with the epochs of their registrations. QuietFetches
        # and the partitions keep this very dict, so they see each change of it.
        self.eligible = {A: BrokerEpoch(100), B: BrokerEpoch(101), C: BrokerEpoch(102)}
        self.quiet = quiet(self.eligible)
        self.partitions: dict[PartitionKey, Partition] = {}
        self.proposals: dict[PartitionKey, IsrProposal] = {}
        self.epoch = 1
        """The highest epoch so far. Each change of a partition gets the next higher epoch."""
        self.effects: list[object] = []
        """The effects of all Fetches and proposals so far, in order."""
        for index in range(PARTITIONS):
            name = TopicPartition(TOPIC, index)
            partition = Partition(
                name,
                A,
                PartitionLog(name, MemoryLogStorage()),
                ReplicaConfig(replica_lag_time_max_ms=LAG_MAX_US // 1_000),
            )
            partition.update_eligible_brokers(self.eligible)
            self.partitions[name] = partition
            self.lead(index, (A, B, C), now_us=0)
        self.reader = FetchReader(
            self.partitions,
            # The error for a partition that the broker does not have; no test asks for one.
            lambda *_: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            self.on_fetched,
            self.quiet,
        )

    def lead(self, index: int, isr: tuple[BrokerId, ...], *, now_us: int) -> None:
        """Make A the leader of a partition again, in a new leader epoch."""
        name = TopicPartition(TOPIC, index)
        self.quiet.changed(name)
        self.epoch += 1
        self.partitions[name].make_leader(
            leader_epoch=self.epoch,
            partition_epoch=self.epoch,
            replicas=(A, B, C),
            isr=isr,
            now_us=now_us,
        )

    def append(self, index: int, now_us: int) -> None:
        """Append one record to a partition."""
        name = TopicPartition(TOPIC, index)
        self.partitions[name].append_records(records("v"), required_acks=ACKS_ALL, now_us=now_us)
        self.quiet.changed(name)

    def on_fetched(self, partition: Partition, result: FetchResult) -> None:
        """Note what a follower's Fetch has changed: a high watermark, or a proposal of an ISR."""
        name = partition.topic_partition
        self.effects.append((name, result.new_high_watermark, result.proposal))
        if result.new_high_watermark is not None:
            self.quiet.changed(name)
        if result.proposal is not None:
            self.proposals[name] = result.proposal

    def shrink(self, now_us: int) -> None:
        """Propose, for each partition, an ISR without the followers that lag."""
        for name, partition in self.partitions.items():
            proposal = partition.maybe_shrink_isr(now_us)
            self.effects.append(proposal)
            if proposal is not None:
                self.proposals[name] = proposal

    def answer_proposals(self, now_us: int) -> None:
        """Let the controller accept every proposed ISR."""
        for (topic, index), proposal in self.proposals.items():
            name = TopicPartition(topic, index)
            self.epoch += 1
            partition = self.partitions[name]
            result = partition.handle_alter_partition_response(
                proposal,
                AlterPartitionPartitionResponse(
                    partition_index=index,
                    leader_epoch=partition.leader_epoch,
                    isr=proposal.new_isr,
                    partition_epoch=self.epoch,
                ),
                now_us=now_us,
            )
            self.quiet.changed(name)
            self.effects.append(result)
        self.proposals.clear()

    def state(self) -> list[object]:
        """Return, for each partition, the values that a Fetch may change."""
        return [
            (partition.isr, partition.high_watermark, partition.isr_in_flight)
            for partition in self.partitions.values()
        ]


class Follower:
    """A follower that sends the same Fetches to two leaders. Their answers must be equal."""

    def __init__(self, broker: BrokerId, epoch: int) -> None:
        self.broker = broker
        self.epoch = epoch
        self.log_ends = dict.fromkeys(range(PARTITIONS), 0)
        self.last_topic = FetchTopic(topic=TOPIC, partitions=())
        self.waiting_fetch: tuple[FetchRequest, FetchResponse, FetchResponse] | None = None
        """A Fetch that waits for records, with the answers of both leaders at its arrival."""

    def request(self, leader: Leader) -> FetchRequest:
        """Return a Fetch from the follower's log ends, with the leader epochs of `leader`.

        If no position has changed since the last Fetch, the new Fetch has the very same FetchTopic
        object, as with a real follower. QuietFetches relies on this: for the same object it need
        not compare the positions.
        """
        positions = []
        for index, log_end in self.log_ends.items():
            partition = leader.partitions[TopicPartition(TOPIC, index)]
            positions.append(
                FetchPartition(
                    partition=index,
                    current_leader_epoch=partition.leader_epoch,
                    fetch_offset=log_end,
                    last_fetched_epoch=-1,  # no epoch, so the leader does not compare the logs
                )
            )
        if tuple(positions) != self.last_topic.partitions:
            self.last_topic = FetchTopic(topic=TOPIC, partitions=tuple(positions))
        return FetchRequest(
            replica_id=self.broker,
            replica_epoch=self.epoch,
            max_wait_ms=1,  # has no effect, because the FetchReader itself does not wait
            topics=(self.last_topic,),
        )

    def take(self, response: FetchResponse) -> None:
        """Append the records of an answer, that is, move the ends of the follower's logs."""
        for data in response.responses[0].partitions:
            for batch in data.records:
                self.log_ends[data.partition_index] = batch.last_offset + 1


def fetch_again(follower: Follower, quiet: Leader, plain: Leader, now_us: int) -> None:
    """Read a waiting Fetch again, as a broker does when a log has grown."""
    if follower.waiting_fetch is None:
        return
    request, quiet_answer, plain_answer = follower.waiting_fetch
    # `previous` is the answer of the first read. It shows the reader that this is a second read.
    quiet_read = quiet.reader.read(request, now_us, previous=quiet_answer)
    plain_read = plain.reader.read(request, now_us, previous=plain_answer)
    assert quiet_read == plain_read
    follower.take(quiet_read.response)
    follower.waiting_fetch = None


def fetch(follower: Follower, quiet: Leader, plain: Leader, now_us: int) -> None:
    """Send a Fetch to both leaders. If it must wait for records, keep it in `waiting_fetch`."""
    request = follower.request(quiet)
    quiet_read = quiet.reader.read(request, now_us)
    plain_read = plain.reader.read(request, now_us)
    assert quiet_read == plain_read
    if quiet_read.is_complete:
        follower.take(quiet_read.response)
    else:
        follower.waiting_fetch = (request, quiet_read.response, plain_read.response)


@pytest.mark.parametrize("seed", range(30))
def test_skipping_quiet_partitions_changes_no_answer_and_no_isr(seed: int) -> None:
    """Two leaders get the same random events, and must give the same answers and proposals.

    The leader `quiet` skips quiet partitions, and the leader `plain` reads all partitions. The
    events are appends, Fetches, ISR changes, new leader epochs and restarts of followers.

    A leader must note each Fetch of a follower, with its time and its offset, even in a quiet
    partition. If the leader `quiet` did not do this, a follower would leave only the ISR of
    `quiet`, and the two leaders would differ.
    """
    rng = random.Random(seed)
    quiet, plain = Leader(QuietFetches), Leader(NeverQuiet)
    followers = [Follower(B, 101), Follower(C, 102)]
    now_us = 0

    for _ in range(STEPS):
        # A follower lags if it sends no Fetch during four of the longest delays.
        now_us += rng.choice((1_000, 20_000, LAG_MAX_US // 3))

        index = rng.randrange(PARTITIONS)
        follower = rng.choice(followers)

        # Half of the events are Fetches. A new leader epoch or a restart is rare.
        draw = rng.random()
        if draw < 0.25:
            for leader in (quiet, plain):
                leader.append(index, now_us)
        elif draw < 0.75:
            fetch(follower, quiet, plain, now_us)
        elif draw < 0.85:
            fetch_again(follower, quiet, plain, now_us)
        elif draw < 0.9:
            for leader in (quiet, plain):
                leader.shrink(now_us)
        elif draw < 0.96:
            for leader in (quiet, plain):
                leader.answer_proposals(now_us)
        elif draw < 0.98:
            for leader in (quiet, plain):
                leader.lead(index, (A, B, C), now_us=now_us)
        else:  # the follower's broker restarts, which gives it a new broker epoch
            follower.epoch += 10
            for leader in (quiet, plain):
                leader.eligible[follower.broker] = BrokerEpoch(follower.epoch)
        assert quiet.state() == plain.state()
        assert quiet.effects == plain.effects


def test_quiet_partition_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """If one of a follower's partitions has a new record, the leader reads only this partition."""
    leader, follower = Leader(QuietFetches), Follower(B, 101)
    # The second Fetch has the same positions as the first, and finds no records, either. From then
    # on all partitions are quiet.
    for now_us in (1, 2):
        leader.reader.read(follower.request(leader), now_us)
    # The leader calls `fetch_nothing` for each partition that it reads.
    read_partitions: list[int] = []
    fetch_nothing = Partition.fetch_nothing

    def record_and_fetch(partition: Partition, request: FetchPartition, *args: int) -> object:
        read_partitions.append(request.partition)
        return fetch_nothing(partition, request, *args)

    monkeypatch.setattr(Partition, "fetch_nothing", record_and_fetch)
    leader.reader.read(follower.request(leader), 3)
    assert read_partitions == []

    leader.append(4, now_us=4)
    leader.reader.read(follower.request(leader), 5)
    assert read_partitions == [4]


@pytest.mark.parametrize("seed", [1, 3])
def test_whole_run_is_unchanged_without_the_skipping(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """The same experiment runs twice, the second time with brokers that read all partitions.

    The two runs would differ if a broker forgot to report a change of a partition to QuietFetches.
    `play_seed` draws an experiment at random from the space "reference", plays it, and returns
    hashes of all events of the run.
    """
    space = load_space("reference")
    with_skipping = play_seed(space, seed)
    monkeypatch.setattr(QuietFetches, "topic", NeverQuiet.topic)

    assert play_seed(space, seed) == with_skipping
