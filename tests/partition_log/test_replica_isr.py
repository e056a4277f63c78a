"""The ISR (the in-sync replicas): shrinking, expansion, and the answers to AlterPartition.

The ISR is in the metadata of the controller. To change it, the leader proposes a new ISR with the
request AlterPartition. Until the answer, `isr` stays the committed ISR, the one that the controller
has confirmed. The maximal ISR has the members of the committed and of the proposed one. Meanwhile
the high watermark (the offset below which the in-sync replicas have all records) waits for all
members of the maximal ISR.

- A, B and C are the brokers 0, 1 and 2; A leads. EVERYBODY has their registrations, with the broker
  epochs 100, 101 and 102.
- A fenced broker is one that the controller counts as dead. An incarnation is one life of a broker.
- `fetch_as(leading, B, offset=1)` fetches as broker B, whose log ends at offset 1.
- `log_of_epochs(0, 0)` returns a log with two records of leader epoch 0.
- `check_acknowledged` returns None while an append waits.
- LAG_MAX_US is replica.lag.time.max.ms, 30 s; min.insync.replicas is 2.

BEHAVIOUR 6.1 is a section of docs/kafka/BEHAVIOUR.md; "Source" names Kafka's methods and tests.
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
    """Return the controller's answer to `proposal`; by default the new ISR is confirmed.

    A confirmed proposal increases the partition epoch, here from 1 to 2.
    """
    return AlterPartitionPartitionResponse(
        partition_index=proposal.data.partition_index,
        error_code=error,
        leader_id=leading.broker_id,
        leader_epoch=leader_epoch,
        isr=proposal.new_isr,
        partition_epoch=partition_epoch,
    )


def shrinking() -> tuple[Partition, IsrProposal]:
    """Return a leader of three replicas that proposes to remove C, which has never fetched."""
    leading = leader(partition_log=log_of_epochs(0))
    fetch_as(leading, B, offset=1, last_fetched_epoch=0, now_us=LAG_MAX_US)
    # One microsecond after the limit, which counts from 0, when the leader epoch began.
    proposal = leading.maybe_shrink_isr(LAG_MAX_US + 1)
    assert proposal is not None
    return leading, proposal


def expanding() -> tuple[Partition, IsrProposal]:
    """Return a leader with the ISR {A, B} that proposes to add C."""
    leading = leader(partition_log=log_of_epochs(0), isr=(A, B))
    proposal = fetch_as(leading, C, offset=1, last_fetched_epoch=0).proposal
    assert proposal is not None
    return leading, proposal


# -- shrink --


def test_shrink_waits_for_replica_lag_time_max() -> None:
    """When a leader epoch begins, each follower in the ISR counts as caught up.

    One microsecond after the limit, the followers that have not fetched are removed.
    """
    leading = leader(partition_log=log_of_epochs(0), now_us=SECOND)
    assert leading.maybe_shrink_isr(SECOND + LAG_MAX_US) is None
    proposal = leading.maybe_shrink_isr(SECOND + LAG_MAX_US + 1)
    assert proposal is not None
    assert (proposal.new_isr, proposal.removed) == ((A,), (B, C))


def test_shrink_keeps_a_follower_at_the_log_end_however_old_its_fetch_is() -> None:
    """Such a follower has every record, so the ISR of an idle partition does not shrink.

    Source: ReplicaState.isCaughtUp.
    """
    leading = leader(partition_log=log_of_epochs(0))
    for broker in (B, C):
        fetch_as(leading, broker, offset=1, last_fetched_epoch=0)
    assert leading.maybe_shrink_isr(100 * LAG_MAX_US) is None


def test_shrink_keeps_a_follower_that_follows_a_busy_leader() -> None:
    """B is always behind the log end, but each Fetch begins where the log ended one Fetch before.

    So B keeps up.
    """
    leading = leader(isr=(A, B), replicas=(A, B))
    fetch_offset, last_epoch = 0, -1  # B's log is empty, and -1 is no epoch
    # B sends a Fetch each second; the log grows before and after each Fetch.
    for step in range(1, 100):
        leading.append_records(records("x"), required_acks=ACKS_ALL, now_us=step * SECOND)
        fetch_as(
            leading, B, offset=fetch_offset, last_fetched_epoch=last_epoch, now_us=step * SECOND
        )
        fetch_offset, last_epoch = leading.log_end_offset, 1
        leading.append_records(records("y"), required_acks=ACKS_ALL, now_us=step * SECOND)
    assert leading.maybe_shrink_isr(100 * SECOND) is None


def test_shrink_drops_a_follower_that_fetches_but_falls_behind() -> None:
    """A follower keeps up only if each Fetch begins where the log ended at the Fetch before.

    B fetches from offset 1 again and again, and the log ends at 3.
    """
    leading = leader(isr=(A, B), replicas=(A, B), partition_log=log_of_epochs(0, 0, 0))
    # Fetch each second for longer than the limit of 30 s.
    for step in range(LAG_MAX_US // SECOND + 2):
        fetch_as(leading, B, offset=1, last_fetched_epoch=0, now_us=step * SECOND)
    proposal = leading.maybe_shrink_isr(LAG_MAX_US + SECOND)
    assert proposal is not None
    assert proposal.removed == (B,)


def test_shrink_proposal_names_epochs_of_leader_partition_and_brokers() -> None:
    """The controller refuses a proposal that was not made from the controller's latest state."""
    leading, proposal = shrinking()
    assert proposal.data.leader_epoch == 1
    assert proposal.data.partition_epoch == 1
    assert proposal.data.new_isr_with_epochs == (IsrBrokerState(A, 100), IsrBrokerState(B, 101))
    assert leading.isr_in_flight is proposal


