"""A leader that skips quiet partitions answers and counts like one that reads everything.

A partition is quiet for a follower if the follower's last Fetch found nothing new there, and
nothing has changed since. `QuietFetches` remembers quiet partitions; `NeverQuiet`, the reference,
remembers none. A, B and C are the brokers: A leads, B and C follow. A parked Fetch waits for new
records.
"""

import random

import pytest

from chaos.exploration.batches import play_seed
from chaos.exploration.space import load_space
from cluster.broker.replication.fetch_reader import FetchRead, FetchReader, PartitionKey
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
STEPS = 300


class NeverQuiet(QuietFetches):
    """Remembers no quiet partition: every partition is read for every Fetch."""

    def topic(
        self, topic: FetchTopic, replica_id: int, replica_epoch: int, *, is_new: bool
    ) -> QuietTopic | None:
        del topic, replica_id, replica_epoch, is_new
        return None


class Leader:
    """The partitions that a broker leads, with the change reports of a ReplicaManager."""

    def __init__(self, quiet: type[QuietFetches]) -> None:
        self.eligible = {A: BrokerEpoch(100), B: BrokerEpoch(101), C: BrokerEpoch(102)}
        self.quiet = quiet(self.eligible)
        self.partitions: dict[PartitionKey, Partition] = {}
        self.proposals: dict[PartitionKey, IsrProposal] = {}
        self.epoch = 1
        self.log: list[object] = []
        """Effects of all Fetches and proposals so far."""
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
            lambda *_: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            self.fetched,
            self.quiet,
        )

    def lead(self, index: int, isr: tuple[BrokerId, ...], *, now_us: int) -> None:
        """Apply metadata of a partition, with a new leader epoch."""
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

    def fetched(self, partition: Partition, result: FetchResult) -> None:
        """Take the effects of a follower's progress, as a ReplicaManager does."""
        name = partition.topic_partition
        self.log.append((name, result.new_high_watermark, result.proposal))
        if result.new_high_watermark is not None:
            self.quiet.changed(name)
        if result.proposal is not None:
            self.proposals[name] = result.proposal

    def shrink(self, now_us: int) -> None:
        """Propose the ISRs without the followers that lag."""
        for name, partition in self.partitions.items():
            proposal = partition.maybe_shrink_isr(now_us)
            self.log.append(proposal)
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
            self.log.append(result)
        self.proposals.clear()

    def state(self) -> list[object]:
        """Return the state of each partition that Fetches may change."""
        return [
            (partition.isr, partition.high_watermark, partition.isr_in_flight)
            for partition in self.partitions.values()
        ]


class Follower:
    """Sends equal Fetches to two leaders, which must answer equally."""

    def __init__(self, broker: BrokerId, epoch: int) -> None:
        self.broker = broker
        self.epoch = epoch
        self.ends = dict.fromkeys(range(PARTITIONS), 0)
        self.last_topic = FetchTopic(topic=TOPIC, partitions=())
        self.parked: tuple[FetchRequest, FetchResponse, FetchResponse] | None = None
        """A Fetch that waits, with the first answers of both leaders."""

    def request(self, leader: Leader) -> FetchRequest:
        """Return a Fetch from the follower's log ends.

        If no position has changed, the Fetch has the same FetchTopic object as the last one, as a
        real follower's has: QuietFetches compares objects before their values.
        """
        positions = []
        for index, end in self.ends.items():
            partition = leader.partitions[TopicPartition(TOPIC, index)]
            positions.append(
                FetchPartition(
                    partition=index,
                    current_leader_epoch=partition.leader_epoch,
                    fetch_offset=end,
                    last_fetched_epoch=-1,
                )
            )
        if tuple(positions) != self.last_topic.partitions:
            self.last_topic = FetchTopic(topic=TOPIC, partitions=tuple(positions))
        return FetchRequest(
            replica_id=self.broker,
            replica_epoch=self.epoch,
            max_wait_ms=1,
            topics=(self.last_topic,),
        )

    def take(self, response: FetchResponse) -> None:
        """Append the records of an answer, of which only the ends matter here."""
        for data in response.responses[0].partitions:
            for batch in data.records:
                self.ends[data.partition_index] = batch.last_offset + 1


def fetch_again(follower: Follower, quiet: Leader, plain: Leader, now_us: int) -> None:
    """Read a parked Fetch again, as a broker does when one of the logs has grown."""
    if follower.parked is None:
        return
    request, quiet_answer, plain_answer = follower.parked
    reads = (
        quiet.reader.read(request, now_us, previous=quiet_answer),
        plain.reader.read(request, now_us, previous=plain_answer),
    )
    assert reads[0] == reads[1]
    follower.take(reads[0].response)
    follower.parked = None


def fetch(follower: Follower, quiet: Leader, plain: Leader, now_us: int) -> None:
    """Send a Fetch to both leaders; park the Fetch if the leaders let it wait."""
    request = follower.request(quiet)
    reads: tuple[FetchRead, FetchRead] = (
        quiet.reader.read(request, now_us),
        plain.reader.read(request, now_us),
    )
    assert reads[0] == reads[1]
    if reads[0].is_complete:
        follower.take(reads[0].response)
    else:
        follower.parked = (request, reads[0].response, reads[1].response)


@pytest.mark.parametrize("seed", range(30))
def test_skipping_quiet_partitions_changes_no_answer_and_no_count(seed: int) -> None:
    """The drawn events: appends, Fetches, ISR changes, new leader epochs, restarts of followers.

    `quiet` is a leader that skips quiet partitions, `plain` one that reads all of them.
    """
    rng = random.Random(seed)
    quiet, plain = Leader(QuietFetches), Leader(NeverQuiet)
    followers = [Follower(B, 101), Follower(C, 102)]
    now_us = 0

    for _ in range(STEPS):
        now_us += rng.choice((1_000, 20_000, LAG_MAX_US // 3))

        index = rng.randrange(PARTITIONS)
        follower = rng.choice(followers)

        # Half of the events are Fetches; a new leader epoch or a restart is rare.
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
        assert quiet.log == plain.log


def test_quiet_partition_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower of hundreds of partitions usually lacks records of one, which alone is read."""
    leader, follower = Leader(QuietFetches), Follower(B, 101)
    for now_us in (1, 2):  # two Fetches with equal positions and no records: all become quiet
        leader.reader.read(follower.request(leader), now_us)
    # A follower's Fetch calls `fetch_nothing` for each partition that it reads.
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
    """A space is a file from which a seed draws an experiment; `play_seed` returns its digests.

    They would differ if a broker did not report a change of a partition to QuietFetches.
    """
    space = load_space("reference")
    with_skipping = play_seed(space, seed)
    monkeypatch.setattr(QuietFetches, "topic", NeverQuiet.topic)

    assert play_seed(space, seed) == with_skipping
