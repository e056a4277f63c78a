"""Consumers of a random trace: their requests, partitions, records and commits. Also a producer.

No real consumer runs: random decisions say what a consumer does, and a `World` writes its rows. A
consumer's next steps depend on the answers that it got. It asks a random broker which broker
coordinates its group. It sends its other requests to the broker that it considers the coordinator.
The state of that broker decides the answer.

The generation counts a group's rebalances. A position is the offset of the record that a
consumer processes next. A member owns the partitions that it was assigned. Most numbers below are
probabilities, chosen so that rare cases are frequent enough.
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
    """A consumer's process.

    - `member`: its member id, or "" before it gets the first one.
    - `ids`: the number of member ids that it has had.
    - `generation`: its generation, or -1 while it is no member.
    - `state`: its state as a member, by the name that rows of MEMBER_STATE have.
    - `coordinator`: the broker that it considers the coordinator, or None if it knows none.
    """

    name: str
    group: str
    member: str = ""
    ids: int = 0
    generation: int = -1
    state: str = "UNJOINED"
    coordinator: str | None = None
    owned: tuple[str, ...] = ()
    sent: dict[tuple[str, str], int] = field(default_factory=dict)
    """The next correlation id of each connection (broker, purpose)."""


class Consumers:
    """All consumers, the administrator and the producer."""

    def __init__(self, world: World, brokers: Brokers) -> None:
        self._world = world
        self._brokers = brokers
        self.consumers = {name: Consumer(name, group) for name, group in CONSUMERS.items()}
        self._admin = Consumer(ADMIN, "readers")
        # The position of each group in each partition.
        self._positions: dict[tuple[str, str], int] = {}
        # Number of records of each partition.
        self._produced = dict.fromkeys(DATA_PARTITIONS, 0)

    def restarted(self, name: str) -> None:
        """Start a consumer without its old state; only the number of its ids is kept."""
        ids = self.consumers[name].ids
        self.consumers[name] = Consumer(name, CONSUMERS[name], ids=ids)

    def act(self, name: str) -> None:
        """Let a consumer take one step."""
        consumer = self.consumers[name]
        # Each action with its weight, which says how often it is drawn.
        actions: list[tuple[int, Callable[[Consumer], None]]]
        if consumer.coordinator is None:
            actions = [(12, self._look_up), (1, self._commit), (2, self._consume)]
        elif consumer.generation < 0:
            actions = [(8, self._join), (1, self._look_up), (1, self._give_up_coordinator)]
        else:
            actions = [(1, self._join), (8, self._heartbeat), (1, self._fetch_offsets)]
            actions += [(12, self._commit), (16, self._consume), (1, self._give_up)]
            actions += [(8 if not consumer.owned else 1, self._sync), (1, self._leave)]
            actions += [(1, self._give_up_coordinator), (1, self._look_up)]
        weights = [weight for weight, _ in actions]
        self._world.rng.choices([act for _, act in actions], weights)[0](consumer)

    def administer(self) -> None:
        """Let the administrator, which is no member, query a group."""
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
        """Send a request to broker `peer`: write the rows of the request and of its outcome.

        answer: called at the broker; returns the error code of its answer.
        done: called at the consumer with this error code, or with the error of a lost request.
        """
        world = self._world
        link = (peer, purpose)
        if link in consumer.sent and world.chance(0.04):
            consumer.sent[link] = 0  # a new connection counts anew
        number = consumer.sent.setdefault(link, 0)
        consumer.sent[link] += 1
        ids: Columns = {"api": api, "correlation_id": number}
        identity: Columns = {"group": consumer.group, "member": None, "generation": None}
        if api != "FindCoordinator":
            # JoinGroup and LeaveGroup name no generation.
            generation = None if api in ("JoinGroup", "LeaveGroup") else consumer.generation
            identity = {
                "group": consumer.group,
                "member": consumer.member,
                "generation": generation,
            }
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
                return  # the answer is lost, and the client waits for it for ever
            world.node_later(consumer.name, world.delay_us(80_000), lambda: receive(error))

        def receive(error: str) -> None:
            world.add(consumer.name, TraceKind.RESPONSE_RECEIVED, client_columns, error=error)
            done(error)

        if not world.lives[peer].alive:
            world.node_later(consumer.name, world.delay_us(2_000), lambda: fail("DISCONNECTED"))
        elif world.chance(0.05):
            world.node_later(consumer.name, 3_000_000, lambda: fail("TIMED_OUT"))
        else:
            world.node_later(peer, world.delay_us(200_000), serve)

    def _error(self, broker: Broker, consumer: Consumer) -> str:
        """Return the error code of a broker's answer to a member's request."""
        partition = partition_of(consumer.group)
        if partition in broker.loading and partition not in broker.served:
            return "COORDINATOR_LOAD_IN_PROGRESS"
        if partition not in broker.served:
            return "NOT_COORDINATOR"
        coordinated = broker.groups.get(consumer.group)
        if coordinated is None or (consumer.member and consumer.member not in coordinated.members):
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
            # In most cases the answer names the leader, and sometimes a broker that does not lead
            # the partition.
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
                # The consumer gives the coordinator up before it has opened a connection to it.
                self._give_up_coordinator(consumer)

        purpose = world.rng.choice(("bootstrap", "client"))
        self._exchange(consumer, "FindCoordinator", asked, answer, done, purpose=purpose)

    def _give_up_coordinator(self, consumer: Consumer) -> None:
        """Let a consumer forget its coordinator, for a random cause."""
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
        world = self._world
        if consumer.coordinator is None:
            return
        if consumer.owned:
            self._give_up(consumer)
        self._enter(consumer, "PREPARING_REBALANCE", "first join")
        peer = consumer.coordinator
        new_id = ""
        if not consumer.member or world.chance(0.2):
            consumer.ids += 1
            new_id = f"{consumer.name}-{consumer.ids:04d}"

        def answer(broker: Broker) -> str:
            error = self._error(broker, consumer)
            if error not in ("NONE", "UNKNOWN_MEMBER_ID"):
                return error
            member = new_id or consumer.member
            coordinated = broker.groups.get(consumer.group)
            old = consumer.member
            # A member with a new id replaces the member with its old id, as a static member does
            # after a restart.
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
                    self._reset(consumer, partition)

        self._exchange(
            consumer, "SyncGroup", peer, lambda broker: self._error(broker, consumer), done
        )

    def _reset(self, consumer: Consumer, partition: str) -> None:
        """Set the position in a partition that was just assigned."""
        last = self._positions.get((consumer.group, partition), 0)
        cause = self._world.rng.choice(("committed", "earliest", "latest"))
        offset_of = {"committed": max(0, last - self._world.rng.randint(0, 5)), "earliest": 0}
        offset = offset_of.get(cause, last)  # "latest": the group's last position
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
        if consumer.coordinator is None:
            return

        def answer(broker: Broker) -> str:
            error = self._error(broker, consumer)
            # While a coordinator loads the group, it answers heartbeats with NONE.
            return "NONE" if error == "COORDINATOR_LOAD_IN_PROGRESS" else error

        def done(error: str) -> None:
            if error == "REBALANCE_IN_PROGRESS":
                self._enter(consumer, "PREPARING_REBALANCE", error)
            elif error in ("NOT_COORDINATOR", "DISCONNECTED", "TIMED_OUT"):
                self._give_up_coordinator(consumer)

        self._exchange(consumer, "Heartbeat", consumer.coordinator, answer, done)

    def _leave(self, consumer: Consumer) -> None:
        if consumer.coordinator is None or self._world.chance(0.3):
            return
        self._give_up(consumer)

        def answer(broker: Broker) -> str:
            coordinated = broker.groups.get(consumer.group)
            if coordinated is None or consumer.member not in coordinated.members:
                return "UNKNOWN_MEMBER_ID"
            self._brokers.expire(broker, consumer.group, consumer.member, left=True)
            return "NONE"

        self._exchange(consumer, "LeaveGroup", consumer.coordinator, answer, lambda _: None)
        consumer.generation = -1
        self._enter(consumer, "UNJOINED", "left")

    def _give_up(self, consumer: Consumer) -> None:
        """Let a consumer revoke or lose its partitions."""
        world = self._world
        if not consumer.owned and world.chance(0.7):
            # A consumer without partitions writes a row only in the other 30 % of the cases.
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

        Sometimes it does not own the partition, or processes some records again.
        """
        world = self._world
        if not consumer.owned and not world.chance(0.05):
            return
        partition = world.rng.choice(consumer.owned or DATA_PARTITIONS)
        first = self._positions.get((consumer.group, partition), 0)
        if world.chance(0.1):
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
        world, peer = self._world, consumer.coordinator
        partitions = consumer.owned or (world.rng.choice(DATA_PARTITIONS),)
        if peer is None:
            self._outcome(consumer, partitions, "COORDINATOR_NOT_AVAILABLE", None)
            return

        def answer(broker: Broker) -> str:
            error = self._error(broker, consumer)
            if error != "NONE":
                return error
            return self._brokers.store_commit(
                broker, consumer.group, consumer.member, consumer.generation, partitions
            )

        def done(error: str) -> None:
            self._outcome(consumer, partitions, error, peer)
            if error in ("NOT_COORDINATOR", "REQUEST_TIMED_OUT", "DISCONNECTED", "TIMED_OUT"):
                self._give_up_coordinator(consumer)

        # Consumers whose number is 1 commit in transactions; the broker writes the same rows as for
        # other commits.
        api = "TxnOffsetCommit" if consumer.name.endswith("1") else "OffsetCommit"
        self._exchange(consumer, api, peer, answer, done)

    def _outcome(
        self, consumer: Consumer, partitions: Sequence[str], error: str, peer: str | None
    ) -> None:
        """Write the outcome of a commit: one row for each partition, all with the same time."""
        for partition in partitions:
            is_unknown = error == "NONE" and self._world.chance(0.03)
            code = "UNKNOWN_TOPIC_OR_PARTITION" if is_unknown else error
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
            consumer, "OffsetFetch", peer, lambda broker: self._error(broker, consumer), done
        )
