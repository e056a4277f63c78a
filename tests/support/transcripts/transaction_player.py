"""Play the stories of a transcript on a transaction coordinator.

A transcript is a text file of commands and their results. A command prints, in this order:

1. the time, if it has passed: `@500` is 500 ms after the story began;
2. replies, appends, trace events, and markers (the records that end a transaction);
3. the transactional ids whose state has changed;
4. all timers, if one of them has changed.

A step is a group of commands. If a step begins with the line `given`, only the resulting state (3
and 4) is printed for the step.
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
    """A coordinator that collects a line for each reply, append, marker and trace event."""

    def __init__(self, **settings: object) -> None:
        # These fields come first, because `_carry_out` is already called by `super().__init__`.
        self.lines: list[str] = []
        # The time in the latest line about time. A story begins at EPOCH_US.
        self._printed_us = EPOCH_US
        super().__init__(**settings)  # type: ignore[arg-type]  # settings of the harness

    def _carry_out(self, result: TransactionResult) -> None:
        """Do what a Result says, and add lines about it."""
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
    """Plays one story. It prints only changes of the state, so it keeps what it has printed."""

    def __init__(self) -> None:
        # The harness of the present coordinator.
        self._harness = _Printing()
        # Transactional id -> the line that was printed last about it.
        self._shown: dict[str, str] = {}
        # The timers that were printed last.
        self._timers: list[str] = []

    def play(self, commands: tuple[str, ...]) -> list[str]:
        """Carry out the commands of a step, and return the lines that they print.

        Raises: UnknownWord.
        """
        if commands[0] == GIVEN:
            for line in commands[1:]:
                self._carry_out(line)
            self._harness.take_lines()
            return self._changes()
        lines: list[str] = []
        for line in commands:
            lines += self._carry_out(line)
            lines += self._changes()
        return lines

    def close(self) -> None:
        """Check the invariants of the coordinator a last time."""
        self._harness.coordinator.check_invariants()

    def _carry_out(self, line: str) -> list[str]:
        """Carry out a command, and return the lines that it prints.

        If the method of the command returns None, these are the lines that the harness has
        collected.
        """
        command = read_command(line)
        carry_out = COMMANDS.get(command.name)
        if carry_out is None:
            raise UnknownWord(f"no command is called {command.name}")
        lines = carry_out(self, command)
        command.check_all_taken()
        return self._harness.take_lines() if lines is None else lines

    def _transactions(self, command: Command) -> list[str]:
        """`transactions transaction.max.timeout.ms=1000` begins with a new coordinator.

        `__transaction_state` has one partition, which the new coordinator has loaded.
        """
        self._harness = _Printing(config=take_settings(BrokerConfig, command.settings))
        self._harness.take_lines()
        return []

    # -- requests --

    def _init(self, command: Command) -> None:
        """`init tx-2` asks for a producer id and an epoch for the transactional id tx-2.

        `init` alone asks for the transactional id `tx`, which most stories use. `init -` is the
        request of a producer without a transactional id.
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
        """`add_offsets 0 1` adds a group's offsets to the transaction of producer 0 in epoch 1."""
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
        """`add_partitions 0 1 out-1 out-2` adds partitions to the transaction of producer 0.

        The second word is the producer's epoch. With `verify=yes` the request only asks whether the
        transaction has these partitions.
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
        """`end 0 1 commit` or `end 0 1 abort` ends the transaction of producer 0 in epoch 1."""
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
        """Send a request. If it gets no answer at once, the first printed line is `#3 waits`."""
        version = command.settings.pop("version", None)
        request_id = self._harness.submit(body, version=None if version is None else int(version))
        if request_id not in self._harness.responses:
            self._harness.lines.insert(0, f"#{request_id} waits")

    # -- everything else --

    def _advance(self, command: Command) -> list[str]:
        """`advance 500` lets 500 ms pass."""
        self._harness.advance(int(command.words[0]))
        lines = self._harness.take_lines()
        time_line = f"@{(self._harness.now_us - EPOCH_US) / 1_000:g}"
        # If a timer has fired at the present time, the time was printed already.
        return lines if time_line in lines else [*lines, time_line]

    def _hold(self, command: Command) -> None:
        """`hold appends` lets each append wait for the command `complete`.

        `hold markers` lets markers wait for the command `answer_markers`. After `hold producer_ids`
        the coordinator gets no more producer ids.
        """
        self._set_holding(command.words[0], is_holding=True)

    def _release(self, command: Command) -> None:
        """`release appends` ends `hold appends`. Appends that are already held stay held."""
        self._set_holding(command.words[0], is_holding=False)

    def _set_holding(self, what: str, *, is_holding: bool) -> None:
        match what:
            case "appends":
                self._harness.holds_appends = is_holding
            case "markers":
                self._harness.holds_markers = is_holding
            case "producer_ids":
                self._harness.gives_producer_ids = not is_holding
            case _:
                raise UnknownWord(f"hold what? {what}")

    def _complete(self, command: Command) -> None:
        """`complete` lets the oldest held append succeed.

        `complete NOT_COORDINATOR` lets this append fail with the error NOT_COORDINATOR.
        """
        self._harness.complete(_error(command))

    def _answer_markers(self, command: Command) -> None:
        """`answer_markers` lets the oldest held markers succeed in all partitions.

        `answer_markers NOT_COORDINATOR` lets these markers fail with the error NOT_COORDINATOR.
        """
        self._harness.answer_markers(_error(command))

    def _load(self, command: Command) -> None:
        """`load epoch=1` loads the partition from its log, in leader epoch 1."""
        self._harness.load(command.number("epoch", 0))

    def _unload(self, _command: Command) -> None:
        """`unload` drops the transactions of the partition from memory."""
        self._harness.coordinator.unload(0)

    def _crash(self, command: Command) -> None:
        """`crash` goes on with the coordinator of another broker, which loads the same log."""
        crashed = self._harness
        # No two coordinators get the same producer ids. 1,000 is far above the earlier ids.
        self._harness = _Printing(
            config=crashed.config, log=list(crashed.log), epoch=None, first_producer_id=1_000
        )
        self._harness.take_lines()
        self._harness.now_us = crashed.now_us
        self._harness.holds_markers = crashed.holds_markers
        self._harness.load(command.number("epoch", 1))

    # -- state --

    def _changes(self) -> list[str]:
        """Return lines about transactional ids and timers that have changed since the last call."""
        coordinator = self._harness.coordinator
        states = {name: coordinator.metadata(name) for name in self._names()}
        present = {
            name: _metadata_text(state) for name, state in states.items() if state is not None
        }
        lines = [line for name, line in present.items() if self._shown.get(name) != line]
        lines += [f"{name} is gone" for name in self._shown if name not in present]
        timers = [
            f"{key} @{(deadline_us - EPOCH_US) / 1_000:g}"
            for key, deadline_us in self._harness.deadlines()
        ]
        if timers != self._timers:
            lines.append(f"timers: {', '.join(timers) or 'none'}")
        self._shown, self._timers = present, timers
        return lines

    def _names(self) -> list[str]:
        """Return all transactional ids that the coordinator may know.

        These are TX, the ids in the log and the ids in the trace.
        """
        logged = (decode_transaction_key(record.key or b"") for record in self._harness.records())
        details = (event.detail or {} for event in self._harness.trace)
        traced = (
            str(detail["transactional_id"]) for detail in details if "transactional_id" in detail
        )
        return sorted({TX, *(name for name in logged if name), *traced})


def _error(command: Command) -> ErrorCode:
    """Return the error that the command's only word names; NONE if the command has no word."""
    (name,) = command.words or ["NONE"]
    return ErrorCode[name]


def _append_lines(append: Append, *, is_held: bool) -> list[str]:
    """Return a line about an append, and the lines of each of its records."""
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
    """Return a line about markers that the coordinator sends to the leaders of partitions."""
    outcome = "commit" if markers.is_commit else "abort"
    names = ",".join(map(str, markers.partitions))
    again = " again" if markers.is_retry else ""
    return (
        f"markers{again} of {markers.transactional_id}: {outcome} of producer "
        f"{markers.producer_id}.{markers.producer_epoch} in {names}, "
        f"decided in epoch {markers.coordinator_epoch}"
    )


def _metadata_text(metadata: TransactionMetadata) -> str:
    """Return a line about a transactional id. It begins with the id."""
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
"""The name of a command -> the method that carries it out."""
