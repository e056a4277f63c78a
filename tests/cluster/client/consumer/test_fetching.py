"""Positions and fetches of a consumer: first positions, returned records, changes of the leader.

The position of a partition is the offset of the next record that the consumer will read there.

In these tests a real consumer talks to scripted brokers, which give the answers that the test has
prepared. `make_lab(n)` makes a `lab` with `n` scripted brokers. By default the brokers answer
without errors:

- The topic `t` has two partitions, or another number that the test gives. The consumer is the only
  member of its group, so it gets all partitions.
- Broker 0 is the leader of the partitions and the coordinator of the group. A test can assign
  another broker to `lab.leader` or `lab.coordinator`.
- `lab.high_watermark` is the number of records in each partition, and `lab.committed` has the
  committed offsets, such as `{0: 4, 1: 4}`.
- The application of the consumer commits every 200 ms. With `commit_interval_ms` it commits at this
  interval, or never if the interval is None. By default the consumer has
  `enable.auto.commit=false` and `auto.offset.reset=earliest`. A test that passes its own
  ConsumerConfig repeats these settings.

The tests use these calls:

- `broker.answer(Request, a, b)` scripts the next answers of the broker to requests of this type.
  An answer None leaves the request unanswered.
- `broker.of_type(Request)` returns the requests of this type that the broker has received.
- `lab.of_kind(kind)` returns the rows of the trace that have this kind. The trace is the list of
  the events that the nodes have recorded.
- `member_status(node)` returns what the consumer reports about itself.
- `lab.run_for(SECOND)` lets a second of virtual time pass. In this second a consumer can join its
  group.
"""

import json
from typing import Literal

import pytest

from protocol.config import ConsumerConfig
from protocol.errors import ErrorCode
from protocol.messages.discovery import MetadataRequest
from protocol.messages.log import FetchRequest, ListOffsetsRequest, ListOffsetsResponse
from tests.support.harness.scripted_broker import (
    MS,
    SECOND,
    ClientLab,
    LabMaker,
    fetch_error,
    member_status,
)


def elect(lab: ClientLab, leader: int, *, leader_epoch: int) -> None:
    """Make broker `leader` the leader of all partitions, in the given epoch."""
    lab.leader = leader
    lab.leader_epoch = leader_epoch


def processed_ranges(lab: ClientLab) -> list[tuple[str | None, int | None, str | None]]:
    """Return partition, first offset and detail of every RECORDS_CONSUMED row of the trace.

    Example: `("t-0", 3, '{"count":2,"last":4}')` says that the consumer has processed two records
    of t-0, with the offsets 3 and 4. Both records came from one poll. If the processing took time,
    the detail also has this time, `work_us`.
    """
    return [(row.partition, row.offset, row.detail) for row in lab.of_kind("records_consumed")]


@pytest.mark.parametrize(("reset", "offset"), [("earliest", 0), ("latest", 5)])
def test_partition_without_a_committed_offset_is_reset(
    make_lab: LabMaker, reset: Literal["earliest", "latest"], offset: int
) -> None:
    """auto.offset.reset decides where a group without committed offsets begins."""
    lab = make_lab(1)
    lab.high_watermark = 5
    lab.consumer(ConsumerConfig(enable_auto_commit=False, auto_offset_reset=reset))
    lab.run_for(SECOND)
    assert [(row.partition, row.offset, row.cause) for row in lab.of_kind("position_reset")] == [
        ("t-0", offset, reset),
        ("t-1", offset, reset),
    ]


def test_partition_without_a_committed_offset_and_reset_none_ends_the_application(
    make_lab: LabMaker,
) -> None:
    """The application gets NoOffsetForPartitionException, as in Kafka, and closes its consumer.

    With the other values of auto.offset.reset the consumer would ask for the first or the last
    offset (ListOffsets).
    """
    lab = make_lab(1)
    node = lab.consumer(ConsumerConfig(enable_auto_commit=False, auto_offset_reset="none"))
    lab.run_for(2 * SECOND)
    assert lab.brokers[0].of_type(ListOffsetsRequest) == []
    assert member_status(node).state == "UNJOINED"  # the closed consumer has left its group


