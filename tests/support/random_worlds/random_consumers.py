"""The clients of a random trace: consumers, an administrator and a producer.

No real client runs. Random decisions say what a client does, and a `World` writes its rows. A
consumer asks a random broker which broker coordinates its group, and sends its other requests to
the coordinator. The answer depends on the coordinator's state in the simulation (`Brokers`), and
what the consumer does next depends on the answer.

Most numbers below are probabilities. They are chosen so that rare cases happen often enough.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from protocol.trace import TraceKind
from tests.support.builders.rows import Columns
from tests.support.random_worlds.random_brokers import BROKERS, Broker, Brokers, partition_of
from tests.support.random_worlds.random_world import World

CONSUMERS = {
    "consumer-readers-0": "readers",
    "consumer-readers-1": "readers",
    "consumer-readers-2": "readers",
    "consumer-billing-0": "billing",
    "consumer-mail-0": "mail",
    "consumer-mail-1": "mail",
}
PRODUCER = "producer-0"
ADMIN = "admin-0"
DATA_PARTITIONS = ("orders-0", "orders-1", "orders-2", "orders-3")
_UNKNOWN_CAUSES = ("NOT_COORDINATOR", "REQUEST_TIMED_OUT", "coordinator unavailable", None)
_LOOKUP_ERRORS = ("COORDINATOR_NOT_AVAILABLE", "DISCONNECTED", "TIMED_OUT")
_MEMBER_ERRORS = ("UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION", "REBALANCE_IN_PROGRESS")


@dataclass(slots=True)
class Consumer:
    """A consumer's process."""

    name: str
    group: str
    # The consumer's member id, or "" before it has got one.
    member: str = ""
    # The number of member ids that the consumer has had so far. Its next member id has the next
    # number.
    id_count: int = 0
    # -1 while the consumer is no member.
    generation: int = -1
    # The consumer's state as a member. The names are the same as in rows of MEMBER_STATE.
    state: str = "UNJOINED"
    # The broker that the consumer considers the coordinator, or None.
    coordinator: str | None = None
    # The partitions that the consumer was assigned.
    owned: tuple[str, ...] = ()
    # Connection (broker, purpose) -> correlation id of its next request.
    next_ids: dict[tuple[str, str], int] = field(default_factory=dict)


