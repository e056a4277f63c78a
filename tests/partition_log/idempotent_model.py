"""Two idempotent producers, added to the model of three replicas.

The producers number their records, so that the leader can recognise a batch that is sent again.
They send and repeat batches as Kafka's client does:

1. A client has up to five batches in flight on one connection. These batches arrive in order.
2. After an error or a lost connection the client repeats the unanswered batches, one at a time and
   the oldest first. It sends them to the broker that it knows as the leader. When all batches are
   answered, the client continues with new batches.
3. A request of an earlier connection may still arrive, at any time.
4. The first batch of a client is sent alone. A leader that does not know a producer accepts any
   sequence number, so it would also accept a second batch that arrives before the first.

Each batch has one record here, and so one sequence number.
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
"""The first sequence number of each producer.

This number is near the largest possible number, so the numbers soon begin again at 0.
"""
MAX_IN_FLIGHT = 5
"""Default of the client's setting max.in.flight.requests.per.connection."""


@dataclass(frozen=True)
class Request:
    """A request with one batch, which is on its way to a broker."""

    index: int
    """The number of the batch among the batches of its producer, from 0."""
    broker_id: BrokerId
    connection: int
    """The number of the connection on which the request was sent."""


@dataclass(frozen=True)
class WaitingAnswer:
    """A request whose batch the leader has appended, but not acknowledged yet.

    The request is answered when enough replicas have the batch, which ends at `end_offset`.
    """

    request: Request
    end_offset: int


@dataclass
class Producer:
    """One client. Its batch `index` has the sequence number FIRST_SEQUENCE + index (mod 2**31)."""

    producer_id: int
    batch_count: int = 0
    """The number of batches so far."""
    offsets: dict[int, int] = field(default_factory=dict)
    """Index of an answered batch -> the offset in the answer."""
    connection: int = 0
    """The number of the present connection."""
    broker_id: BrokerId = NO_BROKER
    """The broker at the other end of the present connection."""
    must_repeat: bool = False
    """True while unanswered batches must be repeated before a new batch is sent."""
    on_the_way: deque[Request] = field(default_factory=deque)
    """Requests of the present connection that have not arrived."""
    late: deque[Request] = field(default_factory=deque)
    """Requests of earlier connections that may still arrive."""
    waiting_answers: list[WaitingAnswer] = field(default_factory=list)
    """Requests of all connections that have arrived at a broker, and are not answered yet."""

    def unanswered(self) -> list[int]:
        """Return the indexes of the unanswered batches, the oldest first."""
        return [index for index in range(self.batch_count) if index not in self.offsets]

    def value(self, index: int) -> str:
        """Return the value of a batch's record, such as "7:2" for batch 2 of producer 7."""
        return f"{self.producer_id}:{index}"


