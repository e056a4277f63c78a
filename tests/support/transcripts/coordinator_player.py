"""Play the stories of a transcript on a group coordinator.

A transcript is a text file of commands and their results. A command prints, in this order:

1. the time, if it has passed: `@500` is 500 ms after the story began;
2. replies, appends and trace events;
3. the groups that have changed;
4. all timers, if one of them has changed;
5. all partitions of `__consumer_offsets`, if one of them was loaded or unloaded.

A step is a group of commands. If a step begins with the line `given`, only the resulting state (3
to 5) is printed for the step. Another story shows how the coordinator gets into this state.
"""

from collections.abc import Callable, Iterator
from textwrap import wrap
from typing import TypeVar

import msgspec

from coordinator.coordinator import LoadIgnored
from coordinator.states import GroupState
from protocol.config import BrokerConfig, Guards, JavaSwitches
from protocol.errors import ErrorCode
from protocol.ids import TopicPartition
from tests.support.harness.coordinator_harness import EPOCH_US
from tests.support.harness.kafka_bench import KafkaBench
from tests.support.transcripts.group_requests import read_request
from tests.support.transcripts.printing import (
    INDENT,
    WIDTH,
    group_lines,
    group_name,
    value_text,
)
from tests.support.transcripts.printing_coordinator import PrintingBench, PrintingCoordinator
from tests.support.transcripts.words import Command, UnknownWord, read_command, read_partition

ConfigT = TypeVar("ConfigT", bound=msgspec.Struct)
NEW_CLIENT_ID = "client"
GIVEN = "given"
"""If this is the first line of a step, only the resulting state is printed."""


