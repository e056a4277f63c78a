"""Two idempotent producers, added to the model of three replicas.

An idempotent producer numbers its records (sequence numbers), so that the leader can recognise a
repeated batch. The producers here send and repeat as Kafka's client does:

1. A client has up to five batches in flight on one connection. The batches arrive in order.
2. After an error or a lost connection the client repeats the unanswered batches one at a time, the
   oldest first. The client sends them to the broker that leads as far as the client knows. When
   all are answered, the client continues with new batches.
3. A request of an earlier connection may still arrive, at any time.
4. The first batch of a client is sent alone. A leader accepts any sequence number of a producer
   that it does not know. So a second batch that arrives before the first would be accepted.

Each batch has one record here, and therefore one sequence number.
"""

from collections import deque
from dataclasses import dataclass, field

from protocol.effects import ACKS_ALL
from protocol.errors import ErrorCode, InvariantViolation
from protocol.ids import NO_BROKER, BrokerId
from protocol.records.batch import records_of
from tests.partition_log.cluster_model import ClusterModel
from tests.support.builders.client_batches import client_batch

FIRST_SEQUENCE = 2**31 - 4
"""First sequence number of each producer. It is near the largest, so that the numbers wrap to 0."""
MAX_IN_FLIGHT = 5
"""Default of the client's setting max.in.flight.requests.per.connection."""


@dataclass(frozen=True)
class Request:
    """A batch in flight; `connection` is the number of the connection on which it was sent."""

    index: int  # of the batch: 0 for the first of its producer
    broker_id: BrokerId
    connection: int


@dataclass(frozen=True)
class Wait:
    """An appended batch whose request the leader answers when enough replicas have the batch."""

    request: Request
    end_offset: int


@dataclass
class Producer:
    """One client. Its batch `index` has the sequence number FIRST_SEQUENCE + index (mod 2**31)."""

    producer_id: int
    created: int = 0  # number of batches so far
    offsets: dict[int, int] = field(default_factory=dict)
    """For each answered batch: its index, and the offset in its answer."""
    connection: int = 0  # number of the present connection
    broker_id: BrokerId = NO_BROKER  # broker at the other end of the present connection
    must_repeat: bool = False  # unanswered batches must be repeated before a new one is sent
    # A request is in `on_the_way` or `late` until it arrives, and then in `waits`.
    on_the_way: deque[Request] = field(default_factory=deque)
    """Requests of the present connection that have not arrived."""
    late: deque[Request] = field(default_factory=deque)
    """Requests of earlier connections that may still arrive."""
    waits: list[Wait] = field(default_factory=list)

    def unanswered(self) -> list[int]:
        """Return the indexes of the unanswered batches, the oldest first."""
        return [index for index in range(self.created) if index not in self.offsets]

    def value(self, index: int) -> str:
        """Return the record of a batch."""
        return f"{self.producer_id}:{index}"


