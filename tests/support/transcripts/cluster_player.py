"""Play the stories of a transcript on a small cluster in virtual time (a simulated clock).

The cluster has three brokers, a controller and a client. A transcript is a text file of commands
and their results. A command prints, in this order:

1. the rows of the trace about leaders, logs and groups, each with its time;
2. the answers that the client has got, with the time that they took;
3. the nodes, partitions and groups that have changed.

Times are seconds since the story began, rounded to a tenth of a second.
"""

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from cluster.client.admin.orders import TopicDeletionFailed, delete_topics, move_leader
from cluster.host.host import Disconnected, RequestTimedOut
from cluster.links.rules import Cut, LinkRule, Selector
from cluster.runtime import ClusterStatus, MemberStatus
from protocol.api import AnyRequest
from protocol.errors import ErrorCode
from protocol.ids import BrokerId, NodeName, broker_name
from protocol.trace import TraceKind, TraceRow
from tests.support.harness.brokers import SECOND_US, BrokerLab, broker_cluster
from tests.support.harness.transactional_client import (
    TransactionalClient,
    stable_offset,
)
from tests.support.transcripts.broker_requests import read_broker_request
from tests.support.transcripts.coordinator_player import GIVEN
from tests.support.transcripts.printing import message_lines
from tests.support.transcripts.small_cluster import small_cluster
from tests.support.transcripts.words import (
    Command,
    UnknownWord,
    number_uuids,
    read_command,
    read_partition,
)

ROWS_LEFT_OUT = frozenset(
    {
        TraceKind.REQUEST_SENT,
        TraceKind.REQUEST_RECEIVED,
        TraceKind.RESPONSE_SENT,
        TraceKind.RESPONSE_RECEIVED,
        TraceKind.REQUEST_FAILED,
        TraceKind.CONNECTION_REFUSED,
        TraceKind.METRICS,
        TraceKind.ISR_CHANGED,
        TraceKind.APPEND_STARTED,
        TraceKind.HIGH_WATERMARK,
        TraceKind.UNLOAD_SCHEDULED,
        TraceKind.LOAD_SCHEDULED,
        TraceKind.SESSION_RESTARTED,
        TraceKind.COORDINATOR_UNKNOWN,
        TraceKind.COORDINATOR_FOUND,
        TraceKind.COORDINATOR_LOOKUP_FAILED,
        TraceKind.OFFSETS_FETCHED,
    }
)
"""Rows of these kinds are not printed.

There are so many of them that a reader of a transcript would not find the other rows.
"""
COLUMNS = ("peer", "group", "member", "partition", "generation", "leader_epoch", "offset")
"""These columns of a row are printed."""
AT_MOST_S = 30
"""The command `until` fails after this number of seconds, unless its setting `at_most` is set."""


