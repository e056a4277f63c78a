"""A follower's fetch loop after an error: which partitions wait, and which do not.

A source is a leader from which the follower fetches. The follower has a loop for each source. The
loop sends one Fetch at a time, for all partitions of the source. A Fetch without new records waits
at the source for up to 500 ms (a long poll). An error is answered without a wait.
"""

from collections.abc import Iterator

import pytest

from cluster.broker.channels import BrokerIdentity
from cluster.broker.replication.replica_fetcher import ReplicaFetchers
from cluster.host.incoming_request import IncomingRequest
from partition_log.log import PartitionLog
from partition_log.memory_storage import MemoryLogStorage
from partition_log.outcomes import ReplicaConfig
from partition_log.replica import Partition
from protocol.config import BrokerConfig
from protocol.errors import ErrorCode
from protocol.ids import (
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    PartitionEpoch,
    TopicPartition,
    broker_name,
)
from protocol.messages.log import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from tests.support.harness.virtual_hosts import LATENCY_US, HostLab

MS = 1_000
SOURCE, FOLLOWER = BrokerId(0), BrokerId(1)
BACKOFF_US = 1_000 * MS
"""The wait after an error: replica.fetch.backoff.ms."""
LONG_POLL_US = 500 * MS
"""The longest wait of a Fetch at the source: replica.fetch.wait.max.ms."""
TRIPS_US = 4 * LATENCY_US
"""Time to connect to the source and to send a Fetch, and far less than a long poll."""


def ignore_result(*_: object) -> None:
    """Do nothing. The tests do not need the results of Fetches, but the Fetches at the source."""


class Lab:
    """A follower's fetchers and the broker that they fetch from."""

    def __init__(self) -> None:
        self.hosts = HostLab()
        self.fetches: list[tuple[int, tuple[int, ...]]] = []
        """The time of each Fetch at the source, in microseconds, and its partitions."""
        self.not_led: tuple[int, ...] = ()
        """Partitions that the source does not lead."""
        host = self.hosts.host(broker_name(FOLLOWER))
        identity = BrokerIdentity(broker_id=FOLLOWER)
        identity.broker_epoch = BrokerEpoch(7)  # any number, as after a registration
        self.fetchers = ReplicaFetchers(host, identity, BrokerConfig(), ignore_result)

    def start_source(self) -> None:
        """Start the source, which then accepts requests."""
        self.source = self.hosts.host(broker_name(SOURCE))
        self.source.serve(self._serve)

    def follow(self, index: int) -> None:
        """Follow a partition."""
        name = TopicPartition("orders", index)
        partition = Partition(
            name,
            FOLLOWER,
            PartitionLog(name, MemoryLogStorage()),
            ReplicaConfig(
                min_insync_replicas=1,
                replica_lag_time_max_ms=30_000,
                message_max_bytes=1_000_000,
                min_insync_check=True,
            ),
        )
        partition.make_follower(
            leader_id=SOURCE,
            leader_epoch=LeaderEpoch(0),
            partition_epoch=PartitionEpoch(0),
            replicas=(SOURCE, FOLLOWER),
            isr=(SOURCE, FOLLOWER),
        )
        self.fetchers.follow(partition)

    def run_for(self, duration_us: int) -> None:
        """Advance the time."""
        self.hosts.run_for(duration_us)
        assert self.hosts.failures == []

    def _serve(self, request: IncomingRequest) -> None:
        body = request.envelope.body
        assert isinstance(body, FetchRequest)
        (topic,) = body.topics
        indexes = tuple(position.partition for position in topic.partitions)
        self.fetches.append((self.hosts.loop.now_us(), indexes))
        data = tuple(
            PartitionData(
                partition_index=index,
                error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER
                if index in self.not_led
                else ErrorCode.NONE,
                high_watermark=0,
                log_start_offset=0,
            )
            for index in indexes
        )
        answer = FetchResponse(responses=(FetchableTopicResponse(topic="orders", partitions=data),))
        # An error is answered without a wait. A Fetch without records waits, as in a long poll.
        delay_us = 0 if set(self.not_led) & set(indexes) else body.max_wait_ms * MS
        self.source.after(delay_us, self.source.reply, request.request_id, answer)


@pytest.fixture
def lab() -> Iterator[Lab]:
    """Return a lab, and end its fetchers after the test, because they never end by themselves."""
    lab = Lab()
    yield lab
    for host in lab.hosts.hosts:
        host.retire()  # `dispose` ends only the tasks of a host that is dead
        host.dispose()


def test_partition_with_an_error_is_left_out_and_delays_no_other(
    lab: Lab,
) -> None:
    """Partition 0 has an error, so the follower fetches it again only after the backoff of 1 s.

    Partition 1 is added meanwhile, and is fetched at once. The Fetch for partition 1 is a long
    poll. If it is in flight at the end of the backoff, partition 0 waits until it ends, for up to
    500 ms more.
    """
    lab.start_source()
    lab.not_led = (0,)
    lab.follow(0)
    lab.run_for(300 * MS)  # less than the backoff
    assert [indexes for _, indexes in lab.fetches] == [(0,)]

    lab.follow(1)
    lab.run_for(TRIPS_US)
    assert [indexes for _, indexes in lab.fetches] == [(0,), (1,)]

    lab.not_led = ()
    lab.run_for(2_000 * MS)
    first_us = lab.fetches[0][0]
    again_us = next(time_us for time_us, indexes in lab.fetches[1:] if 0 in indexes)
    # The long poll for partition 1, of up to 500 ms, must end before the next Fetch is sent.
    assert BACKOFF_US <= again_us - first_us <= BACKOFF_US + LONG_POLL_US + TRIPS_US


def test_partition_added_while_the_source_backs_off_is_fetched_at_once(
    lab: Lab,
) -> None:
    """After a failed request the follower waits before it fetches the same partitions again.

    A partition that is added during this wait is fetched at once.
    """
    lab.follow(0)
    lab.run_for(300 * MS)  # the source is not started yet, so the Fetch of partition 0 fails
    lab.start_source()
    lab.follow(1)
    lab.run_for(TRIPS_US)
    assert [indexes for _, indexes in lab.fetches] == [(1,)]
    lab.run_for(2_000 * MS)
    assert (0, 1) in {tuple(sorted(indexes)) for _, indexes in lab.fetches}
