"""Plays the stories of a transaction coordinator: each command prints its results.

A story is a list of steps, each with commands and their printed results. A command prints, in this
order:

1. the time, if it has moved: `@500` is 500 ms after the beginning;
2. the replies, appends, markers and trace events of each input;
3. the transactional ids whose state changed;
4. all timers, if one changed.

A step that begins with `given` prints only the state after the step, that is, the points 3 and 4.

Markers are the records that end a transaction in its partitions. A producer has a transactional id,
which it keeps through a restart, a producer id, and the producer epoch, which every new start
increases.
"""

from collections.abc import Callable

from coordinator.transaction.effects import SendMarkers, TransactionResult
from coordinator.transaction.metadata import TransactionMetadata
from protocol.config import BrokerConfig
from protocol.effects import Append
from protocol.errors import ErrorCode
from protocol.messages.transaction import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
    EndTxnRequest,
    InitProducerIdRequest,
)
from protocol.records.transaction import decode_transaction_key, decode_transaction_value
from tests.support.harness.transaction_harness import EPOCH_US, TIMEOUT_MS, TX, TransactionHarness
from tests.support.transcripts.coordinator_player import GIVEN, take_settings
from tests.support.transcripts.printing import INDENT, message_lines, time_text, trace_text
from tests.support.transcripts.words import Command, UnknownWord, read_command, read_partition


class _Printing(TransactionHarness):
    """A harness that keeps a line of each reply, append, marker and trace event."""

    def __init__(self, **settings: object) -> None:
        # The harness's `__init__` carries out Results already, and `_carry_out` uses these fields.
        self.lines: list[str] = []
        self._printed_us = EPOCH_US
        super().__init__(**settings)  # type: ignore[arg-type]  # settings of the harness

    def _carry_out(self, result: TransactionResult) -> None:
        """Carry out a Result; keep a line of each effect, and of the time if it has moved."""
        if self.now_us != self._printed_us:
            self._printed_us = self.now_us
            self.lines.append(f"@{(self.now_us - EPOCH_US) / 1_000:g}")
        super()._carry_out(result)
        for reply in result.replies:
            name = type(reply.response).__name__.removesuffix("Response")
            self.lines += message_lines(f"#{reply.request_id} {name}", reply.response)
        for append in result.appends:
            self.lines += _append_lines(append, is_held=append in self.held)
        self.lines += [_markers_text(markers) for markers in result.markers]
        self.lines += [trace_text(event) for event in result.trace]
        if result.wants_producer_ids:
            self.lines.append("asks for producer ids")

    def take_lines(self) -> list[str]:
        """Return the lines since the last call."""
        lines, self.lines = self.lines, []
        return lines