class IdempotentModel(ClusterModel):
    """The cluster with two producers. Each public method except the checks is one event."""

    def __init__(self) -> None:
        self.producers = [Producer(producer_id) for producer_id in (7, 8)]
        super().__init__()

    def send(self, producer: Producer) -> None:
        """Send the next batch on the connection, if the client may send one now."""
        waiting = producer.unanswered()
        if producer.must_repeat or len(waiting) >= MAX_IN_FLIGHT:
            return
        # The first batch is sent alone (rule 4).
        if waiting and not producer.offsets:
            return
        if producer.broker_id == NO_BROKER:
            producer.broker_id = self.metadata.leader_id
        if producer.broker_id == NO_BROKER:
            return
        producer.on_the_way.append(
            Request(producer.created, producer.broker_id, producer.connection)
        )
        producer.created += 1

    def reconnect(self, producer: Producer) -> None:
        """Close the connection, open one to the leader, and repeat the oldest unanswered batch."""
        producer.late.extend(producer.on_the_way)
        producer.on_the_way.clear()
        producer.connection += 1
        producer.broker_id = self.metadata.leader_id
        waiting = producer.unanswered()
        producer.must_repeat = bool(waiting)
        if waiting and producer.broker_id != NO_BROKER:
            self._repeat(producer, waiting[0])

    def deliver(self, producer: Producer) -> None:
        """Deliver the next request of the present connection."""
        if producer.on_the_way:
            self._arrive(producer, producer.on_the_way.popleft())

    def refuse(self, producer: Producer) -> None:
        """Answer the next request with an error, as a leader with too few in-sync replicas does.

        The requests behind it on the connection still arrive.
        """
        if producer.on_the_way:
            producer.on_the_way.popleft()
            producer.must_repeat = True

    def deliver_late(self, producer: Producer) -> None:
        """Deliver a request of an earlier connection."""
        if producer.late:
            self._arrive(producer, producer.late.popleft())

    def continue_sending(self, producer: Producer) -> None:
        """Let the client repeat its oldest batch or send a new one; then deliver a request."""
        # A request of the present connection has arrived, and its answer has not been sent.
        is_answer_pending = any(
            wait.request.connection == producer.connection for wait in producer.waits
        )
        if producer.must_repeat and not producer.on_the_way and not is_answer_pending:
            # Nothing is in flight, so the client looks for the leader and repeats a batch there.
            self.reconnect(producer)
        else:
            self.send(producer)
        self.deliver(producer)

    def answer(self, producer: Producer, *, lost: bool = False) -> None:
        """Answer the appends whose outcome is known. If `lost`, the connection closes instead.

        Answers on an earlier connection reach no client.
        """
        for wait in list(producer.waits):
            partition = self.brokers[wait.request.broker_id].partition
            if partition is None:
                producer.waits.remove(wait)
                continue

            error = partition.check_acknowledged(wait.end_offset)
            # None: not enough replicas have the batch yet.
            if error is None:
                continue
            producer.waits.remove(wait)
            if wait.request.connection != producer.connection:
                continue
            if lost:
                self.reconnect(producer)
            elif error is ErrorCode.NONE:
                self._handle_success(producer, wait)
            else:
                producer.must_repeat = True

    def crash(self, broker_id: BrokerId) -> None:
        """Kill a broker. Requests that wait for their answer there are never answered."""
        super().crash(broker_id)
        for producer in self.producers:
            producer.waits = [
                wait for wait in producer.waits if wait.request.broker_id != broker_id
            ]

    def heal(self) -> None:
        """Heal the cluster, let the producers get all their answers, and check the log.

        Raises: InvariantViolation.
        """
        super().heal()
        for producer in self.producers:
            while producer.late:
                self.deliver_late(producer)

            # A round gets the answer of the oldest unanswered batch, and at most MAX_IN_FLIGHT
            # are unanswered; twice as many rounds are enough.
            for _ in range(2 * MAX_IN_FLIGHT):
                self.reconnect(producer)
                self.deliver(producer)
                super().heal()
                self.answer(producer)
            if producer.unanswered():
                raise InvariantViolation(
                    "a producer finishes", f"no answer to {producer.unanswered()}"
                )
        self.check_written()

    def check_written(self) -> None:
        """Check that the log has each batch once, in order, and at the offset that was answered.

        Raises: InvariantViolation.
        """
        partition = self.brokers[self.metadata.leader_id].partition
        if partition is None:
            raise InvariantViolation("a broker leads", f"{self.metadata}")
        log = partition.log
        written: dict[int, list[tuple[int, str]]] = {}
        for index in range(len(log.storage)):
            batch = log.storage.batch(index)
            for offset, record in records_of(batch):
                value = (record.value or b"").decode()
                written.setdefault(batch.producer_id, []).append((offset, value))

        for producer in self.producers:
            found = written.get(producer.producer_id, [])
            if [value for _, value in found] != [
                producer.value(index) for index in range(producer.created)
            ]:
                raise InvariantViolation(
                    "nothing is lost, written twice or out of order",
                    f"producer {producer.producer_id} sent {producer.created} batches: {found}",
                )

            if [offset for offset, _ in found] != [
                producer.offsets[index] for index in range(producer.created)
            ]:
                raise InvariantViolation(
                    "a batch stands where its answer says", f"{found}, {producer.offsets}"
                )

    def _arrive(self, producer: Producer, request: Request) -> None:
        broker = self.brokers[request.broker_id]
        if broker.partition is None:
            # The broker is crashed, so the connection breaks.
            if request.connection == producer.connection:
                producer.must_repeat = True
            return

        sequence = (FIRST_SEQUENCE + request.index) % 2**31
        batch = client_batch(
            producer.value(request.index), producer_id=producer.producer_id, base_sequence=sequence
        )
        info = broker.partition.append_batch(batch, required_acks=ACKS_ALL, now_us=self.now_us)
        if info.error is ErrorCode.NONE:
            broker.parked.add(info.next_offset)
            producer.waits.append(Wait(request, info.next_offset))
            return

        if request.connection != producer.connection:
            return  # the request is of an earlier connection: the client does not see the error

        oldest = producer.unanswered()[0]
        if info.error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and request.index == oldest:
            raise InvariantViolation(
                "the oldest batch without an answer is in order",
                f"{producer.value(request.index)} at {request.broker_id}",
            )
        # The requests behind this one lack their predecessor now, and will be refused, too. The
        # client repeats from the oldest unanswered batch.
        producer.must_repeat = True

    def _handle_success(self, producer: Producer, wait: Wait) -> None:
        index, offset = wait.request.index, wait.end_offset - 1
        known = producer.offsets.setdefault(index, offset)
        if known != offset:
            raise InvariantViolation(
                "a batch stands where its answer says",
                f"{producer.value(index)} at {known} and at {offset}",
            )
        if producer.must_repeat and not producer.on_the_way:
            waiting = producer.unanswered()
            if waiting:
                self._repeat(producer, waiting[0])
            else:
                producer.must_repeat = False

    def _repeat(self, producer: Producer, index: int) -> None:
        producer.on_the_way.append(Request(index, producer.broker_id, producer.connection))
