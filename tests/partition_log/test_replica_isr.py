"""How a leader shrinks and expands its ISR with the request AlterPartition.

A leader cannot change its ISR alone. It proposes a new ISR to the controller, and waits for the
answer. Meanwhile the leader does not know whether the old ISR or the new ISR counts. So it keeps
two sets:

- `isr`, the committed ISR, is the last ISR that the controller has confirmed.
- `maximal_isr` has the members of the committed ISR and of the proposed ISR. The high watermark
  waits for all of them.

For example, A has the ISR {A, B} and proposes to add C. Until the answer, the maximal ISR is {A, B,
C}.

A, B and C are the brokers 0, 1 and 2, with the broker epochs 100, 101 and 102; A leads.
`log_of_epochs(0, 0)` is a log with two records of leader epoch 0. `fetch_as(leading, B, offset=1)`
is a Fetch of B, whose log ends at offset 1. LAG_MAX_US is replica.lag.time.max.ms, 30 s.
min.insync.replicas is 2.

BEHAVIOUR 6.1 is a section of docs/kafka/BEHAVIOUR.md. "Source" names Kafka's methods and tests.
"""

import pytest

from partition_log.invariants import check_partition
from partition_log.outcomes import IsrProposal
from partition_log.replica import Partition
from protocol.effects import ACKS_ALL
from protocol.errors import ErrorCode
from protocol.ids import BrokerEpoch, BrokerId
from protocol.messages.controller import AlterPartitionPartitionResponse, IsrBrokerState
from tests.support.builders.partition_logs import (
    EVERYBODY,
    LAG_MAX_US,
    REPLICAS,
    SECOND,
    A,
    B,
    C,
    fetch_as,
    leader,
    log_of_epochs,
    records,
)


def answer(
    leading: Partition,
    proposal: IsrProposal,
    error: ErrorCode = ErrorCode.NONE,
    *,
    leader_epoch: int = 1,
    partition_epoch: int = 2,
) -> AlterPartitionPartitionResponse:
    """Return the controller's answer to `proposal`. By default the answer confirms the new ISR.

    A confirmed change increases the partition epoch, here from 1 to 2.
    """
    return AlterPartitionPartitionResponse(
        partition_index=proposal.data.partition_index,
        error_code=error,
        leader_id=leading.broker_id,
        leader_epoch=leader_epoch,
        isr=proposal.new_isr,
        partition_epoch=partition_epoch,
    )


def leader_that_shrinks() -> tuple[Partition, IsrProposal]:
    """Return a leader of three replicas that proposes to remove C, which has never fetched."""
    leading = leader(partition_log=log_of_epochs(0))
    fetch_as(leading, B, offset=1, last_fetched_epoch=0, now_us=LAG_MAX_US)
    # The leader epoch began at 0 us, so this is one microsecond after the limit.
    proposal = leading.maybe_shrink_isr(LAG_MAX_US + 1)
    assert proposal is not None
    return leading, proposal


def leader_that_expands() -> tuple[Partition, IsrProposal]:
    """Return a leader with the ISR {A, B} that proposes to add C."""
    leading = leader(partition_log=log_of_epochs(0), isr=(A, B))
    proposal = fetch_as(leading, C, offset=1, last_fetched_epoch=0).proposal
    assert proposal is not None
    return leading, proposal


# -- shrink --


def test_shrink_waits_for_replica_lag_time_max() -> None:
    """The leader proposes to remove a follower that never fetches one microsecond after the limit.

    The time counts from the beginning of the leader epoch, when all members of the ISR count as
    caught up.
    """
    leading = leader(partition_log=log_of_epochs(0), now_us=SECOND)
    assert leading.maybe_shrink_isr(SECOND + LAG_MAX_US) is None
    proposal = leading.maybe_shrink_isr(SECOND + LAG_MAX_US + 1)
    assert proposal is not None
    assert (proposal.new_isr, proposal.removed) == ((A,), (B, C))


def test_shrink_keeps_a_follower_at_the_log_end_however_old_its_fetch_is() -> None:
    """A follower at the log end has every record, so the ISR of an idle partition does not shrink.

    Source: ReplicaState.isCaughtUp.
    """
    leading = leader(partition_log=log_of_epochs(0))
    for broker in (B, C):
        fetch_as(leading, broker, offset=1, last_fetched_epoch=0)
    assert leading.maybe_shrink_isr(100 * LAG_MAX_US) is None


