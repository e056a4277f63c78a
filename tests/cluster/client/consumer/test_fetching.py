"""Positions and fetches of a consumer: first positions, returned records, changes of the leader.

A position is the offset of the next record that the consumer will read.

- `make_lab(n)` makes `lab`, with `n` scripted brokers, which answer without errors by default.
- `broker.answer(Request, a, b)` scripts the broker's next answers to requests of that type.
- `lab.of_kind(kind)` returns rows of the trace (the recorded events). `broker.of_type(Request)`
  returns the requests of that type that a broker has received. `member_status(node)` is what the
  member reports of itself.
- `lab.run_for(SECOND)` lets a second of virtual time (a simulated clock) pass. A consumer joins its
  group within the first second.
- The topic `t` has two partitions unless a test gives another number.
- `lab.leader` leads all partitions; `lab.high_watermark` is the number of records in each.
- `lab.committed` has the committed offsets.
- A consumer commits every 200 ms; with `commit_interval_ms=None` it never commits.
- By default a consumer has `enable.auto.commit=false` and `auto.offset.reset=earliest`. A test with
  settings of its own repeats them.

A test changes the cluster by assigning to the attributes of `lab`.
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


def ranges(lab: ClientLab) -> list[tuple[str | None, int | None, str | None]]:
    """Return partition, first offset and detail of every RECORDS_CONSUMED row of the trace.

    A row is about the records of one partition that one poll returned. The consumer writes the row
    when it has processed these records. The detail has the number of the records, the last offset,
    and the processing time `work_us`, unless this time is 0.
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
    # There is a row for each of the two partitions.
    assert [(row.offset, row.cause) for row in lab.of_kind("position_reset")] == [
        (offset, reset),
        (offset, reset),
    ]


def test_partition_without_a_committed_offset_and_reset_none_ends_the_application(
    make_lab: LabMaker,
) -> None:
    """The application gets NoOffsetForPartitionException, as in Kafka, and closes its consumer."""
    lab = make_lab(1)
    node = lab.consumer(ConsumerConfig(enable_auto_commit=False, auto_offset_reset="none"))
    lab.run_for(2 * SECOND)
    # The consumer has not asked for the first or last offset, and has left its group.
    assert lab.brokers[0].of_type(ListOffsetsRequest) == []
    assert member_status(node).state == "UNJOINED"