class Consumers:
    """All consumers, the administrator and the producer."""

    def __init__(self, world: World, brokers: Brokers) -> None:
        self._world = world
        self._brokers = brokers
        self.consumers = {name: Consumer(name, group) for name, group in CONSUMERS.items()}
        self._admin = Consumer(ADMIN, "readers")
        # (group, partition) -> offset of the record that the group processes next.
        self._positions: dict[tuple[str, str], int] = {}
        # Partition -> number of its records.
        self._produced = dict.fromkeys(DATA_PARTITIONS, 0)

    def restarted(self, name: str) -> None:
        """Forget all that a restarted consumer knew."""
        # The count of its member ids goes on, so that the consumer never gets an old id again.
        id_count = self.consumers[name].id_count
        self.consumers[name] = Consumer(name, CONSUMERS[name], id_count=id_count)

    def act(self, name: str) -> None:
        """Let a consumer take one step."""
        consumer = self.consumers[name]
        # The steps that the consumer may take now, with their weights. A step with the weight 2 is
        # drawn twice as often as a step with the weight 1.
        weights: dict[Callable[[Consumer], None], int]
        if consumer.coordinator is None:
            weights = {self._look_up: 12, self._commit: 1, self._consume: 2}
        elif consumer.generation < 0:
            weights = {self._join: 8, self._look_up: 1, self._give_up_coordinator: 1}
        else:
            weights = {
                self._join: 1,
                self._heartbeat: 8,
                self._fetch_offsets: 1,
                self._commit: 12,
                self._consume: 16,
                self._give_up_partitions: 1,
                self._sync: 1 if consumer.owned else 8,
                self._leave: 1,
                self._give_up_coordinator: 1,
                self._look_up: 1,
            }
        step = self._world.rng.choices(list(weights), list(weights.values()))[0]
        step(consumer)

    def administer(self) -> None:
        """Let the administrator, which is no member, fetch offsets of a group."""
        self._look_up(self._admin)
        if self._admin.coordinator is not None:
            self._fetch_offsets(self._admin)

    def produce(self) -> None:
        """Let the producer write some records, or fail."""
        world = self._world
        partition = world.rng.choice(DATA_PARTITIONS)
        count = world.rng.randint(1, 12)
        if world.chance(0.9):
            world.add(
                PRODUCER,
                TraceKind.RECORDS_PRODUCED,
                partition=partition,
                offset=self._produced[partition],
                detail={"count": count},
            )
            self._produced[partition] += count
        else:
            world.add(
                PRODUCER,
                TraceKind.PRODUCE_FAILED,
                partition=partition,
                error="REQUEST_TIMED_OUT",
                detail={"count": count},
            )

    # -- exchanges --

    def _exchange(
        self,
        consumer: Consumer,
        api: str,
        peer: str,
        answer: Callable[[Broker], str],
        done: Callable[[str], None],
        *,
        purpose: str = "coordinator",
    ) -> None:
        """Send a request to broker `peer`, and write the rows of both sides about it.

        When the broker serves the request, `answer` is called, and returns the error code of the
        broker's answer. When the consumer gets the answer, `done` is called with this error code.
        If the request fails, `done` is called with DISCONNECTED or TIMED_OUT.
        """
        world = self._world
        connection = (peer, purpose)
        if connection in consumer.next_ids and world.chance(0.04):
            # Count the requests from 0 again, as if the connection had been opened anew.
            consumer.next_ids[connection] = 0
        correlation_id = consumer.next_ids.setdefault(connection, 0)
        consumer.next_ids[connection] += 1
        ids: Columns = {"api": api, "correlation_id": correlation_id}
        # FindCoordinator has neither a member nor a generation. JoinGroup and LeaveGroup have a
        # member, but no generation.
        identity: Columns = {"group": consumer.group, "member": None, "generation": None}
        if api != "FindCoordinator":
            identity["member"] = consumer.member
        if api not in ("FindCoordinator", "JoinGroup", "LeaveGroup"):
            identity["generation"] = consumer.generation
        client_columns: Columns = {**ids, **identity, "peer": peer, "cause": purpose}
        world.add(consumer.name, TraceKind.REQUEST_SENT, client_columns)

        def fail(error: str) -> None:
            world.add(consumer.name, TraceKind.REQUEST_FAILED, client_columns, error=error)
            done(error)

        def serve() -> None:
            world.add(peer, TraceKind.REQUEST_RECEIVED, ids, peer=consumer.name)
            error = answer(self._brokers.brokers[peer])
            world.add(peer, TraceKind.RESPONSE_SENT, ids, peer=consumer.name, error=error)
            if world.chance(0.04):
                # The answer is lost, and the client waits for it for ever.
                return
            world.node_later(consumer.name, world.delay_us(80_000), lambda: receive(error))

        def receive(error: str) -> None:
            world.add(consumer.name, TraceKind.RESPONSE_RECEIVED, client_columns, error=error)
            done(error)

        # A dead broker ends the connection at once, and some requests time out.
        if not world.lives[peer].alive:
            world.node_later(consumer.name, world.delay_us(2_000), lambda: fail("DISCONNECTED"))
        elif world.chance(0.05):
            world.node_later(consumer.name, 3_000_000, lambda: fail("TIMED_OUT"))
        else:
            world.node_later(peer, world.delay_us(200_000), serve)

    def _answer_to_member(self, broker: Broker, consumer: Consumer) -> str:
        """Return the error code with which a broker answers a member's request."""
        partition = partition_of(consumer.group)
        if partition in broker.loading and partition not in broker.served:
            return "COORDINATOR_LOAD_IN_PROGRESS"
        if partition not in broker.served:
            return "NOT_COORDINATOR"
        coordinated = broker.groups.get(consumer.group)
        is_unknown_group = coordinated is None
        is_unknown_member = (
            coordinated is not None
            and consumer.member != ""
            and consumer.member not in coordinated.members
        )
        if is_unknown_group or is_unknown_member:
            # A real broker would always refuse the request. Here 70 % of these requests get an
            # answer without an error.
            return "UNKNOWN_MEMBER_ID" if self._world.chance(0.3) else "NONE"
        return "NONE" if self._world.chance(0.95) else self._world.rng.choice(_MEMBER_ERRORS)

    def _look_up(self, consumer: Consumer) -> None:
        """Ask a random broker for the group's coordinator."""
        world = self._world
        asked = world.rng.choice(BROKERS)
        partition = partition_of(consumer.group)

        def answer(broker: Broker) -> str:
            return "NONE" if world.chance(0.85) else "COORDINATOR_NOT_AVAILABLE"

        def done(error: str) -> None:
            if error != "NONE":
                world.add(
                    consumer.name,
                    TraceKind.COORDINATOR_LOOKUP_FAILED,
                    group=consumer.group,
                    member=consumer.member or None,
                    error=error,
                    peer=asked,
                )
                return
            # In most cases the answer names the leader of the partition, but sometimes another
            # broker. If there is no leader, the asked broker names itself.
            leader = self._brokers.leaders[partition] or asked
            answered = world.rng.choice((leader, leader, leader, asked, world.rng.choice(BROKERS)))
            consumer.coordinator = answered
            world.add(
                consumer.name,
                TraceKind.COORDINATOR_FOUND,
                group=consumer.group,
                member=consumer.member or None,
                peer=answered,
                cause=asked,
            )
            if world.chance(0.12):
                # The consumer gives this coordinator up before it has even connected to it.
                self._give_up_coordinator(consumer)

        purpose = world.rng.choice(("bootstrap", "client"))
        self._exchange(consumer, "FindCoordinator", asked, answer, done, purpose=purpose)

    def _give_up_coordinator(self, consumer: Consumer) -> None:
        """Let a consumer forget its coordinator, for a random reason."""
        if consumer.coordinator is None:
            return
        self._world.add(
            consumer.name,
            TraceKind.COORDINATOR_UNKNOWN,
            group=consumer.group,
            member=consumer.member or None,
            peer=consumer.coordinator,
            cause=self._world.rng.choice(_UNKNOWN_CAUSES),
        )
        consumer.coordinator = None

    # -- membership --

    def _join(self, consumer: Consumer) -> None:
        """Send JoinGroup, in some cases with a new member id."""
        world = self._world
        if consumer.coordinator is None:
            return
        if consumer.owned:
            self._give_up_partitions(consumer)
        self._enter(consumer, "PREPARING_REBALANCE", "first join")
        peer = consumer.coordinator
        new_id = ""
        if not consumer.member or world.chance(0.2):
            consumer.id_count += 1
            new_id = f"{consumer.name}-{consumer.id_count:04d}"

        def answer(broker: Broker) -> str:
            error = self._answer_to_member(broker, consumer)
            if error not in ("NONE", "UNKNOWN_MEMBER_ID"):
                return error
            member = new_id or consumer.member
            coordinated = broker.groups.get(consumer.group)
            old = consumer.member
            # If the coordinator still has the consumer's old id, the new id takes its place. A real
            # coordinator does so if a static member has restarted.
            if new_id and old and coordinated is not None and old in coordinated.members:
                self._brokers.replace(broker, consumer.group, old, new_id)
            else:
                self._brokers.join(broker, consumer.group, member, consumer.name)
            return "NONE" if world.chance(0.8) else "MEMBER_ID_REQUIRED"

        def done(error: str) -> None:
            if error == "NONE":
                consumer.member = new_id or consumer.member
                coordinated = self._brokers.brokers[peer].groups.get(consumer.group)
                consumer.generation = 0 if coordinated is None else coordinated.generation
                self._enter(consumer, "COMPLETING_REBALANCE", "join answered")
            elif error == "MEMBER_ID_REQUIRED":
                consumer.member = new_id or consumer.member

        self._exchange(consumer, "JoinGroup", peer, answer, done)

    def _sync(self, consumer: Consumer) -> None:
        """Send SyncGroup. If the answer has no error, the consumer gets random partitions."""
        world = self._world
        if consumer.coordinator is None:
            return
        peer = consumer.coordinator

        def done(error: str) -> None:
            if error != "NONE":
                return
            self._enter(consumer, "STABLE", "assignment received")
            owned_count = world.rng.randint(0, 3)
            consumer.owned = tuple(sorted(world.rng.sample(DATA_PARTITIONS, owned_count)))
            self._add_partitions_row(
                consumer, TraceKind.PARTITIONS_ASSIGNED, consumer.owned, peer=peer
            )
            for partition in consumer.owned:
                if world.chance(0.8):
                    self._reset_position(consumer, partition)

        self._exchange(
            consumer,
            "SyncGroup",
            peer,
            lambda broker: self._answer_to_member(broker, consumer),
            done,
        )

    def _reset_position(self, consumer: Consumer, partition: str) -> None:
        """Choose the position at which a consumer begins in a newly assigned partition."""
        position = self._positions.get((consumer.group, partition), 0)
        cause = self._world.rng.choice(("committed", "earliest", "latest"))
        offset_of_cause = {
            # The last commit may be older than the position.
            "committed": max(0, position - self._world.rng.randint(0, 5)),
            "earliest": 0,
            # In Kafka this is the end of the log. Here it is not, because the consumer would skip
            # all records before the end.
            "latest": position,
        }
        offset = offset_of_cause[cause]
        self._positions[consumer.group, partition] = offset
        self._world.add(
            consumer.name,
            TraceKind.POSITION_RESET,
            group=consumer.group,
            member=consumer.member,
            partition=partition,
            offset=offset,
            cause=cause,
        )

    def _heartbeat(self, consumer: Consumer) -> None:
        """Send a heartbeat. The answer may tell about a rebalance or another coordinator."""
        if consumer.coordinator is None:
            return

        def answer(broker: Broker) -> str:
            error = self._answer_to_member(broker, consumer)
            # While a coordinator loads the group, it answers heartbeats without an error.
            return "NONE" if error == "COORDINATOR_LOAD_IN_PROGRESS" else error

        def done(error: str) -> None:
            if error == "REBALANCE_IN_PROGRESS":
                self._enter(consumer, "PREPARING_REBALANCE", error)
            elif error in ("NOT_COORDINATOR", "DISCONNECTED", "TIMED_OUT"):
                self._give_up_coordinator(consumer)

        self._exchange(consumer, "Heartbeat", consumer.coordinator, answer, done)

    def _leave(self, consumer: Consumer) -> None:
        """Give the partitions up, and send LeaveGroup. In 30 % of the calls nothing happens."""
        if consumer.coordinator is None or self._world.chance(0.3):
            return
        self._give_up_partitions(consumer)

        def answer(broker: Broker) -> str:
            coordinated = broker.groups.get(consumer.group)
            if coordinated is None or consumer.member not in coordinated.members:
                return "UNKNOWN_MEMBER_ID"
            self._brokers.expire(broker, consumer.group, consumer.member, left=True)
            return "NONE"

        self._exchange(consumer, "LeaveGroup", consumer.coordinator, answer, lambda _: None)
        consumer.generation = -1
        self._enter(consumer, "UNJOINED", "left")

    def _give_up_partitions(self, consumer: Consumer) -> None:
        """Let a consumer revoke or lose its partitions."""
        world = self._world
        # A consumer without partitions writes a row only in 30 % of the cases.
        if not consumer.owned and world.chance(0.7):
            return
        kind = world.rng.choice((TraceKind.PARTITIONS_REVOKED, TraceKind.PARTITIONS_LOST))
        self._add_partitions_row(consumer, kind, consumer.owned)
        consumer.owned = ()

    def _add_partitions_row(
        self,
        consumer: Consumer,
        kind: TraceKind,
        partitions: Sequence[str],
        *,
        peer: str | None = None,
    ) -> None:
        """Write a row about partitions that a consumer has got or given up."""
        self._world.add(
            consumer.name,
            kind,
            group=consumer.group,
            member=consumer.member,
            generation=consumer.generation,
            peer=peer,
            detail={"partitions": list(partitions)},
        )

    def _enter(self, consumer: Consumer, state: str, cause: str) -> None:
        """Change a consumer's state, and write the row of the change."""
        if consumer.state == state:
            return
        self._world.add(
            consumer.name,
            TraceKind.MEMBER_STATE,
            group=consumer.group,
            member=consumer.member or None,
            generation=consumer.generation,
            cause=cause,
            detail={"from": consumer.state, "to": state},
        )
        consumer.state = state

    # -- records and offsets --

    def _consume(self, consumer: Consumer) -> None:
        """Let a consumer process up to ten records of one partition.

        Sometimes the consumer does not own the partition, and sometimes it processes old records
        again.
        """
        world = self._world
        if not consumer.owned and not world.chance(0.05):
            return
        partition = world.rng.choice(consumer.owned or DATA_PARTITIONS)
        first = self._positions.get((consumer.group, partition), 0)
        if world.chance(0.1):
            # These records are processed again.
            first = max(0, first - world.rng.randint(1, 8))
        last = min(first + world.rng.randint(0, 9), self._produced[partition] - 1)
        if last < first:
            return
        self._positions[consumer.group, partition] = last + 1
        detail: dict[str, object] = {"count": last - first + 1, "last": last}
        if world.chance(0.5):
            detail["work_us"] = world.rng.randint(1, 3_000_000)
        world.add(
            consumer.name,
            TraceKind.RECORDS_CONSUMED,
            group=consumer.group,
            member=consumer.member,
            partition=partition,
            offset=first,
            detail=detail,
        )

    def _commit(self, consumer: Consumer) -> None:
        """Commit the positions of the owned partitions, or of any partition if none is owned."""
        world, peer = self._world, consumer.coordinator
        partitions = consumer.owned or (world.rng.choice(DATA_PARTITIONS),)
        if peer is None:
            self._write_outcome(consumer, partitions, "COORDINATOR_NOT_AVAILABLE", None)
            return

        def answer(broker: Broker) -> str:
            error = self._answer_to_member(broker, consumer)
            if error != "NONE":
                return error
            return self._brokers.store_commit(
                broker, consumer.group, consumer.member, consumer.generation, partitions
            )

        def done(error: str) -> None:
            self._write_outcome(consumer, partitions, error, peer)
            if error in ("NOT_COORDINATOR", "REQUEST_TIMED_OUT", "DISCONNECTED", "TIMED_OUT"):
                self._give_up_coordinator(consumer)

        # The consumers with the number 1 commit within transactions. A broker writes the same rows
        # about these commits as about others.
        api = "TxnOffsetCommit" if consumer.name.endswith("1") else "OffsetCommit"
        self._exchange(consumer, api, peer, answer, done)

    def _write_outcome(
        self, consumer: Consumer, partitions: Sequence[str], error: str, peer: str | None
    ) -> None:
        """Write how a commit ended: one row for each partition, all with the same time."""
        for partition in partitions:
            # Now and then the commit of a single partition fails.
            has_own_error = error == "NONE" and self._world.chance(0.03)
            code = "UNKNOWN_TOPIC_OR_PARTITION" if has_own_error else error
            columns: Columns = {
                "group": consumer.group,
                "member": consumer.member,
                "generation": consumer.generation,
                "partition": partition,
                "offset": self._positions.get((consumer.group, partition), 0),
                "peer": peer,
            }
            if code == "NONE":
                self._world.add(consumer.name, TraceKind.OFFSETS_COMMITTED, columns)
            else:
                self._world.add(consumer.name, TraceKind.COMMIT_FAILED, columns, error=code)

    def _fetch_offsets(self, consumer: Consumer) -> None:
        """Send OffsetFetch. If the answer has no error, it has a random offset."""
        world, peer = self._world, consumer.coordinator
        if peer is None:
            return

        def done(error: str) -> None:
            if error == "NONE":
                world.add(
                    consumer.name,
                    TraceKind.OFFSETS_FETCHED,
                    group=consumer.group,
                    member=consumer.member or None,
                    partition=world.rng.choice(DATA_PARTITIONS),
                    offset=world.rng.randint(-1, 40),
                    peer=peer,
                )

        self._exchange(
            consumer,
            "OffsetFetch",
            peer,
            lambda broker: self._answer_to_member(broker, consumer),
            done,
        )