def test_reset_that_fails_is_repeated(make_lab: LabMaker) -> None:
    """To reset a position, the consumer asks the partition's leader for an offset (ListOffsets).

    Here the first two answers lack the partitions, as if the leader had moved. After each such
    answer the consumer requests new metadata and asks again.
    """
    lab = make_lab(1)
    lab.brokers[0].answer(ListOffsetsRequest, ListOffsetsResponse(), ListOffsetsResponse())
    lab.consumer()
    lab.run_for(2 * SECOND)
    # Two requests fail and the third succeeds. Then each of the two partitions has a position.
    assert len(lab.brokers[0].of_type(ListOffsetsRequest)) == 3
    assert len(lab.of_kind("position_reset")) == 2


def test_consumed_ranges_name_first_last_and_count(make_lab: LabMaker) -> None:
    """Each row RECORDS_CONSUMED has the first offset, the last one and the number of records.

    Checkers find duplicates and gaps from these rows.
    """
    lab = make_lab(1, partitions=1)
    lab.high_watermark = 3
    lab.consumer()
    lab.run_for(SECOND)
    lab.high_watermark = 5
    lab.run_for(SECOND)
    assert processed_ranges(lab) == [
        ("t-0", 0, '{"count":3,"last":2}'),
        ("t-0", 3, '{"count":2,"last":4}'),
    ]


def test_poll_returns_at_most_max_poll_records(make_lab: LabMaker) -> None:
    """One Fetch brings 25 records, and three polls return them. Each poll moves the position."""
    lab = make_lab(1, partitions=1)
    lab.high_watermark = 25
    config = ConsumerConfig(
        enable_auto_commit=False, auto_offset_reset="earliest", max_poll_records=10
    )
    lab.consumer(config)
    lab.run_for(2 * SECOND)
    assert [detail for _partition, _first, detail in processed_ranges(lab)] == [
        '{"count":10,"last":9}',
        '{"count":10,"last":19}',
        '{"count":5,"last":24}',
    ]
    assert lab.committed == {0: 25}


def test_one_fetch_is_in_flight_per_leader(make_lab: LabMaker) -> None:
    """The consumer fetches all partitions of a leader with one Fetch at a time.

    There are no records, so the broker answers each Fetch only after 500 ms (fetch.max.wait.ms).
    That makes ten Fetches in 5 s. Each Fetch names all six partitions.
    """
    lab = make_lab(1, partitions=6)
    lab.consumer(commit_interval_ms=None)
    lab.run_for(SECOND)
    fetches_before = len(lab.brokers[0].of_type(FetchRequest))
    lab.run_for(5 * SECOND)
    assert len(lab.brokers[0].of_type(FetchRequest)) - fetches_before == 10
    request = lab.brokers[0].of_type(FetchRequest)[-1]
    assert isinstance(request, FetchRequest)
    (topic,) = request.topics
    assert [partition.partition for partition in topic.partitions] == list(range(6))


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ],
)
def test_fetch_from_the_wrong_leader_refreshes_metadata_and_continues_at_the_right_one(
    make_lab: LabMaker, code: ErrorCode
) -> None:
    """Each of these errors tells the consumer that its metadata may be old.

    The consumer requests new metadata. Then it reads from the new leader, broker 1, where each of
    the two partitions has 4 records.
    """
    lab = make_lab(2)
    node = lab.consumer(commit_interval_ms=None)
    lab.run_for(SECOND)

    def metadata_requests() -> int:
        return sum(len(broker.of_type(MetadataRequest)) for broker in lab.brokers)

    metadata_requests_before = metadata_requests()
    # The old leader answers the next two Fetches with the error.
    lab.brokers[0].answer(FetchRequest, fetch_error(code), fetch_error(code))
    elect(lab, 1, leader_epoch=1)
    lab.high_watermark = 4
    lab.run_for(2 * SECOND)

    assert metadata_requests() > metadata_requests_before
    assert member_status(node).records_consumed == 2 * 4
    request = lab.brokers[1].of_type(FetchRequest)[-1]
    assert isinstance(request, FetchRequest)
    assert request.topics[0].partitions[0].current_leader_epoch == 1


