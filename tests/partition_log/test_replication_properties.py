"""Replication under random events: records that were acknowledged with acks=all are kept.

Kafka promises that no such record is lost if min.insync.replicas is 2, all elections are clean, and
no broker loses power.

The events happen to a `ClusterModel`, which has three replicas, a controller, and the messages
between them. Each of its methods is one event, such as the crash of a broker. An event that is
impossible does nothing. After each event `check` looks for lost records. At the end `heal` restarts
all brokers, and delivers messages until the logs are equal.
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
"""Number of events in a long random schedule."""


class ReplicationMachine(RuleBasedStateMachine):
    """Hypothesis draws events at random, and shortens a sequence that violates an invariant."""

    def __init__(self) -> None:
        super().__init__()
        self.model = ClusterModel()

    @rule(broker=BROKERS)
    def append(self, broker: BrokerId) -> None:
        self.model.append(broker)

    @rule(broker=BROKERS, is_delivered=st.booleans())
    def fetch(self, broker: BrokerId, is_delivered: bool) -> None:
        self.model.send_fetch(broker)
        if is_delivered:
            self.model.deliver_fetch(broker)

    @rule(broker=BROKERS)
    def deliver_fetch(self, broker: BrokerId) -> None:
        self.model.deliver_fetch(broker)

    # After 11 s without a Fetch a follower lags: replica.lag.time.max.ms is 10 s in the model.
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

    @rule(broker=BROKERS, is_lost=st.booleans())
    def deliver_answer(self, broker: BrokerId, is_lost: bool) -> None:
        self.model.deliver_answer(broker, is_lost=is_lost)

    @rule(broker=BROKERS)
    def fence(self, broker: BrokerId) -> None:
        self.model.fence(broker)

    @rule(broker=BROKERS)
    def unfence(self, broker: BrokerId) -> None:
        self.model.unfence(broker)

    @rule(broker=BROKERS)
    def move_leadership(self, broker: BrokerId) -> None:
        self.model.move_leadership(broker)

    @rule(broker=BROKERS, is_restarted=st.booleans())
    def crash(self, broker: BrokerId, is_restarted: bool) -> None:
        self.model.crash(broker)
        if is_restarted:
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


# pytest runs the machine as this test class. With `derandomize` each run of the test draws the same
# events.
TestReplication = ReplicationMachine.TestCase
TestReplication.settings = settings(
    max_examples=40, stateful_step_count=40, deadline=None, derandomize=True, database=None
)


def play_random_events(seed: int, *, has_unclean_elections: bool = False) -> ClusterModel:
    """Play STEPS random events, heal the cluster, add one more record, and return the model.

    Each seed first draws how frequent each event is at each broker. For example, with some seeds a
    broker rarely receives metadata, and with other seeds answers are late.
    """
    rng = random.Random(seed)
    model = ClusterModel()
    common_events: list[Callable[[BrokerId], None]] = [
        model.append,
        # An append at the leader, because an append at a random broker is often refused.
        lambda _: model.append(model.metadata.leader_id),
        model.send_fetch,
        model.deliver_fetch,
        # `replicate` occurs twice in this list, so that it is more frequent than other events.
        model.replicate,
        model.replicate,
        model.shrink,
        model.recover,
        model.apply_metadata,
        model.handle_alter_partition,
        model.deliver_answer,
    ]
    rare_events: list[Callable[[BrokerId], None]] = [
        model.crash,
        model.restart,
        model.fence,
        model.unfence,
        model.move_leadership,
        model.checkpoint,
        lambda broker: model.deliver_answer(broker, is_lost=True),
        lambda _: model.pass_time(11),
    ]

    # Each event can happen to each broker. `weights` has the frequency of each entry of `events`. A
    # rare event with the weight 0 does not occur with this seed.
    events: list[tuple[Callable[[BrokerId], None], BrokerId]] = []
    weights: list[float] = []
    for event in common_events:
        for broker in REPLICAS:
            events.append((event, broker))
            weights.append(rng.choice((0.1, 1, 1, 3)))
    for event in rare_events:
        for broker in REPLICAS:
            events.append((event, broker))
            weights.append(rng.choice((0, 0.02, 0.1, 0.3)))
    if has_unclean_elections:
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
    """The 40 events of Hypothesis rarely commit a record, so these schedules have 400 events."""
    for seed in range(first_seed, first_seed + 10):
        try:
            model = play_random_events(seed)
        except InvariantViolation as violation:
            violation.add_note(f"seed {seed}")
            raise
        assert len(model.acknowledged) > 0, f"seed {seed}"


def test_records_that_are_lost_by_unclean_elections_are_found() -> None:
    """Kafka's promise excludes unclean elections. With them, some of 40 seeds lose a record."""
    violated_invariants = []
    for seed in range(40):
        try:
            play_random_events(seed, has_unclean_elections=True)
        except InvariantViolation as violation:
            violated_invariants.append(violation.name)
    assert "acknowledged records are in every log of the ISR" in violated_invariants
