"""Replication under random events: records that were acknowledged with acks=all are kept.

Kafka promises this for three replicas, if min.insync.replicas is 2 (each write needs two replicas
in sync), elections are clean (of replicas in sync), and no broker loses power. `ClusterModel` has
the three replicas, a controller, and the messages between them. Each of its methods is one event,
and does nothing where the event is impossible. `heal` restarts and connects all brokers until their
logs are equal. `check` and `check_logs` raise InvariantViolation.
"""

import random
from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from protocol.errors import InvariantViolation
from protocol.ids import BrokerId
from tests.partition_log.cluster_model import ClusterModel
from tests.support.builders.partition_logs import REPLICAS

BROKERS = st.sampled_from(REPLICAS)
STEPS = 400


class ReplicationMachine(RuleBasedStateMachine):
    """Hypothesis draws the events, and shortens a sequence of events that breaks an invariant."""

    def __init__(self) -> None:
        super().__init__()
        self.model = ClusterModel()

    @rule(broker=BROKERS)
    def append(self, broker: BrokerId) -> None:
        self.model.append(broker)

    @rule(broker=BROKERS, delivered=st.booleans())
    def fetch(self, broker: BrokerId, delivered: bool) -> None:
        self.model.send_fetch(broker)
        if delivered:
            self.model.deliver_fetch(broker)

    @rule(broker=BROKERS)
    def deliver_fetch(self, broker: BrokerId) -> None:
        self.model.deliver_fetch(broker)

    # 11 s is longer than the model's replica.lag.time.max.ms, 10 s. So after 11 s, followers that
    # have not fetched count as lagging.
    @rule(broker=BROKERS, seconds=st.sampled_from([0, 11]))
    def shrink(self, broker: BrokerId, seconds: int) -> None:
        self.model.pass_time(seconds)
        self.model.shrink(broker)

    @rule(broker=BROKERS)
    def apply_metadata(self, broker: BrokerId) -> None:
        self.model.apply_metadata(broker)

    @rule(broker=BROKERS)
    def handle_alter_partition(self, broker: BrokerId) -> None:
        self.model.handle_alter_partition(broker)

    @rule(broker=BROKERS, lost=st.booleans())
    def deliver_answer(self, broker: BrokerId, lost: bool) -> None:
        self.model.deliver_answer(broker, lost=lost)

    @rule(broker=BROKERS)
    def fence(self, broker: BrokerId) -> None:
        self.model.fence(broker)

    @rule(broker=BROKERS)
    def unfence(self, broker: BrokerId) -> None:
        self.model.unfence(broker)

    @rule(broker=BROKERS)
    def move_leadership(self, broker: BrokerId) -> None:
        self.model.move_leadership(broker)

    @rule(broker=BROKERS, restarted=st.booleans())
    def crash(self, broker: BrokerId, restarted: bool) -> None:
        self.model.crash(broker)
        if restarted:
            self.model.restart(broker)

    @rule(broker=BROKERS)
    def restart(self, broker: BrokerId) -> None:
        self.model.restart(broker)

    @rule(broker=BROKERS)
    def checkpoint(self, broker: BrokerId) -> None:
        self.model.checkpoint(broker)

    @invariant()
    def nothing_acknowledged_is_lost(self) -> None:
        self.model.check()
        self.model.check_logs()

    def teardown(self) -> None:
        self.model.heal()  # raises if the logs do not become equal


TestReplication = ReplicationMachine.TestCase
TestReplication.settings = settings(
    max_examples=40, stateful_step_count=40, deadline=None, derandomize=True, database=None
)


def walk(seed: int, *, unclean: bool = False) -> ClusterModel:
    """Return the model after a random schedule of STEPS events, healed, and with one more record.

    `seed` is that of the random number generator. Each seed first draws a rate for each event at
    each broker: with some seeds a broker rarely receives metadata, with others answers are late.
    """
    rng = random.Random(seed)
    model = ClusterModel()
    common: list[Callable[[BrokerId], None]] = [
        model.append,
        # An append at the leader, because an append at a random broker is often refused.
        lambda _: model.append(model.metadata.leader_id),
        model.send_fetch,
        model.deliver_fetch,
        # Twice, so that replication is more frequent than other events.
        model.replicate,
        model.replicate,
        model.shrink,
        model.recover,
        model.apply_metadata,
        model.handle_alter_partition,
        model.deliver_answer,
    ]
    rare: list[Callable[[BrokerId], None]] = [
        model.crash,
        model.restart,
        model.fence,
        model.unfence,
        model.move_leadership,
        model.checkpoint,
        lambda broker: model.deliver_answer(broker, lost=True),
        lambda _: model.pass_time(11),
    ]

    # The lists are parallel: weights[i] is the rate of events[i].
    events = [(event, broker) for event in common + rare for broker in REPLICAS]
    # The rare events may get a weight of 0: then they do not occur with this seed.
    weights = [rng.choice((0.1, 1, 1, 3)) for _ in range(len(common) * len(REPLICAS))]
    weights += [rng.choice((0, 0.02, 0.1, 0.3)) for _ in range(len(rare) * len(REPLICAS))]
    if unclean:
        events += [(model.elect_unclean, broker) for broker in REPLICAS]
        weights += [0.05] * len(REPLICAS)

    for step, (event, broker) in enumerate(rng.choices(events, weights, k=STEPS)):
        event(broker)
        model.check()
        # Comparing whole logs is slow, so it is done only at some steps.
        if step % 50 == 0:
            model.check_logs()

    model.heal()
    # The healed cluster must accept and commit one more record.
    model.append(model.metadata.leader_id)
    model.heal()
    return model


@pytest.mark.parametrize("first_seed", range(0, 100, 10))
def test_acknowledged_records_survive_a_long_random_schedule(first_seed: int) -> None:
    """Of Hypothesis' 40 events few commit a record, so these schedules have 400 events."""
    for seed in range(first_seed, first_seed + 10):
        try:
            model = walk(seed)
        except InvariantViolation as violation:
            violation.add_note(f"seed {seed}")
            raise
        assert len(model.acknowledged) > 0, f"seed {seed}"


def test_unclean_elections_lose_acknowledged_records_and_are_found() -> None:
    """Kafka's promise excludes unclean elections. With them, some seed loses a record."""
    broken_invariants = []
    for seed in range(40):
        try:
            walk(seed, unclean=True)
        except InvariantViolation as violation:
            broken_invariants.append(violation.name)
    assert "acknowledged records are in every log of the ISR" in broken_invariants