class TransactionPlayer:
    """Plays one story on a coordinator; keeps the printed state, to print only changes."""

    def __init__(self) -> None:
        self._h = _Printing()
        # The lines of the ids and of the timers, as they were last printed.
        self._shown: list[str] = []
        self._timers: list[str] = []

    def play(self, commands: tuple[str, ...]) -> list[str]:
        """Carry out the commands of a step and return their results.

        Raises: UnknownWord if a command or one of its words is not known.
        """
        if commands[0] == GIVEN:
            for line in commands[1:]:
                self._carry_out(line)
            self._h.take_lines()
            return self._changes()
        return [text for line in commands for text in (*self._carry_out(line), *self._changes())]

    def close(self) -> None:
        """Check the coordinator, as after every input."""
        self._h.coordinator.check_invariants()

    def _carry_out(self, line: str) -> list[str]:
        """Execute a command, and return its lines.

        A command that returns None has no lines of its own. Then these are the harness's lines.
        """
        command = read_command(line)
        carry_out = COMMANDS.get(command.name)
        if carry_out is None:
            raise UnknownWord(f"no command is called {command.name}")
        lines = carry_out(self, command)
        command.check_all_taken()
        return self._h.take_lines() if lines is None else lines

    def _transactions(self, command: Command) -> list[str]:
        """`transactions transaction.max.timeout.ms=1000`: begin with a new coordinator.

        It has one partition of `__transaction_state`, in which the transactions are stored.
        """
        self._h = _Printing(config=take_settings(BrokerConfig, command.settings))
        self._h.take_lines()
        return []

    # -- requests --

    def _init(self, command: Command) -> None:
        """`init`, `init tx-2`: request a producer id and an epoch for a transactional id.

        `init -` names no transactional id.
        """
        (name,) = command.words or [TX]
        self._submit(
            command,
            InitProducerIdRequest(
                transactional_id=None if name == "-" else name,
                transaction_timeout_ms=command.number("timeout", TIMEOUT_MS),
                producer_id=command.number("producer", -1),
                producer_epoch=command.number("epoch", -1),
            ),
        )

    def _add_offsets(self, command: Command) -> None:
        """`add_offsets 0 1`: add a group's offsets to the transaction of producer 0 in epoch 1."""
        producer_id, epoch = command.words
        self._submit(
            command,
            AddOffsetsToTxnRequest(
                transactional_id=command.text("tx", TX),
                producer_id=int(producer_id),
                producer_epoch=int(epoch),
                group_id=command.text("group", "group"),
            ),
        )

    def _add_partitions(self, command: Command) -> None:
        """`add_partitions 0 1 out-1 out-2`: add partitions, for producer 0 in epoch 1.

        With `verify=yes` the request only asks whether the transaction has them.
        """
        producer_id, epoch, *names = command.words
        topics: dict[str, tuple[int, ...]] = {}
        for partition in map(read_partition, names):
            topics[partition.topic] = (*topics.get(partition.topic, ()), partition.partition)
        transaction = AddPartitionsToTxnTransaction(
            transactional_id=command.text("tx", TX),
            producer_id=int(producer_id),
            producer_epoch=int(epoch),
            verify_only=bool(command.settings.pop("verify", "")),
            topics=tuple(
                AddPartitionsToTxnTopic(name=name, partitions=indexes)
                for name, indexes in topics.items()
            ),
        )
        self._submit(command, AddPartitionsToTxnRequest(transactions=(transaction,)))

    def _end(self, command: Command) -> None:
        """`end 0 1 commit` (or `abort`): end the transaction of producer 0 in epoch 1."""
        producer_id, epoch, outcome = command.words
        self._submit(
            command,
            EndTxnRequest(
                transactional_id=command.text("tx", TX),
                producer_id=int(producer_id),
                producer_epoch=int(epoch),
                committed={"commit": True, "abort": False}[outcome],
            ),
        )

    def _submit(
        self,
        command: Command,
        body: InitProducerIdRequest
        | AddOffsetsToTxnRequest
        | AddPartitionsToTxnRequest
        | EndTxnRequest,
    ) -> None:
        """Send a request. If it has no answer yet, print so first: `#3 waits` for request 3."""
        version = command.settings.pop("version", None)
        request_id = self._h.submit(body, version=None if version is None else int(version))
        if request_id not in self._h.responses:
            self._h.lines.insert(0, f"#{request_id} waits")

    # -- everything else --

    def _advance(self, command: Command) -> list[str]:
        """`advance 500`: 500 ms pass."""
        self._h.advance(int(command.words[0]))
        lines, time_line = self._h.take_lines(), f"@{(self._h.now_us - EPOCH_US) / 1_000:g}"
        return lines if time_line in lines else [*lines, time_line]

    def _hold(self, command: Command) -> None:
        """`hold appends`, `hold markers`: from now on they wait for their outcome.

        `hold producer_ids`: from now on requests for a block of producer ids are refused.
        """
        self._set_holding(command.words[0], is_holding=True)

    def _release(self, command: Command) -> None:
        """`release appends`: end `hold appends`; what is already held stays held."""
        self._set_holding(command.words[0], is_holding=False)

    def _set_holding(self, what: str, *, is_holding: bool) -> None:
        match what:
            case "appends":
                self._h.holds_appends = is_holding
            case "markers":
                self._h.holds_markers = is_holding
            case "producer_ids":
                self._h.gives_producer_ids = not is_holding
            case _:
                raise UnknownWord(f"hold what? {what}")

    def _complete(self, command: Command) -> None:
        """`complete`, `complete NOT_COORDINATOR`: end the oldest held append."""
        self._h.complete(ErrorCode[(command.words or ["NONE"])[0]])

    def _answer_markers(self, command: Command) -> None:
        """`answer_markers`, `answer_markers NOT_COORDINATOR`: end the oldest held markers.

        All partitions have the same outcome.
        """
        self._h.answer_markers(ErrorCode[(command.words or ["NONE"])[0]])

    def _load(self, command: Command) -> None:
        """`load epoch=1`: load the partition from its log."""
        self._h.load(command.number("epoch", 0))

    def _unload(self, _command: Command) -> None:
        """Unload the partition: drop its transactions from memory."""
        self._h.coordinator.unload(0)

    def _crash(self, command: Command) -> None:
        """Continue with another broker, which loads this one's log."""
        crashed = self._h
        # The new broker gets producer ids from 1,000 on, which the first broker never gets.
        self._h = _Printing(
            config=crashed.config, log=list(crashed.log), epoch=None, first_producer_id=1_000
        )
        self._h.take_lines()
        self._h.now_us = crashed.now_us
        self._h.holds_markers = crashed.holds_markers
        self._h.load(command.number("epoch", 1))

    # -- state --

    def _changes(self) -> list[str]:
        """Return the lines of the ids and timers that changed since the last call."""
        coordinator = self._h.coordinator
        states = (coordinator.metadata(name) for name in self._names())
        printed = [_metadata_text(state) for state in states if state is not None]
        lines = [line for line in printed if line not in self._shown]
        # The first word of a line is the transactional id.
        names = {line.split()[0] for line in printed}
        gone = (line.split()[0] for line in self._shown if line.split()[0] not in names)
        lines += [f"{name} is gone" for name in gone]
        timers = [
            f"{key} @{(deadline_us - EPOCH_US) / 1_000:g}"
            for key, deadline_us in self._h.deadlines()
        ]
        if timers != self._timers:
            lines.append(f"timers: {', '.join(timers) or 'none'}")
        self._shown, self._timers = printed, timers
        return lines

    def _names(self) -> list[str]:
        """Return TX, and every transactional id in the log or in the trace."""
        logged = (decode_transaction_key(record.key or b"") for record in self._h.records())
        details = (event.detail or {} for event in self._h.trace)
        traced = (
            str(detail["transactional_id"]) for detail in details if "transactional_id" in detail
        )
        return sorted({TX, *(name for name in logged if name), *traced})


