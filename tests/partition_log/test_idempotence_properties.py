"""Idempotent producers under random events: each batch is written once, and in order.

An idempotent producer gives its records sequence numbers, so that a leader recognises a repeated
batch. The model has three replicas. min.insync.replicas is 2, so a write needs two replicas in
sync. Only replicas in sync are elected. No power loss occurs. Brokers crash and restart from their
disks, truncate their logs and change leaders, while clients repeat batches that got no answer. The
events are methods of the model. The model's invariants are checked after each event.
"""

import random
from collections.abc import Callable

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


class IdempotenceMachine(ReplicationMachine):
    """The events of replication and of two clients. Hypothesis draws their order.

    The base class checks `self.model` after each event, and heals the model at the end.
    """

    def __init__(self) -> None:
        super().__init__()
        # `clients` and `model` are one object; the type of `clients` has the methods of producers.
        self.clients = IdempotentModel()
        self.model = self.clients

    @rule(index=PRODUCERS, arrives=st.booleans())
    def send(self, index: int, arrives: bool) -> None:
        producer = self.clients.producers[index]
        self.clients.send(producer)
        if arrives:
            self.clients.deliver(producer)

    @rule(index=PRODUCERS)
    def deliver(self, index: int) -> None:
        self.clients.deliver(self.clients.producers[index])

    @rule(index=PRODUCERS)
    def deliver_late(self, index: int) -> None:
        self.clients.deliver_late(self.clients.producers[index])

    @rule(index=PRODUCERS, lost=st.booleans())
    def answer(self, index: int, lost: bool) -> None:
        self.clients.answer(self.clients.producers[index], lost=lost)

    @rule(index=PRODUCERS)
    def refuse(self, index: int) -> None:
        self.clients.refuse(self.clients.producers[index])

    @rule(index=PRODUCERS)
    def reconnect(self, index: int) -> None:
        self.clients.reconnect(self.clients.producers[index])


# pytest runs the machine by this class.
TestIdempotence = IdempotenceMachine.TestCase
TestIdempotence.settings = settings(
    max_examples=40, stateful_step_count=40, deadline=None, derandomize=True, database=None
)


def walk(seed: int) -> IdempotentModel:
    """Return the model after a random schedule of STEPS events, healed, with every batch answered.

    Each seed first draws a rate for each event, so that schedules differ in kind (swarm testing).
    """
    rng = random.Random(seed)
    model = IdempotentModel()
    # For each event, the rates from which a seed draws one. A rate is a weight: an event with twice
    # the rate of another occurs about twice as often. With the rate 0 it never occurs.
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
        # After 11 s a follower that has not fetched counts as lagging: the limit is 10 s.
        (lambda _: model.pass_time(11), (0, 0.05)),
    ]

    events: list[Callable[[], None]] = []
    weights: list[float] = []
    for event, rates in broker_events:
        for broker in REPLICAS:
            # The default arguments bind the present values of the loop's variables.
            events.append(lambda event=event, broker=broker: event(broker))  # type: ignore[misc]
            weights.append(rng.choice(rates))

    for client in model.producers:
        for act, rates in (
            (model.continue_sending, (1.0, 3.0)),
            (model.send, (0.3, 1.0)),
            (model.deliver, (0.3, 1.0)),
            (model.deliver_late, (0.1, 1.0)),
            (model.answer, (2.0, 4.0)),
            (lambda producer: model.answer(producer, lost=True), (0.0, 0.1, 0.3)),
            (model.refuse, (0.1, 0.3)),
            (model.reconnect, (0.0, 0.1, 0.3)),
        ):
            events.append(lambda act=act, client=client: act(client))  # type: ignore[misc]
            weights.append(rng.choice(rates))

    for step, event_of_step in enumerate(rng.choices(events, weights, k=STEPS)):
        event_of_step()
        model.check()
        # Comparing whole logs is slow, so it is done only at some steps.
        if step % 50 == 0:
            model.check_logs()
    model.heal()
    return model


@pytest.mark.parametrize("first_seed", range(0, 30, 10))
def test_each_batch_is_written_once_in_a_long_random_schedule(first_seed: int) -> None:
    """In Hypothesis' 40 events few batches succeed, so these schedules have 400 events."""
    answered = 0
    for seed in range(first_seed, first_seed + 10):
        try:
            model = walk(seed)
        except InvariantViolation as violation:
            violation.add_note(f"seed {seed}")
            raise
        answered += sum(len(producer.offsets) for producer in model.producers)
    # 15 batches for each of the ten seeds show that the producers made progress.
    assert answered > 150


@pytest.mark.parametrize(
    ("missing_check", "broken_invariant"),
    [
        ("find_duplicate", "the oldest batch without an answer is in order"),
        ("check_produced", "nothing is lost, written twice or out of order"),
    ],
)
def test_leader_without_one_of_its_checks_is_found(
    missing_check: str, broken_invariant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without one of the leader's two checks, some seed breaks the invariant of this check."""

    def no_duplicate(self: ProducerStates, batch: RecordBatch) -> None:
        return None

    def no_check(self: ProducerStates, batch: RecordBatch) -> ErrorCode:
        return ErrorCode.NONE

    replacement = no_duplicate if missing_check == "find_duplicate" else no_check
    monkeypatch.setattr(ProducerStates, missing_check, replacement)
    broken_invariants = set()
    for seed in range(20):
        try:
            walk(seed)
        except InvariantViolation as violation:
            broken_invariants.add(violation.name)
    assert broken_invariant in broken_invariants