def test_shrink_changes_nothing_until_answered() -> None:
    """A leader that cannot reach the controller must not commit records alone."""
    leading, _ = shrinking()
    # C is still a member of both ISRs.
    assert (leading.isr, leading.maximal_isr) == (REPLICAS, REPLICAS)
    info = leading.append_records(records("x"), required_acks=ACKS_ALL, now_us=LAG_MAX_US)
    # B has the record now. C has not, and is still in the maximal ISR.
    fetch_as(leading, B, offset=2, last_fetched_epoch=1, now_us=LAG_MAX_US + 2)
    assert leading.check_acknowledged(info.next_offset) is None
    # The leader makes no other proposal while one is in flight.
    assert leading.maybe_shrink_isr(9 * LAG_MAX_US) is None


def test_confirmed_shrink_advances_the_high_watermark() -> None:
    """A removed replica no longer holds the high watermark back.

    The log has one record, which B has fetched and C has not. Source: PartitionTest.testShrinkIsr.
    """
    leading, proposal = shrinking()
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
    _, proposal = expanding()
    assert (proposal.new_isr, proposal.added) == ((A, B, C), (C,))
    assert proposal.data.new_isr_with_epochs[-1] == IsrBrokerState(C, 102)


def test_expansion_below_the_high_watermark_is_not_proposed() -> None:
    """A member of the ISR must have every acknowledged record: it must reach the high watermark."""
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
    2. This replica is elected. A follower at offset 1 is above this high watermark, but lacks the
       second record.

    Source: Kafka PartitionTest.testIsrNotExpandedIfReplicaIsBehindLeaderEpochStart.
    """
    leading = leader(partition_log=log_of_epochs(0, 0), isr=(A, B))
    assert fetch_as(leading, C, offset=1, last_fetched_epoch=0).proposal is None
    assert fetch_as(leading, C, offset=2, last_fetched_epoch=0).proposal is not None


@pytest.mark.parametrize(
    ("eligible", "replica_epoch", "proposed"),
    [
        ({A: BrokerEpoch(100), B: BrokerEpoch(101)}, 102, False),  # C is fenced or shutting down
        (EVERYBODY, 102, True),
        (EVERYBODY, -1, True),  # a Fetch without a broker epoch is not checked
        (EVERYBODY, 103, False),  # the metadata do not have this incarnation of C yet
    ],
)
def test_expansion_is_for_the_registered_unfenced_incarnation(
    eligible: dict[BrokerId, BrokerEpoch], replica_epoch: int, proposed: bool
) -> None:
    """The controller would refuse other members with INELIGIBLE_REPLICA (KIP-841, KIP-903)."""
    leading = leader(isr=(A, B))
    leading.update_eligible_brokers(eligible)
    result = fetch_as(leading, C, offset=0, replica_epoch=replica_epoch)
    assert (result.proposal is not None) is proposed


def test_expansion_in_flight_counts_for_the_high_watermark_at_once() -> None:
    """The controller may have applied the expansion already, and may elect the new member."""
    leading, _ = expanding()
    assert (leading.isr, leading.maximal_isr) == ((A, B), REPLICAS)
    # C fetched at time 0, so it no longer counts as caught up. Only the proposal makes it count.
    info = leading.append_records(records("x"), required_acks=ACKS_ALL, now_us=LAG_MAX_US * 2)
    # B, which is in the ISR, has the record. C, whose membership is only proposed, has not.
    fetch_as(leading, B, offset=2, last_fetched_epoch=1, now_us=LAG_MAX_US * 2)
    assert leading.check_acknowledged(info.next_offset) is None
    fetch_as(leading, C, offset=2, last_fetched_epoch=1, now_us=LAG_MAX_US * 2)
    assert leading.check_acknowledged(info.next_offset) is ErrorCode.NONE


def test_expansion_in_flight_does_not_count_for_min_insync_replicas() -> None:
    """For acks=all only confirmed members count, because the expansion may be refused."""
    leading = leader(partition_log=log_of_epochs(0), isr=(A,))
    assert fetch_as(leading, B, offset=1, last_fetched_epoch=0).proposal is not None
    info = leading.append_records(records("x"), required_acks=ACKS_ALL, now_us=0)
    # The committed ISR has one member, and min.insync.replicas is 2.
    assert info.error is ErrorCode.NOT_ENOUGH_REPLICAS


def test_one_proposal_is_in_flight_at_a_time() -> None:
    """A proposal names the partition epoch, and a proposal in flight may increase this epoch."""
    leading = leader(isr=(A,), min_insync_replicas=1)
    assert fetch_as(leading, B, offset=0).proposal is not None
    assert fetch_as(leading, C, offset=0).proposal is None
    assert leading.maybe_shrink_isr(9 * LAG_MAX_US) is None


def test_high_watermark_waits_for_a_caught_up_follower_outside_the_isr() -> None:
    """C is about to join the ISR. If the high watermark moved on faster, C could never join.

    Kafka has the same rule (BEHAVIOUR 6.1).
    """
    leading = leader(partition_log=log_of_epochs(0), isr=(A, B))
    fetch_as(leading, C, offset=1, last_fetched_epoch=0)

    # Newer metadata with the same ISR end the proposal to add C.
    leading.make_leader(leader_epoch=1, partition_epoch=2, replicas=REPLICAS, isr=(A, B), now_us=0)
    leading.append_records(records("x"), required_acks=ACKS_ALL, now_us=0)
    # B has two records. The high watermark waits at offset 1, which C has reached.
    assert fetch_as(leading, B, offset=2, last_fetched_epoch=1, now_us=1).new_high_watermark == 1

    # C is fenced now and cannot join, so the high watermark no longer waits for it.
    leading.update_eligible_brokers({A: BrokerEpoch(100), B: BrokerEpoch(101)})
    info = leading.append_records(records("y"), required_acks=ACKS_ALL, now_us=2)
    assert info.new_high_watermark == 2


# -- answers --


@pytest.mark.parametrize(
    ("error", "retry"),
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
def test_refusal_of_unknown_outcome_keeps_the_maximal_isr(error: ErrorCode, retry: bool) -> None:
    """The controller may have applied the proposal, so the members of both ISRs must count.

    Without a retry the leader waits for metadata: the error shows that the controller has a newer
    state. Source: Kafka handleAlterPartitionError.
    """
    leading, proposal = expanding()
    result = leading.handle_alter_partition_response(
        proposal, answer(leading, proposal, error), now_us=0
    )
    assert result.retry is retry
    assert result.committed_isr is None
    assert leading.isr_in_flight is proposal
    assert (leading.isr, leading.maximal_isr, leading.partition_epoch) == ((A, B), REPLICAS, 1)


def test_ineligible_replica_withdraws_the_proposal() -> None:
    """INELIGIBLE_REPLICA says that the proposal was not applied, so it can be made again."""
    leading, proposal = expanding()
    result = leading.handle_alter_partition_response(
        proposal, answer(leading, proposal, ErrorCode.INELIGIBLE_REPLICA), now_us=0
    )
    assert not result.retry
    assert (leading.isr, leading.maximal_isr) == ((A, B), (A, B))
    assert fetch_as(leading, C, offset=1, last_fetched_epoch=0).proposal is not None


def test_confirmed_expansion_becomes_the_committed_isr() -> None:
    """After the answer no proposal is in flight.

    Source: PartitionTest.testIsrExpansion, success.
    """
    leading, proposal = expanding()
    result = leading.handle_alter_partition_response(proposal, answer(leading, proposal), now_us=0)
    assert result.committed_isr == REPLICAS
    assert (leading.isr, leading.maximal_isr) == (REPLICAS, REPLICAS)
    assert leading.isr_in_flight is None


@pytest.mark.parametrize(
    ("leader_epoch", "partition_epoch"), [(2, 2), (1, 0)], ids=["leader epoch", "partition epoch"]
)
def test_success_for_other_epochs_is_ignored(leader_epoch: int, partition_epoch: int) -> None:
    """The answer is not about the leader's present state; newer metadata will follow.

    The leader is in leader epoch 1 and partition epoch 1. The answer names a newer leader epoch, or
    an older partition epoch. Source: Kafka handleAlterPartitionUpdate.
    """
    leading, proposal = expanding()
    response = answer(leading, proposal, leader_epoch=leader_epoch, partition_epoch=partition_epoch)
    result = leading.handle_alter_partition_response(proposal, response, now_us=0)
    assert result.committed_isr is None
    assert (leading.isr, leading.maximal_isr) == ((A, B), REPLICAS)


@pytest.mark.parametrize("error", [ErrorCode.NONE, ErrorCode.NETWORK_EXCEPTION])
def test_answer_after_newer_metadata_is_ignored(error: ErrorCode) -> None:
    """The metadata, with partition epoch 3, have overtaken the answer, with partition epoch 2."""
    leading, proposal = expanding()
    leading.make_leader(leader_epoch=1, partition_epoch=3, replicas=REPLICAS, isr=(A, C), now_us=0)
    result = leading.handle_alter_partition_response(
        proposal, answer(leading, proposal, error), now_us=0
    )
    assert not result.retry
    assert result.committed_isr is None
    assert (leading.isr, leading.maximal_isr) == ((A, C), (A, C))
    assert leading.partition_epoch == 3


def test_answer_after_the_leader_resigned_is_ignored() -> None:
    """A follower has no ISR that it could change."""
    leading, proposal = expanding()
    leading.make_follower(
        leader_id=B, leader_epoch=2, partition_epoch=2, replicas=REPLICAS, isr=(B, C)
    )
    result = leading.handle_alter_partition_response(proposal, answer(leading, proposal), now_us=0)
    assert not result.retry
    assert leading.leader_id == B
    check_partition(leading)
