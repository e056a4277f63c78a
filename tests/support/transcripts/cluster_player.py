"""Plays the stories of a small cluster in virtual time: three brokers, a controller, a client.

A story is a list of steps, each with commands and their printed results. Virtual time is a
simulated clock. A command prints:

1. the trace rows (recorded events) about leaders, logs and groups, each with its time;
2. the answers that the client got, with their durations;
3. the nodes, partitions and groups that changed.

Times are seconds since the story began, rounded to a tenth: shorter times are of no interest here.

Terms: the ISR are the in-sync replicas of a partition. The leader epoch counts its leaders. The
generation counts a group's rebalances.
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
"""Kinds of rows that are not printed: they are so many that nobody would see the other rows."""
COLUMNS = ("peer", "group", "member", "partition", "generation", "leader_epoch", "offset")
"""Columns of a row that are printed."""
AT_MOST_S = 30
"""Default of the time after which `until` fails, in seconds."""


class ClusterPlayer:
    """Plays one story on a cluster of its own; keeps the printed state, to print only changes."""

    def __init__(self) -> None:
        self._lab = BrokerLab(broker_cluster())
        self._is_started = False
        self._began_us = 0
        self._rows_printed = 0
        self._status: dict[str, str] = {}  # lines of the status as last printed, by name
        self._rules: list[LinkRule] = []
        self._answers: list[str] = []  # lines of answers to `send` that are not printed yet
        self._sent = 0  # number of requests of `send`
        self._numbers: dict[str, int] = {}  # by uuid
        self._producers: dict[str, TransactionalClient] = {}

    def play(self, commands: tuple[str, ...]) -> list[str]:
        """Carry out the commands of a step and return their results.

        Raises: UnknownWord.
        """
        if commands[0] == GIVEN:
            for line in commands[1:]:
                self._carry_out(line)
            self._new_rows()
            lines = self._changes()
        else:
            lines = [text for line in commands for text in self._play(line)]
        return [number_uuids(line, self._numbers) for line in lines]

    def close(self) -> None:
        """Stop the cluster. Raises: AssertionError if a node failed."""
        if self._is_started:
            self._lab.runtime.run(self._lab.runtime.stop())
            assert self._lab.runtime.failures() == ()

    def _play(self, line: str) -> list[str]:
        """Carry out a command; return its rows, its own lines, answers and changes, in order."""
        lines = self._carry_out(line)
        answers, self._answers = self._answers, []
        return [*self._new_rows(), *lines, *answers, *(self._changes() if self._is_started else [])]

    def _carry_out(self, line: str) -> list[str]:
        """Execute a command and return the lines that the command itself prints."""
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
        """Start the cluster before the first command, as BrokerLab does."""
        if self._is_started:
            return
        self._is_started = True
        self._lab.runtime.run(self._lab.start())
        self._began_us = self._lab.runtime.now_us()
        # The rows and the state of the start count as printed.
        self._rows_printed = len(self._lab.rows)
        self._changes()

    # -- nodes, links, time --

    async def _crash(self, command: Command) -> list[str]:
        await self._lab.runtime.crash(_node(command))
        return []

    async def _power_loss(self, command: Command) -> list[str]:
        """End a broker by a power loss, in which its disk loses all data that was not flushed."""
        await self._lab.runtime.power_loss(_node(command))
        return []

    async def _restart(self, command: Command) -> list[str]:
        empty_disk = bool(command.settings.pop("empty_disk", ""))
        await self._lab.runtime.restart(_node(command), empty_disk=empty_disk)
        return []

    async def _shut_down(self, command: Command) -> list[str]:
        await self._lab.runtime.shut_down(_node(command))
        return []

    async def _pause(self, command: Command) -> list[str]:
        await self._lab.runtime.pause(_node(command))
        return []

    async def _resume(self, command: Command) -> list[str]:
        await self._lab.runtime.resume(_node(command))
        return []

    async def _cut(self, command: Command) -> list[str]:
        """`cut broker-2 from controller-100,broker-0`: cut the links in both directions.

        With `to` instead of `from`, only the direction from broker-2 to the others is cut.
        """
        source, way, others = command.words
        destinations = tuple(NodeName(name) for name in others.split(","))
        # Pairs of sources and destinations; with `from` a second pair has the other direction.
        ways: list[tuple[tuple[NodeName, ...], ...]] = [((NodeName(source),), destinations)]
        if way == "from":
            ways.append((destinations, (NodeName(source),)))
        for sources, ends in ways:
            rule = LinkRule(
                rule_id=f"cut-{len(self._rules)}",
                selector=Selector(
                    sources=sources, destinations=ends, purposes=tuple(command.parts("purposes"))
                ),
                effect=Cut(),
            )
            self._rules.append(rule)
        await self._lab.runtime.set_link_rules(self._rules)
        return []

    async def _heal(self, _command: Command) -> list[str]:
        """Remove all cuts."""
        self._rules = []
        await self._lab.runtime.set_link_rules([])
        return []

    async def _advance(self, command: Command) -> list[str]:
        """`advance 5s`: let 5 seconds pass."""
        await self._lab.seconds(float(command.words[0].removesuffix("s")))
        return []

    async def _until(self, command: Command) -> list[str]:
        """Wait until a condition holds; print the time that it took.

        `until leader orders-0 1`: broker 1 leads orders-0. `until isr orders-0 0,1`: its ISR are
        brokers 0 and 1. `until whole`: all replicas of all partitions are in sync. `until down
        NODE`: the node is down.
        """
        condition = _condition(command.words)
        begun_us = self._lab.runtime.now_us()
        await self._lab.until(condition, at_most_s=command.number("at_most", AT_MOST_S))
        return [self._after(begun_us)]

    # -- requests --

    async def _ask(self, command: Command) -> list[str]:
        """`ask 0 commit orders-0=41`: send a request, and wait for its answer."""
        return await self._request(command)

    async def _send(self, command: Command) -> list[str]:
        """`send 0 commit orders-0=41`: send a request without waiting for its answer.

        The answer is printed after the command during which it arrives.
        """
        self._sent += 1
        number, send = self._sent, self._request(command)

        async def keep_answer() -> None:
            first, *more = await send
            self._answers += [f"#{number} {first}", *more]

        self._lab.client.host.spawn(keep_answer(), name=f"send-{number}")
        # Let the task run once, so that it sends the request before the next command.
        await asyncio.sleep(0)
        return [f"#{number} is sent"]

    def _request(self, command: Command) -> Coroutine[Any, Any, list[str]]:
        """Return a coroutine that sends the request, and returns the lines of its answer."""
        # The words of the command are the broker and a command for the request itself.
        broker_id, name, *words = command.words
        request = Command(name, words, command.settings)
        version = request.settings.pop("version", None)
        body = read_broker_request(request)
        return self._answer(int(broker_id), body, None if version is None else int(version))

    async def _answer(self, broker_id: int, body: AnyRequest, version: int | None) -> list[str]:
        begun_us = self._lab.runtime.now_us()
        try:
            response = await self._lab.client.call(broker_id, body, api_version=version)
        except (Disconnected, RequestTimedOut) as error:
            return [f"broker-{broker_id} {self._after(begun_us)}: {type(error).__name__}"]
        name = type(response).__name__.removesuffix("Response")
        return message_lines(f"broker-{broker_id} {self._after(begun_us)}: {name}", response)

    async def _transaction(self, command: Command) -> list[str]:
        """`transaction tx-1 init 2`: send a request of the producer tx-1 to broker 2.

        After `init` come `add_offsets 2 GROUP`, `commit 0 GROUP 41` and `end 2 commit`. All but
        `commit` repeat their request after a retriable error.
        """
        name, verb, broker, *words = command.words
        producer = self._producers.setdefault(name, TransactionalClient(self._lab, name))
        begun_us, error = self._lab.runtime.now_us(), ErrorCode.NONE
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
        """`stable_offset 0 GROUP`: request the committed offset of orders-0 from broker 0.

        The request is repeated until no open transaction has an offset for the partition.
        """
        broker, group_id = command.words
        begun_us = self._lab.runtime.now_us()
        offset = await stable_offset(self._lab, int(broker), group_id)
        return [f"{self._after(begun_us)}: {offset}"]

    # -- administrators --

    async def _move_leader(self, command: Command) -> list[str]:
        """`move_leader orders-0 2`: let broker 2 lead orders-0."""
        name, broker_id = command.words
        await self._lab.runtime.ask_as_admin(
            move_leader, read_partition(name), BrokerId(int(broker_id))
        )
        return []

    async def _remove_topics(self, command: Command) -> list[str]:
        try:
            await self._lab.runtime.ask_as_admin(delete_topics, command.words)
        except TopicDeletionFailed as error:
            return [f"refused: {error}"]
        return []

    async def _disks(self, _command: Command) -> list[str]:
        """Print the number of batches of each log on each disk, and in brackets of flushed ones."""
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
        return [line for line in lines if "broker" in line]  # without the controller's disk

    async def _log(self, command: Command) -> list[str]:
        """`log orders-0`: print the base offsets of its batches on each disk, and the flushed ones.

        Of the flushed batches only the number is printed.
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
        return f"{(time_us - self._began_us) / SECOND_US:.1f} s"

    def _after(self, begun_us: int) -> str:
        return f"after {(self._lab.runtime.now_us() - begun_us) / SECOND_US:.1f} s"

    def _new_rows(self) -> list[str]:
        """Return the lines of the rows since the last call."""
        rows = self._lab.rows[self._rows_printed :]
        self._rows_printed = len(self._lab.rows)
        return [
            f"{self._seconds(row.time_us)} {_row_text(row)}"
            for row in rows
            if row.kind not in ROWS_LEFT_OUT
        ]

    def _changes(self) -> list[str]:
        """Return the lines of nodes, partitions and groups that have changed."""
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
    """Return the node that the only word names: `2` is broker-2."""
    (name,) = command.words
    return broker_name(int(name)) if name.isdigit() else NodeName(name)


def _condition(words: list[str]) -> Callable[[ClusterStatus], bool]:
    """Return the condition that the words of `until` describe."""
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
    """Return the line of a row: node, kind, COLUMNS, and the fields of its detail."""
    columns = [f"{name}={getattr(row, name)}" for name in COLUMNS if getattr(row, name) is not None]
    detail: dict[str, object] = json.loads(row.detail) if row.detail else {}
    columns += [f"error={row.error}"] if row.error not in (None, "NONE") else []
    columns += [f"cause={row.cause}"] if row.cause is not None else []
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
        # If two brokers both consider themselves leader of its partition, a group has two copies.
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
"""Commands about a cluster."""
