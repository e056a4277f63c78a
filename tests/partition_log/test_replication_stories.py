"""Orders of events that nearly lose data, step by step on the cluster model.

The replicas are on the brokers A, B and C; A leads at first. `replicate(B)` is one Fetch of B from
its leader: it reports the end of B's log, and brings records. A loop repeats the Fetch until it
would change nothing. A broker learns of an election by `apply_metadata`.
"""

from tests.partition_log.cluster_model import ClusterModel
from tests.support.builders.partition_logs import A, B, C


def test_leader_that_missed_a_leader_epoch_forgets_follower_offsets() -> None:
    """A is elected again without having seen C's epoch, in which B truncated.

    1. A writes two records; B has both, C none: no record is committed.
    2. C is elected, B truncates to C's empty log. A does not receive this metadata.
    3. A is elected again. If A still counted B's old offset, C's Fetch would commit the records,
       and B, in the ISR, could be elected without them.
    """
    model = ClusterModel()
    # 1.
    for _ in range(2):
        model.append(A)
    for _ in range(3):
        model.replicate(B)

    # 2.
    model.move_leadership(C)
    for broker in (C, B):
        model.apply_metadata(broker)
    for _ in range(2):
        model.replicate(B)

    # 3.
    model.move_leadership(A)
    for broker in (A, C):
        model.apply_metadata(broker)
    for _ in range(4):
        model.replicate(C)
        model.check()

    assert model.acknowledged == {}

    model.heal()
    assert len(model.acknowledged) == 2


def test_metadata_of_the_present_partition_epoch_keeps_the_proposal_in_flight() -> None:
    """A delta that a leader already knows must not cancel its next proposal.

    1. A knows its ISR {A, C} at partition epoch n before the delta of n arrives.
    2. A proposes to add B, and the controller applies it; the answer is in flight.
    3. The delta of n arrives. If A cancelled the proposal, it would commit without B once B is not
       caught up for replica.lag.time.max.ms, while the controller may elect B.
    """
    model = ClusterModel()
    # 1. B is fenced, so it leaves the ISR. Then it follows again, outside the ISR.
    model.fence(B)
    model.apply_metadata(A)
    model.unfence(B)
    for broker in (A, B, C):
        model.apply_metadata(broker)

    # 2.
    model.append(A)
    for _ in range(2):
        model.replicate(C)
    for _ in range(2):
        model.replicate(B)
    model.handle_alter_partition(A)
    assert model.metadata.isr == (A, C, B)

    # 3. The delta repeats what A knows.
    leading = model.brokers[A].partition
    assert leading is not None
    leading.make_leader(
        leader_epoch=leading.leader_epoch,
        partition_epoch=leading.partition_epoch,
        replicas=leading.replicas,
        isr=leading.isr,
        now_us=model.now_us,
    )

    # B does not fetch for 30 s, and A must not commit without it: the second record waits.
    model.pass_time(30)
    model.append(A)
    for _ in range(2):
        model.replicate(C)
    model.check()
    assert len(model.acknowledged) == 1

    model.heal()
    assert len(model.acknowledged) == 2