class CoordinatorPlayer:
    """Plays one story. It prints only changes of the state, so it keeps what it has printed."""

    def __init__(self) -> None:
        # The harness of the present coordinator, which collects lines about all that happens.
        # `_begin` sets it.
        self._harness: PrintingCoordinator
        # The lines that were printed last about each group, the timers and the partitions.
        self._groups: dict[str, dict[str, str]] = {}
        self._timers: list[str] = []
        self._partitions: list[str] = []
        self._begin(PrintingCoordinator())

    def play(self, commands: tuple[str, ...]) -> list[str]:
        """Carry out the commands of a step, and return the lines that they print.

        Raises: UnknownWord.
        """
        if commands[0] == GIVEN:
            for line in commands[1:]:
                self._carry_out(line)
            return self._changes()
        lines: list[str] = []
        for line in commands:
            lines += self._carry_out(line)
            lines += self._changes()
        return lines

    def close(self) -> None:
        """Check the invariants of the coordinator a last time."""
        if self._harness.checks_invariants:
            self._harness.coordinator.check_invariants()

    def _carry_out(self, line: str) -> list[str]:
        """Carry out a command, and return the lines that it prints.

        A command that is not in OWN_COMMANDS is a request of a client.
        """
        command = read_command(line)
        own_command = OWN_COMMANDS.get(command.name)
        lines = self._request(command) if own_command is None else own_command(self, command)
        command.check_all_taken()
        return lines

    def _begin(self, harness: PrintingCoordinator) -> None:
        """Begin with a new coordinator. Its state counts as printed already."""
        self._harness = harness
        self._harness.take_lines()
        self._groups, self._timers, self._partitions = {}, [], []
        self._changes()

    # -- commands --

    def _request(self, command: Command) -> list[str]:
        """Send a request. If it gets no answer at once, the first printed line is `#3 waits`."""
        client_id = command.text("client", NEW_CLIENT_ID)
        version = command.settings.pop("version", None)
        body = read_request(command)
        request_id = self._harness.submit(
            body, version=None if version is None else int(version), client_id=client_id
        )
        lines = self._harness.take_lines()
        return lines if request_id in self._harness.responses else [f"#{request_id} waits", *lines]

    def _coordinator(self, command: Command) -> list[str]:
        """`coordinator partitions=2 owned=0,1` begins with a new coordinator.

        In this example `__consumer_offsets` has two partitions, and the coordinator has loaded both
        of them. With `owned=-` the coordinator has loaded no partition. `coordinator kafka_bench`
        begins with a coordinator that has the settings of Kafka's own tests.
        """
        if command.words == ["kafka_bench"]:
            self._begin(PrintingBench())
            return []
        owned = command.parts("owned") or ["0"]
        partitions = command.number("partitions", 1)
        # By default a new group does not wait for more members. A story can change this.
        values = {"group.initial.rebalance.delay.ms": "0", **command.settings}
        command.settings = values
        # `take_settings` removes the settings that it reads. `check_all_taken` finds those that no
        # one has read.
        self._begin(
            PrintingCoordinator(
                config=take_settings(BrokerConfig, values),
                guards=take_settings(Guards, values),
                java=take_settings(JavaSwitches, values),
                num_partitions=partitions,
                owned=tuple(int(partition) for partition in owned if partition != "-"),
            )
        )
        return []

    def _advance(self, command: Command) -> list[str]:
        """`advance 500` lets 500 ms pass. Each timer fires at its own time."""
        self._harness.advance(float(command.words[0]))
        return self._lines_and_time()

    def _tick(self, command: Command) -> list[str]:
        """`tick 500` moves the clock by 500 ms at once, and then fires the timers that are due.

        Kafka's own tests move their clock in this way.
        """
        self._harness.tick(int(command.words[0]))
        return self._lines_and_time()

    def _lines_and_time(self) -> list[str]:
        """Return the lines that were collected while time passed, and a line with the present time.

        A timer that has fired at the present time has already caused such a line.
        """
        lines = self._harness.take_lines()
        time_line = f"@{(self._harness.now_us - EPOCH_US) / 1_000:g}"
        return lines if time_line in lines else [*lines, time_line]

    def _hold(self, command: Command) -> list[str]:
        """`hold appends` lets each append wait for the command `complete`.

        `hold verifications` lets each verification of a transaction wait for the command `verify`.
        """
        self._set_holding(command, is_holding=True)
        return []

    def _release(self, command: Command) -> list[str]:
        """`release appends` ends `hold appends`. Appends that are already held stay held."""
        self._set_holding(command, is_holding=False)
        return []

    def _set_holding(self, command: Command, *, is_holding: bool) -> None:
        match command.words:
            case ["appends"]:
                self._harness.holds_appends = is_holding
            case ["verifications"]:
                self._harness.holds_verifications = is_holding
            case _:
                raise UnknownWord(f"{command.name} what? appends or verifications")

    def _complete(self, command: Command) -> list[str]:
        """`complete` lets the oldest held append succeed.

        `complete NOT_COORDINATOR index=1` lets the second-oldest held append fail with the error
        NOT_COORDINATOR.
        """
        self._harness.complete(_error(command), index=command.number("index", 0))
        return self._harness.take_lines()

    def _verify(self, command: Command) -> list[str]:
        """`verify` lets the oldest held verification succeed.

        `verify INVALID_TXN_STATE` lets it fail with the error INVALID_TXN_STATE. A verification
        that succeeds gives the coordinator a guard, which is a token that the later append must
        show. With `guard=-` the coordinator gets no guard. This happens in reality if the log
        already has records of the transaction.
        """
        guard = command.optional("guard", "1")
        self._harness.verify(_error(command), guard=None if guard is None else int(guard))
        return self._harness.take_lines()

    def _commit_everything(self, _command: Command) -> list[str]:
        """`commit_everything` moves the high watermark to the end of the log.

        So all held appends succeed.
        """
        self._harness.commit_everything()
        return self._harness.take_lines()

    def _high_watermark(self, command: Command) -> list[str]:
        """`high_watermark 3` tells the coordinator that the high watermark is at offset 3."""
        self._harness.report_high_watermark(int(command.words[0]), command.number("partition", 0))
        return self._harness.take_lines()

    def _lose_leadership(self, command: Command) -> list[str]:
        """`lose_leadership` tells the coordinator that another broker leads the partition.

        Nothing is unloaded yet.
        """
        self._harness.lose_leadership(command.number("partition", 0))
        return self._harness.take_lines()

    def _end_transaction(self, command: Command) -> list[str]:
        """`end_transaction 7 commit` writes the marker that ends the transaction of producer 7.

        The second word may also be `abort`.
        """
        producer_id, outcome = command.words
        partitions = tuple(map(int, command.parts("partitions"))) or (0,)
        is_commit = {"commit": True, "abort": False}[outcome]
        self._harness.end_transaction(int(producer_id), is_commit=is_commit, partitions=partitions)
        return self._harness.take_lines()

    def _load(self, command: Command) -> list[str]:
        """`load epoch=1` loads a partition from its log, in leader epoch 1."""
        partition = command.number("partition", 0)
        ignored = self._harness.load(
            partition,
            command.number("epoch", 0),
            batches_per_chunk=command.number("batches_per_chunk", 1_000),
        )
        return [*self._harness.take_lines(), *_ignored("load", ignored)]

    def _begin_load(self, command: Command) -> list[str]:
        """`begin_load` only begins a load, and reads no batch. `finish_load` ends it."""
        partition, epoch = command.number("partition", 0), command.number("epoch", 0)
        begun = self._harness.coordinator.begin_load(partition, epoch, self._harness.now_us)
        if isinstance(begun, LoadIgnored):
            return _ignored("load", begun)
        self._harness.execute(begun)
        return self._harness.take_lines()

    def _finish_load(self, command: Command) -> list[str]:
        """`finish_load` ends the load that `begin_load` has begun."""
        partition = command.number("partition", 0)
        self._harness.execute(
            self._harness.coordinator.finish_load(partition, self._harness.now_us)
        )
        return self._harness.take_lines()

    def _unload(self, command: Command) -> list[str]:
        """`unload epoch=1` unloads a partition in leader epoch 1; `epoch=-` means no epoch."""
        epoch = command.optional("epoch", "0")
        ignored = self._harness.unload(
            command.number("partition", 0), None if epoch is None else int(epoch)
        )
        return [*self._harness.take_lines(), *_ignored("unload", ignored)]

    def _crash(self, _command: Command) -> list[str]:
        """`crash` goes on with the coordinator of another broker, which loads the same logs."""
        crashed = self._harness
        self._harness = PrintingCoordinator(
            config=crashed.config,
            guards=crashed.guards,
            java=crashed.java,
            num_partitions=crashed.num_partitions,
            owned=tuple(range(crashed.num_partitions)),
            log={partition: list(batches) for partition, batches in crashed.log.items()},
        )
        return self._harness.take_lines()

    def _expire_offsets(self, _command: Command) -> list[str]:
        """`expire_offsets` removes the offsets that have expired by now."""
        self._harness.execute(self._harness.coordinator.expire_offsets(self._harness.now_us))
        return self._harness.take_lines()

    def _delete_partitions(self, command: Command) -> list[str]:
        """`delete_partitions foo-0` tells the coordinator that these partitions were deleted."""
        deleted: tuple[TopicPartition, ...] = tuple(map(read_partition, command.words))
        self._harness.execute(
            self._harness.coordinator.partitions_deleted(deleted, self._harness.now_us)
        )
        return self._harness.take_lines()

    def _shut_down(self, _command: Command) -> list[str]:
        """`shut_down` shuts the coordinator down. A broker does this when it stops."""
        self._harness.coordinator.shut_down()
        return []

    def _fire(self, command: Command) -> list[str]:
        """`fire KEY` fires a timer, even if it was cancelled.

        With a real clock, a timer may fire although it was cancelled a moment ago.
        """
        self._harness.execute(
            self._harness.coordinator.timer_fired(command.words[0], self._harness.now_us)
        )
        return self._harness.take_lines()

    def _force(self, command: Command) -> list[str]:
        """`force Empty Dead` puts the group into these states, without their usual effects."""
        self._bench().force(*(GroupState(word) for word in command.words))
        return self._harness.take_lines()

    # -- commands that make whole groups, without printing how --

    def _stable_group(self, command: Command) -> list[str]:
        """`stable_group 3` makes a Stable group of three members."""
        size = int(command.words[0])
        group_id = command.text("group", "group")
        session_timeout_ms = command.number("session", 10_000)
        self._harness.stable_group(size, group_id=group_id, session_timeout_ms=session_timeout_ms)
        return self._quietly()

    def _first_member(self, command: Command) -> list[str]:
        """`first_member` makes a group of one member that has joined, and not synced yet."""
        self._bench().first_member(**_timeouts(command))
        return self._quietly()

    def _stable_member(self, command: Command) -> list[str]:
        """`stable_member session=10000` makes a Stable group of one member with this timeout."""
        self._bench().stable_member(**_timeouts(command))
        return self._quietly()

    def _static_members(self, command: Command) -> list[str]:
        """`static_members` makes a Stable group of the static members L (the leader) and F."""
        self._bench().static_members(**_timeouts(command))
        return self._quietly()

    def _awaiting_pending(self, _command: Command) -> list[str]:
        """`awaiting_pending` makes a group whose join phase waits only for a third client.

        The third client has got its member id, and has not joined with this id yet.
        """
        self._bench().awaiting_pending()
        return self._quietly()

    def _bench(self) -> KafkaBench:
        """Return the harness. It must have the settings of Kafka's own tests.

        Raises: UnknownWord if it has other settings.
        """
        if not isinstance(self._harness, KafkaBench):
            raise UnknownWord("only the bench of Kafka's tests has such a group")
        return self._harness

    def _quietly(self) -> list[str]:
        """Drop the lines that were collected, and return no lines."""
        self._harness.take_lines()
        return []

    # -- state --

    def _changes(self) -> list[str]:
        """Return lines about all of the state that has changed since the last call."""
        coordinator = self._harness.coordinator
        groups = {}
        for summary in coordinator.groups():
            groups[summary.group_id] = group_lines(self._harness.group(summary.group_id))
        lines = [f"{group_name(name)} is gone" for name in self._groups if name not in groups]
        for name, shown in groups.items():
            lines += _changed_lines(self._groups.get(name, {}), shown)
        timers = [
            f"{key} @{(deadline_us - EPOCH_US) / 1_000:g}"
            for key, deadline_us in self._harness.deadlines()
        ]
        if timers != self._timers:
            text = f"timers: {', '.join(timers) or 'none'}"
            lines += wrap(text, WIDTH, subsequent_indent=INDENT, break_on_hyphens=False)
        partitions = list(self._served())
        if partitions != self._partitions:
            lines.append(f"partitions: {', '.join(partitions) or 'none'}")
        self._groups, self._timers, self._partitions = groups, timers, partitions
        return lines

    def _served(self) -> Iterator[str]:
        """Yield the partitions that the coordinator owns, is loading, or has failed to load."""
        for partition in range(self._harness.num_partitions):
            if self._harness.coordinator.is_owned(partition):
                yield f"{partition} owned"
            elif self._harness.coordinator.is_loading(partition):
                yield f"{partition} loading"
            elif (error := self._harness.coordinator.load_error(partition)) is not None:
                yield f"{partition} failed ({error})"