def test_shrink_keeps_a_follower_of_a_busy_leader() -> None:
    """B is never at the log end, but at each Fetch it has what the log had at the last Fetch.

    So B keeps up with the leader, and stays in the ISR.
    """
    leading = leader(isr=(A, B), replicas=(A, B))
    # B begins with an empty log, so there is no epoch of its last record.
    fetch_offset = 0
    last_fetched_epoch = -1
    # B sends a Fetch each second. The log grows before and after each Fetch.
    for step in range(1, 100):
        leading.append_records(records("x"), required_acks=ACKS_ALL, now_us=step * SECOND)
        fetch_as(
            leading,
            B,
            offset=fetch_offset,
            last_fetched_epoch=last_fetched_epoch,
            now_us=step * SECOND,
        )
        # The next Fetch begins at the present log end, and the records have leader epoch 1.
        fetch_offset = leading.log_end_offset
        last_fetched_epoch = 1
        leading.append_records(records("y"), required_acks=ACKS_ALL, now_us=step * SECOND)
    assert leading.maybe_shrink_isr(100 * SECOND) is None


def test_shrink_drops_a_follower_that_fetches_but_falls_behind() -> None:
    """B fetches from offset 1 again and again, but the log has ended at 3 all the time."""
    leading = leader(isr=(A, B), replicas=(A, B), partition_log=log_of_epochs(0, 0, 0))
    # Fetch each second for longer than the limit of 30 s.
    for step in range(LAG_MAX_US // SECOND + 2):
        fetch_as(leading, B, offset=1, last_fetched_epoch=0, now_us=step * SECOND)
    proposal = leading.maybe_shrink_isr(LAG_MAX_US + SECOND)
    assert proposal is not None
    assert proposal.removed == (B,)


def test_shrink_proposal_has_the_epochs_that_the_leader_knows() -> None:
    """From the epochs the controller sees whether the leader knows the latest metadata."""
    leading, proposal = leader_that_shrinks()
    assert proposal.data.leader_epoch == 1
    assert proposal.data.partition_epoch == 1
    assert proposal.data.new_isr_with_epochs == (IsrBrokerState(A, 100), IsrBrokerState(B, 101))
    assert leading.isr_in_flight is proposal


def test_shrink_changes_nothing_until_answered() -> None:
    """The leader keeps its ISR until the controller has answered.

    Otherwise a leader that cannot reach the controller would commit records alone.
    """
    leading, _ = leader_that_shrinks()
    assert (leading.isr, leading.maximal_isr) == (REPLICAS, REPLICAS)
    info = leading.append_records(records("x"), required_acks=ACKS_ALL, now_us=LAG_MAX_US)
    # B has the record now. The append still waits (None) for C, which is still in the maximal ISR.
    fetch_as(leading, B, offset=2, last_fetched_epoch=1, now_us=LAG_MAX_US + 2)
    assert leading.check_acknowledged(info.next_offset) is None
    # While a proposal is in flight, the leader makes no other proposal.
    assert leading.maybe_shrink_isr(9 * LAG_MAX_US) is None


def test_confirmed_shrink_advances_the_high_watermark() -> None:
    """A removed replica no longer holds the high watermark back.

    The log has one record, which B has fetched and C has not. Source: PartitionTest.testShrinkIsr.
    """
    leading, proposal = leader_that_shrinks()
    result = leading.handle_alter_partition_response(
        proposal, answer(leading, proposal), now_us=LAG_MAX_US + 2
    )
    assert result.committed_isr == (A, B)
    assert (leading.isr, leading.maximal_isr) == ((A, B), (A, B))
    assert (result.partition_epoch, result.new_high_watermark) == (2, 1)
    assert leading.partition_epoch == 2
    check_partition(leading)


# -- expansion --


def test_expansion_is_proposed_when_a_follower_reaches_the_high_watermark() -> None:
    """The leader makes the proposal while it handles the follower's Fetch.

    Source: Kafka PartitionTest.testIsrExpansion.
    """
    _, proposal = leader_that_expands()
    assert (proposal.new_isr, proposal.added) == ((A, B, C), (C,))
    assert proposal.data.new_isr_with_epochs[-1] == IsrBrokerState(C, 102)


def test_expansion_below_the_high_watermark_is_not_proposed() -> None:
    """A member of the ISR must have every acknowledged record, up to the high watermark."""
    leading = leader(isr=(A, B))
    for value in ("a", "b"):
        leading.append_records(records(value), required_acks=ACKS_ALL, now_us=0)
    fetch_as(leading, B, offset=2, last_fetched_epoch=1)
    assert leading.high_watermark == 2
    assert fetch_as(leading, C, offset=1, last_fetched_epoch=1).proposal is None
    assert fetch_as(leading, C, offset=2, last_fetched_epoch=1).proposal is not None


def test_expansion_below_the_start_of_the_leader_epoch_is_not_proposed() -> None:
    """A new leader's high watermark may be too low to tell whether a follower has all records.

    So the follower must also reach the offset at which the leader epoch began.

    1. The old leader has acknowledged two records. This replica, a member of the ISR, has them, but
       its own high watermark is still 0.
    2. This replica is elected. A follower at offset 1 has reached this high watermark, but lacks
       the second record.

    Source: Kafka PartitionTest.testIsrNotExpandedIfReplicaIsBehindLeaderEpochStart.
    """
    leading = leader(partition_log=log_of_epochs(0, 0), isr=(A, B))
    assert fetch_as(leading, C, offset=1, last_fetched_epoch=0).proposal is None
    assert fetch_as(leading, C, offset=2, last_fetched_epoch=0).proposal is not None


@pytest.mark.parametrize(
    ("eligible", "replica_epoch", "proposed"),
    [
        ({A: BrokerEpoch(100), B: BrokerEpoch(101)}, 102, False),  # C is not live
        (EVERYBODY, 102, True),
        (EVERYBODY, -1, True),  # a Fetch without a broker epoch is not checked
        (EVERYBODY, 103, False),  # C has restarted, and the metadata do not have this yet
    ],
)
def test_expansion_is_proposed_only_for_a_live_broker_with_its_present_epoch(
    eligible: dict[BrokerId, BrokerEpoch], replica_epoch: int, proposed: bool
) -> None:
    """The controller would refuse any other broker: INELIGIBLE_REPLICA (KIP-841, KIP-903).

    `eligible` are the live brokers in the metadata, with their broker epochs. `replica_epoch` is
    the broker epoch in C's Fetch.
    """
    leading = leader(isr=(A, B))
    leading.update_eligible_brokers(eligible)
    result = fetch_as(leading, C, offset=0, replica_epoch=replica_epoch)
    assert (result.proposal is not None) is proposed


def test_expansion_in_flight_counts_for_the_high_watermark_at_once() -> None:
    """The controller may have applied the expansion already, and may even elect the new member."""
    leading, _ = leader_that_expands()
    assert (leading.isr, leading.maximal_isr) == ((A, B), REPLICAS)
    # C fetched at time 0, so C does not count as caught up any more. The append waits for C only
    # because of the proposal.
    info = leading.append_records(records("x"), required_acks=ACKS_ALL, now_us=LAG_MAX_US * 2)
    fetch_as(leading, B, offset=2, last_fetched_epoch=1, now_us=LAG_MAX_US * 2)
    assert leading.check_acknowledged(info.next_offset) is None
    fetch_as(leading, C, offset=2, last_fetched_epoch=1, now_us=LAG_MAX_US * 2)
    assert leading.check_acknowledged(info.next_offset) is ErrorCode.NONE


def test_expansion_in_flight_does_not_count_for_min_insync_replicas() -> None:
    """Only confirmed members count, because the controller may refuse the expansion."""
    leading = leader(partition_log=log_of_epochs(0), isr=(A,))
    assert fetch_as(leading, B, offset=1, last_fetched_epoch=0).proposal is not None
    info = leading.append_records(records("x"), required_acks=ACKS_ALL, now_us=0)
    # The committed ISR has one member, and min.insync.replicas is 2.
    assert info.error is ErrorCode.NOT_ENOUGH_REPLICAS


def test_one_proposal_is_in_flight_at_a_time() -> None:
    """If the first proposal was applied, a second one would have an outdated partition epoch."""
    leading = leader(isr=(A,), min_insync_replicas=1)
    assert fetch_as(leading, B, offset=0).proposal is not None
    assert fetch_as(leading, C, offset=0).proposal is None
    assert leading.maybe_shrink_isr(9 * LAG_MAX_US) is None


def test_high_watermark_waits_for_a_caught_up_follower_outside_the_isr() -> None:
    """C may join the ISR when C has reached the high watermark.

    If the high watermark did not wait for C, it might always stay ahead of C. Kafka has the same
    rule (BEHAVIOUR 6.1).
    """
    leading = leader(partition_log=log_of_epochs(0), isr=(A, B))
    fetch_as(leading, C, offset=1, last_fetched_epoch=0)

    # Newer metadata with the same ISR end the proposal to add C. So C is neither in the committed
    # nor in the maximal ISR.
    leading.make_leader(leader_epoch=1, partition_epoch=2, replicas=REPLICAS, isr=(A, B), now_us=0)
    leading.append_records(records("x"), required_acks=ACKS_ALL, now_us=0)
    # B has both records. The high watermark waits at offset 1, the end of C's log.
    assert fetch_as(leading, B, offset=2, last_fetched_epoch=1, now_us=1).new_high_watermark == 1

    # Now C is fenced, that is, counts as dead, so the high watermark no longer waits for C.
    leading.update_eligible_brokers({A: BrokerEpoch(100), B: BrokerEpoch(101)})
    info = leading.append_records(records("y"), required_acks=ACKS_ALL, now_us=2)
    assert info.new_high_watermark == 2


# -- answers --


@pytest.mark.parametrize(
    ("error", "is_retried"),
    [
        (ErrorCode.NOT_CONTROLLER, True),
        (ErrorCode.NETWORK_EXCEPTION, True),
        (ErrorCode.REQUEST_TIMED_OUT, True),
        (ErrorCode.STALE_BROKER_EPOCH, True),
        (ErrorCode.UNKNOWN_SERVER_ERROR, True),
        (ErrorCode.FENCED_LEADER_EPOCH, False),
        (ErrorCode.INVALID_UPDATE_VERSION, False),
        (ErrorCode.NEW_LEADER_ELECTED, False),
        (ErrorCode.INVALID_REQUEST, False),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, False),
    ],
)
def test_error_that_leaves_the_outcome_open_keeps_the_maximal_isr(
    error: ErrorCode, is_retried: bool
) -> None:
    """After each of these errors the controller may have applied the proposal or not.

    The leader repeats the proposal, or waits for metadata if the error shows that the controller
    has a newer state. Source: Kafka handleAlterPartitionError.
    """
    leading, proposal = leader_that_expands()
    result = leading.handle_alter_partition_response(
        proposal, answer(leading, proposal, error), now_us=0
    )
    assert result.retry is is_retried
    assert result.committed_isr is None
    assert leading.isr_in_flight is proposal
    assert (leading.isr, leading.maximal_isr, leading.partition_epoch) == ((A, B), REPLICAS, 1)