def _append_lines(append: Append, *, is_held: bool) -> list[str]:
    """Return an append and its records."""
    held = " held" if is_held else ""
    lines = [f"append to __transaction_state-{append.partition}{held}"]
    for record in append.records:
        name = decode_transaction_key(record.key or b"")
        value = record.value
        if value is None:
            lines.append(f"{INDENT}{name} tombstone")
            continue
        printed = message_lines(f"{name}", decode_transaction_value(value))
        lines += [INDENT + line for line in printed]
    return lines


def _markers_text(markers: SendMarkers) -> str:
    """Return the line of markers that the coordinator sends: their outcome and partitions."""
    outcome = "commit" if markers.is_commit else "abort"
    names = ",".join(map(str, markers.partitions))
    again = " again" if markers.is_retry else ""
    return (
        f"markers{again} of {markers.transactional_id}: {outcome} of producer "
        f"{markers.producer_id}.{markers.producer_epoch} in {names}, "
        f"decided in epoch {markers.coordinator_epoch}"
    )


def _metadata_text(metadata: TransactionMetadata) -> str:
    """Return the state of a transactional id, which begins with the id."""
    pending = "" if metadata.pending_state is None else f" pending={metadata.pending_state.value}"
    failed = " failed_epoch_fence" if metadata.has_failed_epoch_fence else ""
    partitions = ",".join(map(str, metadata.topic_partitions)) or "none"
    words = (
        f"{metadata.transactional_id} {metadata.state.value}{pending}",
        f"producer={metadata.producer_id}.{metadata.producer_epoch}",
        f"last={metadata.last_producer_id}.{metadata.last_producer_epoch}",
        f"timeout={metadata.txn_timeout_ms} partitions={partitions}",
        f"started={time_text(metadata.txn_start_timestamp_ms)}",
        f"updated={time_text(metadata.txn_last_update_timestamp_ms)}{failed}",
    )
    return " ".join(words)


COMMANDS: dict[str, Callable[[TransactionPlayer, Command], list[str] | None]] = {
    "transactions": TransactionPlayer._transactions,
    "init": TransactionPlayer._init,
    "add_offsets": TransactionPlayer._add_offsets,
    "add_partitions": TransactionPlayer._add_partitions,
    "end": TransactionPlayer._end,
    "advance": TransactionPlayer._advance,
    "hold": TransactionPlayer._hold,
    "release": TransactionPlayer._release,
    "complete": TransactionPlayer._complete,
    "answer_markers": TransactionPlayer._answer_markers,
    "load": TransactionPlayer._load,
    "unload": TransactionPlayer._unload,
    "crash": TransactionPlayer._crash,
}
"""Commands about a transaction coordinator."""