class ClusterPlayer:
    """Plays one story. It prints only changes of the state, so it keeps what it has printed."""

    def __init__(self) -> None:
        # The command `cluster` replaces this lab by a lab with another cluster.
        self._lab = BrokerLab(broker_cluster())
        self._is_started = False
        # The time at which the story began.
        self._began_us = 0
        # The number of rows of the lab that were printed or dropped so far.
        self._rows_printed = 0
        # The name of a node, partition or group -> its state, as it was printed last.
        self._status: dict[str, str] = {}
        # The rules of all cuts that are in force.
        self._rules: list[LinkRule] = []
        # Lines that are not printed yet, about answers to requests that `send` has sent.
        self._answers: list[str] = []
        # The number of requests that `send` has sent.
        self._sent_count = 0
        # Uuid -> the number that is printed instead of this uuid.
        self._uuid_numbers: dict[str, int] = {}
        # Transactional id -> the producer with this id.
        self._producers: dict[str, TransactionalClient] = {}

    def play(self, commands: tuple[str, ...]) -> list[str]:
        """Carry out the commands of a step, and return the lines that they print.

        Raises: UnknownWord.
        """
        if commands[0] == GIVEN:
            for line in commands[1:]:
                self._carry_out(line)
            # Take the rows of the commands, and drop them: only the resulting state is printed.
            self._new_rows()
            lines = self._changes()
        else:
            lines = []
            for line in commands:
                lines += self._play(line)
        return [number_uuids(line, self._uuid_numbers) for line in lines]

    def close(self) -> None:
        """Stop the cluster. Raises: AssertionError if a node has failed."""
        if self._is_started:
            self._lab.runtime.run(self._lab.runtime.stop())
            assert self._lab.runtime.failures() == ()

    def _play(self, line: str) -> list[str]:
        """Carry out a command, and return all lines that it prints, in their order."""
        own_lines = self._carry_out(line)
        answers, self._answers = self._answers, []
        changes = self._changes() if self._is_started else []
        return [*self._new_rows(), *own_lines, *answers, *changes]

    def _carry_out(self, line: str) -> list[str]:
        """Carry out a command, and return its own lines.

        Rows of the trace and changes of the state are not among these lines.
        """
        command = read_command(line)
        if command.name == "cluster":
            self._lab = BrokerLab(small_cluster(command), seed=command.number("seed", 7))
            command.check_all_taken()
            return []
        carry_out = COMMANDS.get(command.name)
        if carry_out is None:
            raise UnknownWord(f"no command is called {command.name}")
        self._start()
        lines = self._lab.runtime.run(carry_out(self, command))
        command.check_all_taken()
        return lines

    def _start(self) -> None:
        """Start the cluster, unless an earlier command has started it."""
        if self._is_started:
            return
        self._is_started = True
        self._lab.runtime.run(self._lab.start())
        self._began_us = self._lab.runtime.now_us()
        # The rows and the state so far count as printed already.
        self._rows_printed = len(self._lab.rows)
        self._changes()

    # -- nodes, links, time --

    async def _crash(self, command: Command) -> list[str]:
        """`crash 2` kills broker-2. Its disk keeps all data."""
        await self._lab.runtime.crash(_node(command))
        return []

    async def _power_loss(self, command: Command) -> list[str]:
        """`power_loss 2` kills broker-2. Its disk loses all data that was not flushed."""
        await self._lab.runtime.power_loss(_node(command))
        return []

    async def _restart(self, command: Command) -> list[str]:
        """`restart 2` starts broker-2 again. With `empty_disk=yes` its disk is empty."""
        empty_disk = bool(command.settings.pop("empty_disk", ""))
        await self._lab.runtime.restart(_node(command), empty_disk=empty_disk)
        return []

    async def _shut_down(self, command: Command) -> list[str]:
        """`shut_down 2` asks broker-2 to stop, and does not wait until it has stopped."""
        await self._lab.runtime.shut_down(_node(command))
        return []

    async def _pause(self, command: Command) -> list[str]:
        """`pause 2` pauses the process of broker-2."""
        await self._lab.runtime.pause(_node(command))
        return []

    async def _resume(self, command: Command) -> list[str]:
        """`resume 2` lets a paused broker-2 go on."""
        await self._lab.runtime.resume(_node(command))
        return []

    async def _cut(self, command: Command) -> list[str]:
        """`cut broker-2 from controller-100,broker-0` cuts the links in both directions.

        With `to` instead of `from`, only the links from broker-2 to the other nodes are cut.
        """
        name, preposition, other_names = command.words
        node: tuple[NodeName, ...] = (NodeName(name),)
        others = tuple(NodeName(other) for other in other_names.split(","))
        directions = [(node, others)]
        if preposition == "from":
            directions.append((others, node))
        for sources, destinations in directions:
            rule = LinkRule(
                rule_id=f"cut-{len(self._rules)}",
                selector=Selector(
                    sources=sources,
                    destinations=destinations,
                    purposes=tuple(command.parts("purposes")),
                ),
                effect=Cut(),
            )
            self._rules.append(rule)
        await self._lab.runtime.set_link_rules(self._rules)
        return []

    async def _heal(self, _command: Command) -> list[str]:
        """`heal` ends all cuts."""
        self._rules = []
        await self._lab.runtime.set_link_rules([])
        return []

    async def _advance(self, command: Command) -> list[str]:
        """`advance 5s` lets 5 seconds pass."""
        await self._lab.seconds(float(command.words[0].removesuffix("s")))
        return []

    async def _until(self, command: Command) -> list[str]:
        """`until CONDITION` waits until a condition holds, and prints how long that took.

        The conditions are:

        - `leader orders-0 1`: broker 1 leads orders-0.
        - `isr orders-0 0,1`: the ISR of orders-0 has brokers 0 and 1.
        - `whole`: all replicas of all partitions are in sync.
        - `down NODE`: the node is down.
        """
        condition = _condition(command.words)
        begun_us = self._lab.runtime.now_us()
        await self._lab.until(condition, at_most_s=command.number("at_most", AT_MOST_S))
        return [self._after(begun_us)]

    # -- requests --

    async def _ask(self, command: Command) -> list[str]:
        """`ask 0 commit orders-0=41` sends a request to broker 0, and waits for the answer."""
        return await self._request(command)

    async def _send(self, command: Command) -> list[str]:
        """`send 0 commit orders-0=41` sends a request, and does not wait for the answer.

        The answer is printed by the command during which it arrives.
        """
        self._sent_count += 1
        number = self._sent_count
        request = self._request(command)

        async def keep_answer() -> None:
            first_line, *more_lines = await request
            self._answers += [f"#{number} {first_line}", *more_lines]

        self._lab.client.host.spawn(keep_answer(), name=f"send-{number}")
        # Let the new task run, so that it sends the request before the next command.
        await asyncio.sleep(0)
        return [f"#{number} is sent"]

    def _request(self, command: Command) -> Coroutine[Any, Any, list[str]]:
        """Return a coroutine that sends a request, and returns the lines of the answer."""
        # The first word is the broker. The other words are a command that describes the request.
        broker_id, name, *words = command.words
        request = Command(name, words, command.settings)
        version = request.settings.pop("version", None)
        body = read_broker_request(request)
        return self._answer(int(broker_id), body, None if version is None else int(version))

    async def _answer(self, broker_id: int, body: AnyRequest, version: int | None) -> list[str]:
        """Send a request, and return the lines of the answer, or a line about an error."""
        begun_us = self._lab.runtime.now_us()
        try:
            response = await self._lab.client.call(broker_id, body, api_version=version)
        except (Disconnected, RequestTimedOut) as error:
            return [f"broker-{broker_id} {self._after(begun_us)}: {type(error).__name__}"]
        name = type(response).__name__.removesuffix("Response")
        return message_lines(f"broker-{broker_id} {self._after(begun_us)}: {name}", response)

    async def _transaction(self, command: Command) -> list[str]:
        """`transaction tx-1 init 2` sends the InitProducerId of the producer tx-1 to broker 2.

        The next requests of a transaction are `add_offsets 2 GROUP`, `commit 0 GROUP 41` and
        `end 2 commit`. All requests except `commit` are repeated after a retriable error.
        """
        name, verb, broker, *words = command.words
        producer = self._producers.setdefault(name, TransactionalClient(self._lab, name))
        begun_us = self._lab.runtime.now_us()
        error = ErrorCode.NONE
        match verb, words:
            case "init", []:
                await producer.init(int(broker))
            case "add_offsets", [group_id]:
                error = await producer.add_offsets(int(broker), group_id)
            case "commit", [group_id, offset]:
                error = await producer.commit_offset(int(broker), group_id, int(offset))
            case "end", [outcome]:
                error = await producer.end(int(broker), is_commit=outcome == "commit")
            case _:
                raise UnknownWord(f"transaction {verb}?")
        return [f"{self._after(begun_us)}: {error.name}, epoch {producer.epoch}"]

    async def _stable_offset(self, command: Command) -> list[str]:
        """`stable_offset 0 GROUP` asks broker 0 for the committed offset of orders-0.

        The request is repeated until no open transaction has an offset for the partition.
        """
        broker, group_id = command.words
        begun_us = self._lab.runtime.now_us()
        offset = await stable_offset(self._lab, int(broker), group_id)
        return [f"{self._after(begun_us)}: {offset}"]

    # -- administrators --

    async def _move_leader(self, command: Command) -> list[str]:
        """`move_leader orders-0 2` lets broker 2 lead orders-0."""
        name, broker_id = command.words
        await self._lab.runtime.ask_as_admin(
            move_leader, read_partition(name), BrokerId(int(broker_id))
        )
        return []

    async def _remove_topics(self, command: Command) -> list[str]:
        """`remove_topics orders` deletes a topic as an administrator's tool does."""
        try:
            await self._lab.runtime.ask_as_admin(delete_topics, command.words)
        except TopicDeletionFailed as error:
            return [f"refused: {error}"]
        return []

    async def _disks(self, _command: Command) -> list[str]:
        """`disks` prints for each broker's disk which logs it has.

        `orders-0: 5 (3)` is a log of 5 batches, of which 3 are flushed.
        """
        lines = []
        for name, storage in sorted(self._lab.storages.items()):
            logs = [
                (partition, storage.log(partition)) for partition in sorted(storage.partitions())
            ]
            texts = (
                f"{partition}: {len(log)} ({log.flushed_length})"
                for partition, log in logs
                if len(log)
            )
            lines.append(f"disk of {name}: {len(logs)} logs; {', '.join(texts) or 'all empty'}")
        # The disk of the controller is of no interest.
        return [line for line in lines if "broker" in line]

    async def _log(self, command: Command) -> list[str]:
        """`log orders-0` prints for each disk the base offsets of the batches in this log.

        The command also prints how many of these batches are flushed.
        """
        partition = read_partition(command.words[0])
        lines = []
        for name, storage in sorted(self._lab.storages.items()):
            if partition in storage.partitions():
                log = storage.log(partition)
                offsets = ",".join(str(log.batch(index).base_offset) for index in range(len(log)))
                lines.append(f"on {name}: {offsets or 'nothing'}; {log.flushed_length} flushed")
        return lines

    # -- printed lines --

    def _seconds(self, time_us: int) -> str:
        """Return a time as seconds since the story began: `12.3 s`."""
        return f"{(time_us - self._began_us) / SECOND_US:.1f} s"

    def _after(self, begun_us: int) -> str:
        """Return the time since `begun_us`: `after 1.5 s`."""
        return f"after {(self._lab.runtime.now_us() - begun_us) / SECOND_US:.1f} s"

    def _new_rows(self) -> list[str]:
        """Return the lines of the rows that were written since the last call."""
        rows = self._lab.rows[self._rows_printed :]
        self._rows_printed = len(self._lab.rows)
        return [
            f"{self._seconds(row.time_us)} {_row_text(row)}"
            for row in rows
            if row.kind not in ROWS_LEFT_OUT
        ]

    def _changes(self) -> list[str]:
        """Return lines about the nodes, partitions and groups that have changed."""
        status = self._lab.runtime.run(self._lab.runtime.status())
        lines = dict(_status_lines(status))
        changed = [
            f"{name}: {text}" for name, text in lines.items() if self._status.get(name) != text
        ]
        gone = [f"{name} is gone" for name in self._status if name not in lines]
        self._status = lines
        return [*changed, *gone]


