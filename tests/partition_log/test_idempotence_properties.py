"""Idempotent producers under random events: each batch is written once, and in order.

Two producers write to an `IdempotentModel` of three replicas. Brokers crash and restart, truncate
their logs and change leaders, while the producers repeat the batches that got no answer. Each event
is a method of the model, and the model is checked after each event.

Kafka promises that each batch is written once and in order under three conditions, which hold here:
min.insync.replicas is 2, all elections are clean, and no broker loses power.
"""

import random
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import rule

from partition_log.producer_states import ProducerStates
from protocol.errors import ErrorCode, InvariantViolation
from protocol.ids import BrokerId
from protocol.records.batch import RecordBatch
from tests.partition_log.idempotent_model import IdempotentModel
from tests.partition_log.test_replication_properties import ReplicationMachine
from tests.support.builders.partition_logs import REPLICAS

PRODUCERS = st.integers(0, 1)  # indexes of the model's two producers
STEPS = 400
"""Number of events in a long random schedule."""


class IdempotenceMachine(ReplicationMachine):
    """The events of replication and of two clients. Hypothesis draws their order.

    The base class checks `self.model` after each event, and heals the model at the end.
    """

    def __init__(self) -> None:
        super().__init__()
        # The base class checks `self.model`. `clients` is the same object with its full type.
        self.clients = IdempotentModel()
        self.model = self.clients

    @rule(index=PRODUCERS, is_delivered=st.booleans())
    def send(self, index: int, is_delivered: bool) -> None:
        producer = self.clients.producers[index]
        self.clients.send(producer)
        if is_delivered:
            self.clients.deliver(producer)

    @rule(index=PRODUCERS)
    def deliver(self, index: int) -> None:
        self.clients.deliver(self.clients.producers[index])

    @rule(index=PRODUCERS)
    def deliver_late(self, index: int) -> None:
        self.clients.deliver_late(self.clients.producers[index])

    @rule(index=PRODUCERS, is_lost=st.booleans())
    def answer(self, index: int, is_lost: bool) -> None:
        self.clients.answer(self.clients.producers[index], is_lost=is_lost)

    @rule(index=PRODUCERS)
    def refuse(self, index: int) -> None:
        self.clients.refuse(self.clients.producers[index])

    @rule(index=PRODUCERS)
    def reconnect(self, index: int) -> None:
        self.clients.reconnect(self.clients.producers[index])


# pytest runs the machine by this class.
TestIdempotence = IdempotenceMachine.TestCase
# With `derandomize` each run of the test draws the same events.
TestIdempotence.settings = settings(
    max_examples=40, stateful_step_count=40, deadline=None, derandomize=True, database=None
)


def play_random_events(seed: int) -> IdempotentModel:
    """Play STEPS random events, and heal the cluster until all batches are answered.

    Each seed first draws how frequent each event is, so that the seeds differ much (swarm testing).
    """
    rng = random.Random(seed)
    model = IdempotentModel()
    # For each event, the possible weights, from which a seed draws one weight. An event with twice
    # the weight of another event occurs about twice as often. An event with the weight 0 never
    # occurs.
    broker_events: list[tuple[Callable[[BrokerId], None], tuple[float, ...]]] = [
        (model.send_fetch, (0.1, 1)),
        (model.deliver_fetch, (0.1, 1)),
        (model.replicate, (2, 5)),
        (model.recover, (0.3, 1)),
        (model.apply_metadata, (0.3, 2)),
        (model.handle_alter_partition, (0.3, 1)),
        (model.deliver_answer, (0.3, 1)),
        (model.shrink, (0, 0.3)),
        (model.crash, (0, 0.03, 0.1)),
        (model.fence, (0, 0.03)),
        (model.move_leadership, (0, 0.03, 0.1)),
        (model.checkpoint, (0, 0.1)),
        # After 11 s without a Fetch a follower lags: replica.lag.time.max.ms is 10 s in the model.
        (lambda _: model.pass_time(11), (0, 0.05)),
    ]

    events: list[Callable[[], None]] = []
    weights: list[float] = []
    for event, possible_weights in broker_events:
        for broker in REPLICAS:
            events.append(partial(event, broker))
            weights.append(rng.choice(possible_weights))

    for client in model.producers:
        for act, possible_weights in (
            (model.continue_sending, (1.0, 3.0)),
            (model.send, (0.3, 1.0)),
            (model.deliver, (0.3, 1.0)),
            (model.deliver_late, (0.1, 1.0)),
            (model.answer, (2.0, 4.0)),
            (partial(model.answer, is_lost=True), (0.0, 0.1, 0.3)),
            (model.refuse, (0.1, 0.3)),
            (model.reconnect, (0.0, 0.1, 0.3)),
        ):
            events.append(partial(act, client))
            weights.append(rng.choice(possible_weights))

    for step, drawn_event in enumerate(rng.choices(events, weights, k=STEPS)):
        drawn_event()
        model.check()
        # Comparing whole logs is slow, so it is done only at some steps.
        if step % 50 == 0:
            model.check_logs()
    model.heal()
    return model


@pytest.mark.parametrize("first_seed", range(0, 30, 10))
def test_each_batch_is_written_once_in_a_long_random_schedule(first_seed: int) -> None:
    """The 40 events of Hypothesis rarely answer a batch, so these schedules have 400 events."""
    answered = 0
    for seed in range(first_seed, first_seed + 10):
        try:
            model = play_random_events(seed)
        except InvariantViolation as violation:
            violation.add_note(f"seed {seed}")
            raise
        answered += sum(len(producer.offsets) for producer in model.producers)
    assert answered > 150  # more than 15 for each of the ten seeds, so the producers made progress


@pytest.mark.parametrize(
    ("missing_check", "violated_invariant"),
    [
        ("find_duplicate", "the oldest batch without an answer is in order"),
        ("check_produced", "nothing is lost, written twice or out of order"),
    ],
)
def test_leader_without_one_of_its_checks_violates_an_invariant(
    missing_check: str, violated_invariant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted bugs: the leader does not find repetitions, or does not check the order of batches.

    At least one of 20 seeds must violate the invariant.
    """

    def no_duplicate(self: ProducerStates, batch: RecordBatch) -> None:
        return None

    def no_check(self: ProducerStates, batch: RecordBatch) -> ErrorCode:
        return ErrorCode.NONE

    replacement = no_duplicate if missing_check == "find_duplicate" else no_check
    monkeypatch.setattr(ProducerStates, missing_check, replacement)
    violated_invariants = set()
    for seed in range(20):
        try:
            play_random_events(seed)
        except InvariantViolation as violation:
            violated_invariants.add(violation.name)
    assert violated_invariant in violated_invariants