def test_fetch_continues_at_the_next_leader_after_a_death(make_lab: LabMaker) -> None:
    """When the connection to the leader ends, the consumer requests new metadata.

    Broker 0, the leader, dies. Broker 1 coordinates the group, so the group itself is not
    disturbed. When broker 1 has become the leader, the consumer goes on at its old position, and
    reads no record twice.
    """
    lab = make_lab(2)
    lab.coordinator = 1
    lab.high_watermark = 3
    node = lab.consumer()
    lab.run_for(2 * SECOND)

    lab.brokers[0].host.crash()
    lab.run_for(3 * SECOND)  # for this time the metadata still name the dead leader
    elect(lab, 1, leader_epoch=1)
    lab.high_watermark = 4  # after the three old records, each partition has a new one
    lab.run_for(3 * SECOND)
    assert member_status(node).records_consumed == 2 * 4
    assert lab.committed == {0: 4, 1: 4}


def test_fetch_ignores_metadata_with_an_older_leader_epoch(make_lab: LabMaker) -> None:
    """The leader epoch grows with each new leader, so a lower epoch shows that metadata are old.

    At first broker 1 leads, in epoch 5. The next metadata say that broker 0 leads, in epoch 4. The
    consumer ignores them, and does not fetch from broker 0. It refreshes its metadata every second.
    """
    lab = make_lab(2)
    elect(lab, 1, leader_epoch=5)
    lab.consumer(
        ConsumerConfig(
            enable_auto_commit=False, auto_offset_reset="earliest", metadata_max_age_ms=1_000
        ),
        commit_interval_ms=None,
    )
    lab.run_for(SECOND)
    elect(lab, 0, leader_epoch=4)
    lab.run_for(5 * SECOND)
    assert lab.brokers[0].of_type(FetchRequest) == []


def test_fetch_out_of_range_resets_the_position(make_lab: LabMaker) -> None:
    """After an unclean election the leader may lack records that a consumer has read already.

    Then the committed offset, here 100, is beyond the end of the leader's log, here 2. So the
    leader answers OFFSET_OUT_OF_RANGE, and auto.offset.reset decides where the consumer goes on.
    """
    lab = make_lab(1, partitions=1)
    lab.committed = {0: 100}
    lab.high_watermark = 2
    # A scripted broker does not compare the fetched offset with its log, so the test scripts the
    # error. For later Fetches it gets the broker's usual answer.
    out_of_range = fetch_error(ErrorCode.OFFSET_OUT_OF_RANGE, partitions=1)
    lab.brokers[0].answer(FetchRequest, out_of_range)
    lab.consumer(commit_interval_ms=None)
    lab.run_for(2 * SECOND)
    assert [(row.offset, row.cause) for row in lab.of_kind("position_reset")] == [
        (100, "committed"),
        (0, "earliest"),
    ]
    assert processed_ranges(lab) == [("t-0", 0, '{"count":2,"last":1}')]