class IdempotentModel(ClusterModel):
    """The cluster with two producers. Each public method is one event, except the checks."""

    def __init__(self) -> None:
        self.producers = [Producer(producer_id) for producer_id in (7, 8)]
        super().__init__()

    def send(self, producer: Producer) -> None:
        """Send the next batch on the connection, if the client may send one now."""
        unanswered = producer.unanswered()
        if producer.must_repeat or len(unanswered) >= MAX_IN_FLIGHT:
            return
        # The first batch is sent alone (rule 4).
        is_first_batch_in_flight = len(unanswered) > 0 and not producer.offsets
        if is_first_batch_in_flight:
            return
        if producer.broker_id == NO_BROKER:
            producer.broker_id = self.metadata.leader_id
        if producer.broker_id == NO_BROKER:
            return  # the partition has no leader at present
        producer.on_the_way.append(
            Request(producer.batch_count, producer.broker_id, producer.connection)
        )
        producer.batch_count += 1

    def reconnect(self, producer: Producer) -> None:
        """Close the connection, connect to the leader, and repeat the oldest unanswered batch."""
        producer.late.extend(producer.on_the_way)
        producer.on_the_way.clear()
        producer.connection += 1
        producer.broker_id = self.metadata.leader_id
        unanswered = producer.unanswered()
        producer.must_repeat = len(unanswered) > 0
        if unanswered and producer.broker_id != NO_BROKER:
            self._repeat(producer, unanswered[0])

    def deliver(self, producer: Producer) -> None:
        """Deliver the next request of the present connection."""
        if producer.on_the_way:
            self._arrive(producer, producer.on_the_way.popleft())

    def refuse(self, producer: Producer) -> None:
        """Answer the next request with an error, as a leader with too few in-sync replicas does.

        The later requests on the connection still arrive.
        """
        if producer.on_the_way:
            producer.on_the_way.popleft()
            producer.must_repeat = True

    def deliver_late(self, producer: Producer) -> None:
        """Deliver a request of an earlier connection."""
        if producer.late:
            self._arrive(producer, producer.late.popleft())

    def continue_sending(self, producer: Producer) -> None:
        """Let the client repeat its oldest batch or send a new batch. Then deliver a request."""
        # True if a request of the present connection has arrived, and is not answered yet.
        is_answer_pending = any(
            waiting.request.connection == producer.connection
            for waiting in producer.waiting_answers
        )
        is_idle = not producer.on_the_way and not is_answer_pending
        if producer.must_repeat and is_idle:
            # No request is in flight, so the client connects to the leader and repeats a batch.
            self.reconnect(producer)
        else:
            self.send(producer)
        self.deliver(producer)

    def answer(self, producer: Producer, *, is_lost: bool = False) -> None:
        """Answer the appends whose outcome is known. If `is_lost`, the connection closes instead.

        An answer on an earlier connection does not reach the client.
        """
        for waiting in list(producer.waiting_answers):
            partition = self.brokers[waiting.request.broker_id].partition
            if partition is None:  # the broker is crashed
                producer.waiting_answers.remove(waiting)
                continue

            error = partition.check_acknowledged(waiting.end_offset)
            if error is None:  # not enough replicas have the batch yet
                continue
            producer.waiting_answers.remove(waiting)
            if waiting.request.connection != producer.connection:
                continue
            if is_lost:
                self.reconnect(producer)
            elif error is ErrorCode.NONE:
                self._handle_success(producer, waiting)
            else:
                producer.must_repeat = True

    def crash(self, broker_id: BrokerId) -> None:
        """Kill a broker. It never answers the requests that wait at it."""
        super().crash(broker_id)
        for producer in self.producers:
            producer.waiting_answers = [
                waiting
                for waiting in producer.waiting_answers
                if waiting.request.broker_id != broker_id
            ]

    def heal(self) -> None:
        """Heal the cluster, let the producers get all their answers, and check the log.

        Raises: InvariantViolation.
        """
        super().heal()
        for producer in self.producers:
            while producer.late:
                self.deliver_late(producer)

            # In each round the oldest unanswered batch gets its answer. At most MAX_IN_FLIGHT
            # batches are unanswered, so twice this number of rounds is more than enough.
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
        """Check that the log has each batch once, in order, at the offset in its answer.

        Raises: InvariantViolation.
        """
        partition = self.brokers[self.metadata.leader_id].partition
        if partition is None:
            raise InvariantViolation("a broker leads", f"{self.metadata}")
        log = partition.log
        # producer id -> offset and value of each of its records
        written_by_producer: dict[int, list[tuple[int, str]]] = {}
        for index in range(len(log.storage)):
            batch = log.storage.batch(index)
            for offset, record in records_of(batch):
                value = (record.value or b"").decode()
                written_by_producer.setdefault(batch.producer_id, []).append((offset, value))

        for producer in self.producers:
            written = written_by_producer.get(producer.producer_id, [])
            sent_values = [producer.value(index) for index in range(producer.batch_count)]
            if [value for _, value in written] != sent_values:
                raise InvariantViolation(
                    "nothing is lost, written twice or out of order",
                    f"producer {producer.producer_id} sent {producer.batch_count} batches: "
                    f"{written}",
                )

            answered_offsets = [producer.offsets[index] for index in range(producer.batch_count)]
            if [offset for offset, _ in written] != answered_offsets:
                raise InvariantViolation(
                    "a batch stands where its answer says", f"{written}, {producer.offsets}"
                )

    def _arrive(self, producer: Producer, request: Request) -> None:
        """Let a request arrive at its broker, which tries to append the batch."""
        broker = self.brokers[request.broker_id]
        if broker.partition is None:
            # The broker is crashed, so the connection on which the request was sent breaks.
            if request.connection == producer.connection:
                producer.must_repeat = True
            return

        sequence = (FIRST_SEQUENCE + request.index) % 2**31
        batch = client_batch(
            producer.value(request.index), producer_id=producer.producer_id, base_sequence=sequence
        )
        info = broker.partition.append_batch(batch, required_acks=ACKS_ALL, now_us=self.now_us)
        if info.error is ErrorCode.NONE:
            broker.waiting_appends.add(info.next_offset)
            producer.waiting_answers.append(WaitingAnswer(request, info.next_offset))
            return

        # An error on an earlier connection does not reach the client.
        if request.connection != producer.connection:
            return

        oldest = producer.unanswered()[0]
        if info.error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and request.index == oldest:
            raise InvariantViolation(
                "the oldest batch without an answer is in order",
                f"{producer.value(request.index)} at {request.broker_id}",
            )
        # The later requests of this connection will be refused, too, because they come after a
        # missing batch. So the client repeats all batches from the oldest unanswered one on.
        producer.must_repeat = True

    def _handle_success(self, producer: Producer, waiting: WaitingAnswer) -> None:
        """Let the producer learn the offset of a batch that was acknowledged."""
        index = waiting.request.index
        offset = waiting.end_offset - 1  # the batch has one record
        # If the batch was answered before, this answer must have the same offset.
        first_answer = producer.offsets.setdefault(index, offset)
        if first_answer != offset:
            raise InvariantViolation(
                "a batch stands where its answer says",
                f"{producer.value(index)} at {first_answer} and at {offset}",
            )
        # A client that repeats batches sends the next batch when the last batch is answered.
        if producer.must_repeat and not producer.on_the_way:
            unanswered = producer.unanswered()
            if unanswered:
                self._repeat(producer, unanswered[0])
            else:
                producer.must_repeat = False

    def _repeat(self, producer: Producer, index: int) -> None:
        producer.on_the_way.append(Request(index, producer.broker_id, producer.connection))