def _member_text(member: MemberStatus) -> str:
    assigned = ", ".join(map(str, member.assigned)) or "no partitions"
    where = "no coordinator" if member.coordinator is None else f"broker-{member.coordinator}"
    return f"{member.state}, generation {member.generation}, {assigned}; asks {where}"


def _node(command: Command) -> NodeName:
    """Return the node that the only word of a command names; `2` is broker-2."""
    (name,) = command.words
    return broker_name(int(name)) if name.isdigit() else NodeName(name)


def _condition(words: list[str]) -> Callable[[ClusterStatus], bool]:
    """Return the condition that the words after `until` describe."""
    match words:
        case ["leader", name, broker_id]:
            partition = read_partition(name)
            return lambda status: status.partitions[partition].leader == int(broker_id)
        case ["isr", name, brokers]:
            partition = read_partition(name)
            isr = {int(broker_id) for broker_id in brokers.split(",")}
            return lambda status: set(status.partitions[partition].isr) == isr
        case ["whole"]:
            return lambda status: all(
                len(partition_status.isr) == len(partition_status.replicas)
                for partition_status in status.partitions.values()
            )
        case ["down", name]:
            return lambda status: status.nodes[NodeName(name)].value == "down"
        case _:
            raise UnknownWord(f"until what? {' '.join(words)}")