def test_late_out_of_range_of_a_former_leader_resets_no_position(make_lab: LabMaker) -> None:
    """An answer of a former leader is ignored if it comes after records of the new leader.

    1. Broker 1 leads. Then broker 0 becomes the leader, and its answer to a Fetch is delayed.
    2. Broker 1 becomes the leader again, and answers with five records of each partition. Each poll
       returns one record. So the records of `t-1` wait in the consumer while the records of `t-0`
       are processed.
    3. The delayed answer of broker 0 arrives, with OFFSET_OUT_OF_RANGE for both partitions. This
       answer must not reset the position of `t-1`. If it did, the consumer would process the
       waiting records, and then all five records again from offset 0.

    The consumer requests metadata every 0.5 s, and so learns of each new leader.
    """
    lab = make_lab(2, partitions=2)
    lab.leader = 1
    config = ConsumerConfig(
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        max_poll_records=1,
        metadata_max_age_ms=500,
    )
    lab.consumer(config, commit_interval_ms=None, process_us=300 * MS)
    lab.run_for(SECOND)
    lab.brokers[0].answer(FetchRequest, None)  # the test answers this Fetch later
    lab.brokers[1].answer(FetchRequest, fetch_error(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    elect(lab, 0, leader_epoch=1)
    lab.run_for(2 * SECOND)
    elect(lab, 1, leader_epoch=2)
    lab.high_watermark = 5
    first_record_is_processed = False
    while not first_record_is_processed:
        lab.run_for(50 * MS)
        first_record_is_processed = processed_ranges(lab) != []
    (delayed_fetch,) = lab.brokers[0].unanswered
    lab.brokers[0].host.reply(
        delayed_fetch.request_id, fetch_error(ErrorCode.OFFSET_OUT_OF_RANGE, partitions=2)
    )
    lab.run_for(4 * SECOND)

    # Each partition got a position at the start, and was never reset later.
    assert [row.cause for row in lab.of_kind("position_reset")] == ["earliest", "earliest"]
    offsets_of_t1 = [
        offset for partition, offset, _detail in processed_ranges(lab) if partition == "t-1"
    ]
    assert offsets_of_t1 == [0, 1, 2, 3, 4]


def test_records_count_as_processed_after_the_processing_time(make_lab: LabMaker) -> None:
    """Ten records of one poll take 100 ms each. All ten count as processed 1 s after the poll.

    So a consumer that dies within this second has processed none of these records.

    The poll comes as soon as the consumer has joined its group: 0 to 0.2 s after the start. So the
    records are processed 1 s to 1.2 s after the start. The test looks at 0.9 s and at 1.2 s.
    """
    lab = make_lab(1, partitions=1)
    lab.high_watermark = 10
    lab.consumer(process_us=100 * MS)
    lab.run_for(900 * MS)
    assert processed_ranges(lab) == []
    lab.run_for(300 * MS)
    assert processed_ranges(lab) == [("t-0", 0, '{"count":10,"last":9,"work_us":1000000}')]


def test_processing_time_counts_from_the_poll_that_returned_the_records(make_lab: LabMaker) -> None:
    """A poll returns ten records of each of two partitions. Each record takes 10 ms.

    The ten records of t-0 are processed first, and take 100 ms. Then the records of t-1 take
    another 100 ms. `work_us` counts from the poll, so it is 100 ms for t-0 and 200 ms for t-1.
    """
    lab = make_lab(1, partitions=2)
    lab.high_watermark = 10
    lab.consumer(process_us=10 * MS)
    lab.run_for(900 * MS)
    assert processed_ranges(lab) == [
        ("t-0", 0, '{"count":10,"last":9,"work_us":100000}'),
        ("t-1", 0, '{"count":10,"last":9,"work_us":200000}'),
    ]


def test_pause_is_no_processing(make_lab: LabMaker) -> None:
    """A paused consumer does not process records, so the time of the pause does not count as work.

    The consumer processes ten records, which take 100 ms each. After 0.9 s, in the middle of this
    work, a pause of 5 s begins. The recorded time of the work is 1 s, as in a test without a pause.
    """
    lab = make_lab(1, partitions=1)
    lab.high_watermark = 10
    lab.consumer(process_us=100 * MS)
    lab.run_for(900 * MS)

    lab.clients[0].pause()
    lab.run_for(5 * SECOND)
    lab.clients[0].resume()
    lab.run_for(300 * MS)
    assert processed_ranges(lab) == [("t-0", 0, '{"count":10,"last":9,"work_us":1000000}')]


def test_processing_time_of_each_record_is_drawn_between_its_bounds(make_lab: LabMaker) -> None:
    """Each record takes 10 ms and a random part of up to 20 ms, from the node's random stream."""
    lab = make_lab(1, partitions=1)
    lab.high_watermark = 10
    lab.consumer(process_us=10 * MS, process_spread_us=20 * MS)
    lab.run_for(900 * MS)
    ((_, _, detail),) = processed_ranges(lab)
    assert detail is not None
    work_us = json.loads(detail)["work_us"]
    assert 10 * 10 * MS < work_us < 10 * 30 * MS  # ten records of 10 to 30 ms
    assert work_us % (10 * MS) != 0  # the random parts are no multiples of 10 ms