def _changed_lines(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """Return the changed lines of a group, and a line `... is gone` for each line that is missing.

    `before` and `after` map names to lines, as `group_lines` returns them.
    """
    changed = [line for name, line in after.items() if before.get(name) != line]
    gone = [f"{name} is gone" for name in before if name not in after]
    # The line of the group itself has the name "". Only this line is not indented.
    group_line = after[""]
    return [line if line == group_line else INDENT + line for line in (*changed, *gone)]


def take_settings(kind: type[ConfigT], settings: dict[str, str]) -> ConfigT:
    """Read a struct such as BrokerConfig from `settings`, and remove its settings there.

    `kind` is the type of the struct. The keys of `settings` are Kafka's names, such as
    `group.max.size`. Settings that the struct does not have stay in `settings`.
    """
    names = [field.encode_name for field in msgspec.structs.fields(kind)]
    taken = {name: settings.pop(name) for name in names if name in settings}
    # The values are texts. `strict=False` converts them to numbers and bools.
    return msgspec.convert(taken, kind, strict=False)


def _error(command: Command) -> ErrorCode:
    """Return the error that the command's only word names; NONE if the command has no word."""
    (name,) = command.words or ["NONE"]
    return ErrorCode[name]


def _ignored(what: str, ignored: LoadIgnored | None) -> list[str]:
    """Return a line about a load or unload that was ignored.

    Return no line if `ignored` is None, because then it was not ignored.
    """
    if ignored is None:
        return []
    return [f"{what} ignored: {value_text(ignored.reason)} known_epoch={ignored.known_epoch}"]


def _timeouts(command: Command) -> dict[str, int]:
    """Take the settings `session` and `rebalance`; return them as arguments of a bench's method."""
    names = {"session": "session_timeout_ms", "rebalance": "rebalance_timeout_ms"}
    return {
        name: int(command.settings.pop(key))
        for key, name in names.items()
        if key in command.settings
    }


OWN_COMMANDS: dict[str, Callable[[CoordinatorPlayer, Command], list[str]]] = {
    "coordinator": CoordinatorPlayer._coordinator,
    "advance": CoordinatorPlayer._advance,
    "tick": CoordinatorPlayer._tick,
    "hold": CoordinatorPlayer._hold,
    "release": CoordinatorPlayer._release,
    "complete": CoordinatorPlayer._complete,
    "verify": CoordinatorPlayer._verify,
    "commit_everything": CoordinatorPlayer._commit_everything,
    "high_watermark": CoordinatorPlayer._high_watermark,
    "lose_leadership": CoordinatorPlayer._lose_leadership,
    "end_transaction": CoordinatorPlayer._end_transaction,
    "load": CoordinatorPlayer._load,
    "begin_load": CoordinatorPlayer._begin_load,
    "finish_load": CoordinatorPlayer._finish_load,
    "unload": CoordinatorPlayer._unload,
    "crash": CoordinatorPlayer._crash,
    "expire_offsets": CoordinatorPlayer._expire_offsets,
    "delete_partitions": CoordinatorPlayer._delete_partitions,
    "shut_down": CoordinatorPlayer._shut_down,
    "fire": CoordinatorPlayer._fire,
    "force": CoordinatorPlayer._force,
    "stable_group": CoordinatorPlayer._stable_group,
    "first_member": CoordinatorPlayer._first_member,
    "stable_member": CoordinatorPlayer._stable_member,
    "static_members": CoordinatorPlayer._static_members,
    "awaiting_pending": CoordinatorPlayer._awaiting_pending,
}
"""The name of a command that is no request of a client -> the method that carries it out."""
