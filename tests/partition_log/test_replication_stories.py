"""Sequences of events in which a small mistake would lose data, on a model of a cluster.

The brokers A, B and C have a replica each, and A leads at first. A record is committed when all
replicas of the ISR have it. The leader learns from the Fetches of a follower which records the
follower has: a Fetch from offset 2 says that the follower has the records below 2.

- `append(A)` writes a record with acks=all at leader A.
- `replicate(B)` is one Fetch of B from its leader, with the answer. The tests call `replicate`
  until another Fetch would change nothing.
- `apply_metadata(B)` is the moment at which B learns of elections.
- `check` notes the records that a leader has acknowledged, and raises an error if a replica of the
  ISR lacks an acknowledged record.
- `heal` restores all brokers, and delivers all messages until the three logs are equal.
"""

from tests.partition_log.cluster_model import ClusterModel
from tests.support.builders.partition_logs import A, B, C


def test_leader_that_missed_a_leader_epoch_forgets_follower_offsets() -> None:
    """A leads, then C, then A again.

    A does not hear of C's epoch, during which B truncates its log.

    1. A writes two records. B fetches both records and C fetches no record, so none is committed.
    2. C is elected. B truncates its log to C's empty log. A does not receive these metadata.
    3. A is elected again, and C fetches both records. If A still believed that B has the records,
       all replicas of the ISR would seem to have them, and A would acknowledge the records.
    4. Then B could be elected without the acknowledged records.
    """
    model = ClusterModel()
    # Step 1.
    for _ in range(2):
        model.append(A)
    for _ in range(3):
        model.replicate(B)

    # Step 2.
    model.move_leadership(C)
    for broker in (C, B):
        model.apply_metadata(broker)
    for _ in range(2):
        model.replicate(B)

    # Step 3. B does not hear of this election yet, so it does not fetch the records again.
    model.move_leadership(A)
    for broker in (A, C):
        model.apply_metadata(broker)
    for _ in range(4):
        model.replicate(C)
        model.check()

    # A does not know the end of B's log in the new epoch, so the records are not committed.
    assert model.acknowledged == {}

    # After B has fetched the records again, both are committed.
    model.heal()
    assert len(model.acknowledged) == 2


def test_metadata_of_the_present_partition_epoch_keeps_the_proposal_in_flight() -> None:
    """Metadata that a leader already knows must not cancel the leader's proposal of a new ISR.

    Each change of the ISR increases the partition epoch. Let n be the epoch before the proposal.

    1. A knows the ISR of partition epoch n, which is {A, C}.
    2. A proposes to add B to the ISR. The controller applies the proposal, so its ISR is {A, B, C}.
       The answer to A is in flight.
    3. The metadata of n arrive at A once more. Suppose that A cancelled its proposal now. Then A
       would no longer count B as a possible member of the ISR.
    4. B stops fetching. After replica.lag.time.max.ms A would not wait for B, and would acknowledge
       a record that only A and C have. But for the controller B is in the ISR, and may be elected.
    """
    model = ClusterModel()
    # Step 1. B is fenced, that is, counted as dead, and so leaves the ISR. When it comes back, it
    # follows from outside the ISR.
    model.fence(B)
    model.apply_metadata(A)
    model.unfence(B)
    for broker in (A, B, C):
        model.apply_metadata(broker)

    # Step 2.
    model.append(A)
    for _ in range(2):
        model.replicate(C)
    for _ in range(2):
        model.replicate(B)
    model.handle_alter_partition(A)
    assert model.metadata.isr == (A, C, B)

    # Step 3. These metadata repeat what A already knows.
    partition_of_a = model.brokers[A].partition
    assert partition_of_a is not None
    partition_of_a.make_leader(
        leader_epoch=partition_of_a.leader_epoch,
        partition_epoch=partition_of_a.partition_epoch,
        replicas=partition_of_a.replicas,
        isr=partition_of_a.isr,
        now_us=model.now_us,
    )

    # Step 4. B does not fetch for 30 s. Then A writes a second record, which only C fetches.
    model.pass_time(30)
    model.append(A)
    for _ in range(2):
        model.replicate(C)
    model.check()
    # A must not acknowledge the second record without B.
    assert len(model.acknowledged) == 1

    model.heal()
    assert len(model.acknowledged) == 2