def test_reset_that_fails_is_repeated(make_lab: LabMaker) -> None:
    """Two ListOffsets answers lack the partitions, as after a move of the leader.

    After each of these answers the consumer requests new metadata and repeats the reset.
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
    assert ranges(lab) == [
        ("t-0", 0, '{"count":3,"last":2}'),
        ("t-0", 3, '{"count":2,"last":4}'),
    ]


def test_poll_returns_at_most_max_poll_records(make_lab: LabMaker) -> None:
    """Several polls return the records of one Fetch. Each poll moves the position."""
    lab = make_lab(1, partitions=1)
    lab.high_watermark = 25
    config = ConsumerConfig(
        enable_auto_commit=False, auto_offset_reset="earliest", max_poll_records=10
    )
    lab.consumer(config)
    lab.run_for(2 * SECOND)
    assert [detail for _partition, _first, detail in ranges(lab)] == [
        '{"count":10,"last":9}',
        '{"count":10,"last":19}',
        '{"count":5,"last":24}',
    ]
    assert lab.committed == {0: 25}


def test_one_fetch_is_in_flight_per_leader(make_lab: LabMaker) -> None:
    """One Fetch contains all partitions of its leader.

    If there are no records, the broker answers a Fetch after 500 ms (fetch.max.wait.ms). The
    consumer sends one Fetch after the other, so in 5 s it sends 10.
    """
    lab = make_lab(1, partitions=6)
    lab.consumer(commit_interval_ms=None)
    lab.run_for(SECOND)
    fetches_before = len(lab.brokers[0].of_type(FetchRequest))
    lab.run_for(5 * SECOND)
    assert len(lab.brokers[0].of_type(FetchRequest)) - fetches_before == 10
    request = lab.brokers[0].of_type(FetchRequest)[-1]
    assert isinstance(request, FetchRequest)
    assert [entry.partition for topic in request.topics for entry in topic.partitions] == [
        *range(6)
    ]


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
    """The errors tell the consumer that its metadata are old.

    It reads all 4 records of each of the two partitions from the new leader, broker 1.
    """
    lab = make_lab(2)
    node = lab.consumer(commit_interval_ms=None)
    lab.run_for(SECOND)

    metadata_requests = sum(len(broker.of_type(MetadataRequest)) for broker in lab.brokers)
    # The old leader answers the next two Fetches with the error.
    lab.brokers[0].answer(FetchRequest, *[fetch_error(code)] * 2)
    lab.leader, lab.leader_epoch, lab.high_watermark = 1, 1, 4
    lab.run_for(2 * SECOND)

    assert sum(len(broker.of_type(MetadataRequest)) for broker in lab.brokers) > metadata_requests
    assert member_status(node).records_consumed == 8
    request = lab.brokers[1].of_type(FetchRequest)[-1]
    assert isinstance(request, FetchRequest)
    assert request.topics[0].partitions[0].current_leader_epoch == 1


def test_fetch_continues_at_the_next_leader_after_a_death(make_lab: LabMaker) -> None:
    """The closed connection makes the consumer request new metadata.

    Broker 1 coordinates the group, so the death of the leader, broker 0, leaves the group alone. At
    the end each of the two partitions has 4 records, and none was read twice.
    """
    lab = make_lab(2)
    lab.coordinator = 1
    lab.high_watermark = 3
    node = lab.consumer()
    lab.run_for(2 * SECOND)

    lab.brokers[0].host.crash()
    lab.run_for(3 * SECOND)  # for this time the metadata still name the dead leader
    lab.leader, lab.leader_epoch, lab.high_watermark = 1, 1, 4
    lab.run_for(3 * SECOND)
    assert member_status(node).records_consumed == 8
    assert lab.committed == {0: 4, 1: 4}


def test_fetch_ignores_metadata_with_an_older_leader_epoch(make_lab: LabMaker) -> None:
    """Kafka's client keeps the newest leader epoch (number of a leadership) that it has seen.

    The newest epoch here is 5. Later metadata name broker 0 as the leader in epoch 4, which is
    older. So the consumer does not fetch from broker 0.
    """
    lab = make_lab(2)
    lab.leader, lab.leader_epoch = 1, 5
    # The consumer requests metadata every second.
    lab.consumer(
        ConsumerConfig(
            enable_auto_commit=False, auto_offset_reset="earliest", metadata_max_age_ms=1_000
        ),
        commit_interval_ms=None,
    )
    lab.run_for(SECOND)
    lab.leader, lab.leader_epoch = 0, 4
    lab.run_for(5 * SECOND)
    assert lab.brokers[0].of_type(FetchRequest) == []


def test_fetch_out_of_range_resets_the_position(make_lab: LabMaker) -> None:
    """In an unclean election a replica that lacks records becomes the leader.

    The committed offset may then be beyond the leader's log end. In this case auto.offset.reset
    decides the position.
    """
    lab = make_lab(1, partitions=1)
    lab.committed = {0: 100}
    lab.high_watermark = 2
    # A scripted broker does not check offsets itself, so the test scripts the error.
    out_of_range = fetch_error(ErrorCode.OFFSET_OUT_OF_RANGE, partitions=1)
    lab.brokers[0].answer(FetchRequest, out_of_range)
    lab.consumer(commit_interval_ms=None)
    lab.run_for(2 * SECOND)
    assert [(row.offset, row.cause) for row in lab.of_kind("position_reset")] == [
        (100, "committed"),
        (0, "earliest"),
    ]
    assert ranges(lab) == [("t-0", 0, '{"count":2,"last":1}')]


def test_late_out_of_range_of_a_former_leader_resets_no_position(make_lab: LabMaker) -> None:
    """An answer of a former leader is ignored if it comes after records of the new leader.

    At first broker 1 leads.

    1. Broker 0 becomes the leader, and its answer to a Fetch is delayed.
    2. Broker 1 becomes the leader again, and answers with five records of each partition. A poll
       returns one record, so the records of `t-1` wait in the consumer while those of `t-0` are
       processed.
    3. The answer of broker 0 arrives, with OFFSET_OUT_OF_RANGE for both partitions. It must not
       reset the position of `t-1`. Otherwise the consumer would process the records that wait, and
       then process all of them again from offset 0.
    """
    lab = make_lab(2, partitions=2)
    lab.leader = 1
    # The consumer requests metadata, and so learns of a new leader, every 0.5 s.
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
    lab.leader, lab.leader_epoch = 0, 1
    lab.run_for(2 * SECOND)
    lab.leader, lab.leader_epoch, lab.high_watermark = 1, 2, 5
    # Wait until the first record of `t-0` is processed.
    while not ranges(lab):
        lab.run_for(50 * MS)
    (late,) = lab.brokers[0].unanswered  # the delayed Fetch
    lab.brokers[0].host.reply(
        late.request_id, fetch_error(ErrorCode.OFFSET_OUT_OF_RANGE, partitions=2)
    )
    lab.run_for(4 * SECOND)

    assert [row.cause for row in lab.of_kind("position_reset")] == ["earliest", "earliest"]
    assert [first for partition, first, _detail in ranges(lab) if partition == "t-1"] == [*range(5)]


def test_records_count_as_processed_after_the_processing_time(make_lab: LabMaker) -> None:
    """Ten records with 100 ms each count as processed a second after the poll, all at once.

    So a consumer that dies within this second has processed none of them. The consumer joins its
    group first, so at 0.9 s the records are not processed yet. At 1.2 s they are.
    """
    lab = make_lab(1, partitions=1)
    lab.high_watermark = 10
    lab.consumer(process_us=100 * MS)
    lab.run_for(900 * MS)
    assert ranges(lab) == []
    lab.run_for(300 * MS)
    assert ranges(lab) == [("t-0", 0, '{"count":10,"last":9,"work_us":1000000}')]


def test_processing_time_counts_from_the_poll_that_returned_the_records(make_lab: LabMaker) -> None:
    """A poll returns ten records of each of two partitions. Each record takes 10 ms.

    The second partition is processed after the first one, so its `work_us` includes the time of
    both partitions: 2 * 100 ms.
    """
    lab = make_lab(1, partitions=2)
    lab.high_watermark = 10
    lab.consumer(process_us=10 * MS)
    lab.run_for(900 * MS)
    assert ranges(lab)[:2] == [
        ("t-0", 0, '{"count":10,"last":9,"work_us":100000}'),
        ("t-1", 0, '{"count":10,"last":9,"work_us":200000}'),
    ]


def test_pause_is_no_processing(make_lab: LabMaker) -> None:
    """A member that is paused while it processes records does not process during the pause.

    So the 5 s of the pause do not count as work: ten records take 1 s. The pause begins at 0.9 s,
    as in the test above before the last record is processed.
    """
    lab = make_lab(1, partitions=1)
    lab.high_watermark = 10
    lab.consumer(process_us=100 * MS)
    lab.run_for(900 * MS)

    lab.clients[0].pause()
    lab.run_for(5 * SECOND)
    lab.clients[0].resume()
    lab.run_for(300 * MS)
    assert ranges(lab) == [("t-0", 0, '{"count":10,"last":9,"work_us":1000000}')]


def test_processing_time_of_each_record_is_drawn_between_its_bounds(make_lab: LabMaker) -> None:
    """Each record takes 10 ms and a random part of up to 20 ms, from the node's random stream."""
    lab = make_lab(1, partitions=1)
    lab.high_watermark = 10
    lab.consumer(process_us=10 * MS, process_spread_us=20 * MS)
    lab.run_for(900 * MS)
    ((_, _, detail),) = ranges(lab)
    assert detail is not None
    work_us = json.loads(detail)["work_us"]
    assert 10 * 10 * MS < work_us < 10 * 30 * MS  # ten records of 10 to 30 ms
    assert work_us % (10 * MS) != 0  # the random parts are in microseconds
