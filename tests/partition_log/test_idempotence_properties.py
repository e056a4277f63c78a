"""Idempotent producers under any order of events: each batch is written once, and in order.

The model has three replicas, min.insync.replicas 2, clean elections and no power loss. Brokers
crash and restart from their disks, truncate their logs and change leaders, while clients repeat
unanswered batches. The events are methods of the model; its invariants are checked after each.
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

PRODUCERS = st.integers(0, 1)
STEPS = 400


class IdempotenceMachine(ReplicationMachine):
    """The events of replication, with two clients; Hypothesis draws their order.

    The base class checks `self.model` after each event, and heals it at the end.
    """

    def __init__(self) -> None:
        super().__init__()
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


TestIdempotence = IdempotenceMachine.TestCase
TestIdempotence.settings = settings(
    max_examples=40, stateful_step_count=40, deadline=None, derandomize=True, database=None
)


def walk(seed: int) -> IdempotentModel:
    """Return the cluster after a long random schedule, healed, with every batch answered.

    Each seed draws the rate of each event (swarm testing).
    """
    rng = random.Random(seed)
    model = IdempotentModel()
    # Each event with the rates from which a seed draws.
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
        (lambda _: model.pass_time(11), (0, 0.05)),  # seconds: a follower lags after 10
    ]

    events: list[Callable[[], None]] = []
    weights: list[float] = []
    for event, odds in broker_events:
        for broker in REPLICAS:
            events.append(lambda event=event, broker=broker: event(broker))  # type: ignore[misc]
            weights.append(rng.choice(odds))

    for client in model.producers:
        for act, odds in (
            (model.continue_sending, (1.0, 3.0)),
            (model.send, (0.3, 1.0)),
            (model.deliver, (0.3, 1.0)),
            (model.deliver_late, (0.1, 1.0)),
            (model.answer, (2.0, 4.0)),
            (lambda one: model.answer(one, lost=True), (0.0, 0.1, 0.3)),
            (model.refuse, (0.1, 0.3)),
            (model.reconnect, (0.0, 0.1, 0.3)),
        ):
            events.append(lambda act=act, client=client: act(client))  # type: ignore[misc]
            weights.append(rng.choice(odds))

    for step, event_of_step in enumerate(rng.choices(events, weights, k=STEPS)):
        event_of_step()
        model.check()
        if step % 50 == 0:
            model.check_logs()
    model.heal()
    return model


@pytest.mark.parametrize("first_seed", range(0, 30, 10))
def test_each_batch_is_written_once_in_a_long_random_schedule(first_seed: int) -> None:
    """Hypothesis draws 40 events, in which few batches succeed; these schedules have 400."""
    answered = 0
    for seed in range(first_seed, first_seed + 10):
        try:
            model = walk(seed)
        except InvariantViolation as violation:
            violation.add_note(f"seed {seed}")
            raise
        answered += sum(len(producer.offsets) for producer in model.producers)
    assert answered > 150  # 15 batches per seed: enough that the producers made progress


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
    """The property can fail: it fails if the leader lacks one of its two checks."""

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
