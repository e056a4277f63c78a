"""Orders of events that nearly lose data, step by step, on a model of a cluster.

The brokers A, B and C have a replica each; A leads at first. Each election increases the leader
epoch. The ISR is the set of in-sync replicas. A record is committed when all replicas of the ISR
have it.

`replicate(B)` is one Fetch of B from its leader: the Fetch tells the leader the end of B's log, and
the answer has records. The tests call `replicate` in loops, until another Fetch would change
nothing. A broker learns of an election by `apply_metadata`. `append` writes a record with acks=all.
`check` adds each record that is committed to the dictionary `acknowledged`, and raises an error if
a replica of the ISR lacks one of these records. `heal` restores all brokers, and delivers all
messages until the three logs are equal.
"""

from tests.partition_log.cluster_model import ClusterModel
from tests.support.builders.partition_logs import A, B, C


def test_leader_that_missed_a_leader_epoch_forgets_follower_offsets() -> None:
    """A leads, then C, then A again. A does not hear of C's epoch, in which B truncates its log.

    1. A writes two records. B fetches both and C fetches none, so no record is committed.
    2. C is elected. B truncates its log to C's empty log. A does not receive these metadata.
    3. A is elected again. If A still believed that B has both records, C's Fetch would commit them.
       Then B, a member of the ISR, could be elected without them.
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

    # Step 3.
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
    """Metadata that a leader knows already must not cancel its proposal of a new ISR.

    Each change of the ISR increases the partition epoch. Let n be the epoch before the proposal.

    1. A knows the ISR of partition epoch n, which is {A, C}.
    2. A proposes to add B to the ISR. The controller applies the proposal; the answer is in flight.
    3. The metadata of n arrive once more. If A cancelled its proposal now, A would forget that the
       controller may have added B to the ISR. As soon as B lags for replica.lag.time.max.ms, A
       would commit records that B does not have, and the controller could elect B.
    """
    model = ClusterModel()
    # Step 1. B is fenced (counted as dead), so it leaves the ISR. Then it follows again, outside
    # of the ISR.
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

    # Step 3. These metadata repeat what A knows.
    leading = model.brokers[A].partition
    assert leading is not None
    leading.make_leader(
        leader_epoch=leading.leader_epoch,
        partition_epoch=leading.partition_epoch,
        replicas=leading.replicas,
        isr=leading.isr,
        now_us=model.now_us,
    )

    # B does not fetch for 30 s. A and C have both records, but B has only the first one.
    model.pass_time(30)
    model.append(A)
    for _ in range(2):
        model.replicate(C)
    model.check()
    # A must not commit the second record without B.
    assert len(model.acknowledged) == 1

    model.heal()
    assert len(model.acknowledged) == 2
