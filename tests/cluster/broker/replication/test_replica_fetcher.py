"""How a follower fetches after an error: which partitions wait, and which do not.

A follower has one fetch loop for each broker from which it fetches. This broker is the source of
the loop. The loop sends one Fetch at a time, for all partitions that the source leads. If there are
no new records, the source answers after up to 500 ms (a long poll). If a partition has an error,
the source answers at once. The follower then leaves this partition out of its Fetches for 1 s.
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

MS = 1_000  # in microseconds
SOURCE, FOLLOWER = BrokerId(0), BrokerId(1)
BACKOFF_US = 1_000 * MS
"""The wait after an error: replica.fetch.backoff.ms."""
LONG_POLL_US = 500 * MS
"""The longest wait of a Fetch at the source: replica.fetch.wait.max.ms."""
CONNECT_AND_SEND_US = 4 * LATENCY_US
"""The time to connect to the source and to send a Fetch. It is far less than a long poll."""


def ignore_result(*_: object) -> None:
    """Ignore the answer to a Fetch. The tests look only at the Fetches that the source gets."""


class Lab:
    """The fetchers of a follower, and the source, which the lab itself plays."""

    def __init__(self) -> None:
        self.hosts = HostLab()
        self.fetches: list[tuple[int, tuple[int, ...]]] = []
        """The time of each Fetch at the source, in microseconds, and its partitions."""
        self.not_led: tuple[int, ...] = ()
        """Partitions that the source does not lead."""
        host = self.hosts.host(broker_name(FOLLOWER))
        identity = BrokerIdentity(broker_id=FOLLOWER)
        identity.broker_epoch = BrokerEpoch(7)  # as if the broker had registered
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
                error_code=self._error_of(index),
                high_watermark=0,
                log_start_offset=0,
            )
            for index in indexes
        )
        answer = FetchResponse(responses=(FetchableTopicResponse(topic="orders", partitions=data),))
        # An error is answered at once. A Fetch without an error waits for its whole time, because
        # there are no records.
        has_error = any(index in self.not_led for index in indexes)
        delay_us = 0 if has_error else body.max_wait_ms * MS
        self.source.after(delay_us, self.source.reply, request.request_id, answer)

    def _error_of(self, index: int) -> ErrorCode:
        if index in self.not_led:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.NONE


@pytest.fixture
def lab() -> Iterator[Lab]:
    """Return a lab, and end its fetchers after the test, because they never end by themselves."""
    lab = Lab()
    yield lab
    for host in lab.hosts.hosts:
        host.retire()  # marks the host as dead; `dispose` ends only tasks of dead hosts
        host.dispose()


def test_partition_with_an_error_waits_and_delays_no_other(lab: Lab) -> None:
    """Partition 0 has an error, so the follower fetches it again only after the backoff of 1 s.

    Partition 1 is added meanwhile, and is fetched at once. When the backoff ends, a long poll for
    partition 1 may be in flight. Then partition 0 waits for the end of this long poll, up to 500 ms
    more.
    """
    lab.start_source()
    lab.not_led = (0,)
    lab.follow(0)
    lab.run_for(300 * MS)  # less than the backoff
    assert [indexes for _, indexes in lab.fetches] == [(0,)]

    lab.follow(1)
    lab.run_for(CONNECT_AND_SEND_US)
    assert [indexes for _, indexes in lab.fetches] == [(0,), (1,)]

    lab.not_led = ()
    lab.run_for(2_000 * MS)
    first_us = lab.fetches[0][0]
    again_us = next(time_us for time_us, indexes in lab.fetches[1:] if 0 in indexes)
    assert BACKOFF_US <= again_us - first_us <= BACKOFF_US + LONG_POLL_US + CONNECT_AND_SEND_US


def test_partition_added_during_the_wait_after_a_failed_fetch_is_fetched_at_once(
    lab: Lab,
) -> None:
    """Only partition 0 waits after the failed Fetch. Partition 1 was not in this Fetch."""
    lab.follow(0)
    lab.run_for(300 * MS)  # the source is not started yet, so the Fetch of partition 0 fails
    lab.start_source()
    lab.follow(1)
    lab.run_for(CONNECT_AND_SEND_US)
    assert [indexes for _, indexes in lab.fetches] == [(1,)]
    lab.run_for(2_000 * MS)  # after the backoff one Fetch asks for both partitions
    assert (0, 1) in {tuple(sorted(indexes)) for _, indexes in lab.fetches}