def test_ineligible_replica_withdraws_the_proposal() -> None:
    """INELIGIBLE_REPLICA proves that the proposal was not applied, so it may be made again."""
    leading, proposal = leader_that_expands()
    result = leading.handle_alter_partition_response(
        proposal, answer(leading, proposal, ErrorCode.INELIGIBLE_REPLICA), now_us=0
    )
    assert not result.retry
    assert (leading.isr, leading.maximal_isr) == ((A, B), (A, B))
    assert fetch_as(leading, C, offset=1, last_fetched_epoch=0).proposal is not None


def test_confirmed_expansion_becomes_the_committed_isr() -> None:
    """After the answer, the confirmed ISR is both the committed and the maximal ISR.

    Source: PartitionTest.testIsrExpansion, success.
    """
    leading, proposal = leader_that_expands()
    result = leading.handle_alter_partition_response(proposal, answer(leading, proposal), now_us=0)
    assert result.committed_isr == REPLICAS
    assert (leading.isr, leading.maximal_isr) == (REPLICAS, REPLICAS)
    assert leading.isr_in_flight is None


@pytest.mark.parametrize(
    ("leader_epoch", "partition_epoch"), [(2, 2), (1, 0)], ids=["leader epoch", "partition epoch"]
)
def test_confirmation_with_other_epochs_is_ignored(leader_epoch: int, partition_epoch: int) -> None:
    """The answer has a newer leader epoch, or an older partition epoch, than the leader.

    So the answer is not about the leader's present state. Newer metadata will follow.
    Source: Kafka handleAlterPartitionUpdate.
    """
    leading, proposal = leader_that_expands()
    response = answer(leading, proposal, leader_epoch=leader_epoch, partition_epoch=partition_epoch)
    result = leading.handle_alter_partition_response(proposal, response, now_us=0)
    assert result.committed_isr is None
    assert (leading.isr, leading.maximal_isr) == ((A, B), REPLICAS)


@pytest.mark.parametrize("error", [ErrorCode.NONE, ErrorCode.NETWORK_EXCEPTION])
def test_answer_after_newer_metadata_is_ignored(error: ErrorCode) -> None:
    """The answer has partition epoch 2, but metadata with partition epoch 3 have arrived before."""
    leading, proposal = leader_that_expands()
    leading.make_leader(leader_epoch=1, partition_epoch=3, replicas=REPLICAS, isr=(A, C), now_us=0)
    result = leading.handle_alter_partition_response(
        proposal, answer(leading, proposal, error), now_us=0
    )
    assert not result.retry
    assert result.committed_isr is None
    assert (leading.isr, leading.maximal_isr) == ((A, C), (A, C))
    assert leading.partition_epoch == 3


def test_answer_to_a_former_leader_is_ignored() -> None:
    """The leader has become a follower, which has no ISR to change."""
    leading, proposal = leader_that_expands()
    leading.make_follower(
        leader_id=B, leader_epoch=2, partition_epoch=2, replicas=REPLICAS, isr=(B, C)
    )
    result = leading.handle_alter_partition_response(proposal, answer(leading, proposal), now_us=0)
    assert not result.retry
    assert leading.leader_id == B
    check_partition(leading)