def _row_text(row: TraceRow) -> str:
    """Return a row of the trace as text.

    For example, this is the row of a new leader:
    `broker-1 became_leader partition=orders-0 leader_epoch=2 offset=5`. If the row has an error, a
    cause or a detail, these follow in the same form.
    """
    columns = [f"{name}={getattr(row, name)}" for name in COLUMNS if getattr(row, name) is not None]
    detail: dict[str, object] = json.loads(row.detail) if row.detail else {}
    if row.error not in (None, "NONE"):
        columns.append(f"error={row.error}")
    if row.cause is not None:
        columns.append(f"cause={row.cause}")
    columns += [f"{name}={json.dumps(value)}" for name, value in detail.items()]
    return " ".join((row.node, row.kind, *columns))


def _status_lines(status: ClusterStatus) -> Iterable[tuple[str, str]]:
    """Yield the name and the state of each node, partition, group and member."""
    for node, state in status.nodes.items():
        yield node, state.value
    for partition, partition_status in status.partitions.items():
        isr = ",".join(str(broker_id) for broker_id in partition_status.isr)
        leader = f"leader {partition_status.leader} in epoch {partition_status.leader_epoch}"
        yield str(partition), f"{leader}, isr {isr}"
    for group_id, copies in sorted(status.groups.items()):
        # `copies` has two entries if two brokers consider themselves the group's coordinator.
        for group in copies:
            members = ", ".join(group.members) or "no members"
            name = f"group {group_id!r} at broker-{group.coordinator}"
            yield name, f"{group.state}, generation {group.generation}, {members}"
    for member_name, member in status.members.items():
        yield f"member {member_name}", _member_text(member)


COMMANDS: dict[str, Callable[[ClusterPlayer, Command], Coroutine[Any, Any, list[str]]]] = {
    "crash": ClusterPlayer._crash,
    "power_loss": ClusterPlayer._power_loss,
    "restart": ClusterPlayer._restart,
    "shut_down": ClusterPlayer._shut_down,
    "pause": ClusterPlayer._pause,
    "resume": ClusterPlayer._resume,
    "cut": ClusterPlayer._cut,
    "heal": ClusterPlayer._heal,
    "advance": ClusterPlayer._advance,
    "until": ClusterPlayer._until,
    "ask": ClusterPlayer._ask,
    "send": ClusterPlayer._send,
    "transaction": ClusterPlayer._transaction,
    "stable_offset": ClusterPlayer._stable_offset,
    "move_leader": ClusterPlayer._move_leader,
    "remove_topics": ClusterPlayer._remove_topics,
    "disks": ClusterPlayer._disks,
    "log": ClusterPlayer._log,
}
"""The name of a command -> the method that carries it out."""
