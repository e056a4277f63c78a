"""Crash a broker's disk at random points, and check that a prefix of the writes remains.

A disk has several lives, and each life goes like this:

1. A process opens the disk. Then it does random steps on two logs and on a checkpoint, which is a
   small file that is always replaced as a whole.
2. The process crashes in a random system call, perhaps already while it opens the disk. The
   interrupted write may leave a part of its data. There are three kinds of crashes (see `End`).
3. A copy of the disk is opened, and its content is compared with what was written.

Each log records its flush mark on the disk: how much of the log is certain to survive a power loss.
A cleaning (compaction) replaces the first part of a log by a shorter one. An incomplete batch at
the end of a log is called a torn tail.
"""

import random
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from cluster.storage.file_storage import FileLogStorage, FileStorage, cut_to_flush_marks
from partition_log.batches import build_batch
from partition_log.storage import LogRecovery
from protocol.causes import RecoveryCause
from protocol.ids import TopicPartition
from protocol.records.batch import Record, RecordBatch
from tests.support.harness.crashing_files import CrashingFiles, Killed

PARTITIONS = (TopicPartition("__consumer_offsets", 3), TopicPartition("orders", 0))
CHECKPOINT = "replication-offset-checkpoint"
LIVES = 3
NEVER = 2**62
"""The process is killed in the system call with this number, which no life reaches."""
STEPS_MAX = 25
"""Before the step in which it crashes, a life has fewer steps than this."""
CALLS_MAX = 11
"""No step needs more system calls than this.

The system call in which a step is killed is drawn below this number. If the step has fewer calls,
it ends normally, and the process is killed after it.
"""


class End(StrEnum):
    """How a life ends."""

    KILL = "kill -9"
    """The process is killed. All its writes remain, because the operating system has them."""
    CUT_TO_MARKS = "power loss as an experiment makes it"
    """The process is killed. Then `cut_to_flush_marks` cuts each log to its flush mark."""
    POWER_LOSS = "power loss"
    """The machine fails. The disk has all synced data, and any mixture of the other writes."""


class Step(StrEnum):
    """What the process does next with a log or with the checkpoint."""

    APPEND = "append"
    FAILED_APPEND = "append to a full disk"
    TRUNCATE = "truncate"
    CLEAN = "replace what a cleaning read"
    FLUSH = "flush"
    WRITE_BACK = "write back"
    """Advances the flush mark without a sync, as if the operating system had written the data."""
    CHECKPOINT = "checkpoint"
    OPEN = "opening"
    """Opens the disk. Every life begins with this step."""


STEP_WEIGHTS = {
    Step.APPEND: 12,
    Step.FAILED_APPEND: 1,
    Step.TRUNCATE: 2,
    Step.CLEAN: 2,
    Step.FLUSH: 3,
    Step.WRITE_BACK: 1,
    Step.CHECKPOINT: 2,
}
"""The weight of each step. A step with the weight 2 is drawn twice as often as a step with 1."""
KILLED_IN_OPENING_ONE_IN = 8
"""On average, the process is to be killed in one of eight lives while it opens the disk."""


@dataclass(slots=True)
class ExpectedLog:
    """The content that a log must have.

    If a step crashes, we cannot know whether it has had its effect. So this object has the content
    before the current step and the content after the step, and both are right.
    """

    # The batches before the current step, and after it.
    batches: list[RecordBatch] = field(default_factory=list)
    batches_after: list[RecordBatch] = field(default_factory=list)
    # The number of batches below the flush mark before the current step, and after it.
    mark: int = 0
    mark_after: int = 0
    # The number of batches that no power loss may remove, with or without the current step.
    durable: int = 0
    # The number of batches that must be below the flush mark after any power loss.
    durable_mark: int = 0
    # True if the process was killed in a write that may have been that of the flush mark.
    mark_is_torn: bool = False
    # True if the current step replaces the log's file.
    is_cleaning: bool = False

    @property
    def next_offset(self) -> int:
        """The offset of the next record."""
        return _end_offset(self.batches)

    def settle(self) -> None:
        """Note that the current step has ended, and has therefore had its effect."""
        self.batches = list(self.batches_after)
        self.mark = self.mark_after
        self.is_cleaning = False


@dataclass(slots=True, kw_only=True)
class CrashReport:
    """The numbers of crash points of each kind, and of their effects on the disks."""

    ends: Counter[End] = field(default_factory=Counter)
    # The steps in which the crashes came.
    steps: Counter[Step] = field(default_factory=Counter)
    torn_tails: int = 0
    batches_lost: int = 0
    batches_kept: int = 0

    @property
    def points(self) -> int:
        """The number of all crash points."""
        return sum(self.ends.values())


def check_crash_points(count: int, first_seed: int, directory: Path) -> CrashReport:
    """Check `count` crash points, on as many disks below `directory` as are needed.

    The first disk has the seed `first_seed`, the second disk `first_seed + 1`, and so on.

    Raises: AssertionError if the content of a disk is wrong. The message names the seed and the
    life, and the files of the disk are not removed.
    """
    report = CrashReport()
    seed = first_seed
    while report.points < count:
        disk = CrashingDisk(seed, directory / f"disk-{seed}", report)
        disk.live(min(LIVES, count - report.points))
        shutil.rmtree(disk.directory)
        seed += 1
    return report


class CrashingDisk:
    """A disk, and the content that it must have."""

    def __init__(self, seed: int, directory: Path, report: CrashReport) -> None:
        self.directory = directory
        self._seed = seed
        self._rng = random.Random(seed)
        self._report = report
        self._life = 0
        self._logs = {partition: ExpectedLog() for partition in PARTITIONS}
        # The contents that the checkpoint may have now. Usually this is a single content. During a
        # step that replaces the checkpoint, these are the old and the new content. None: the file
        # does not exist yet.
        self._checkpoints: list[bytes | None] = [None]
        # All contents that were ever written.
        self._old_checkpoints: list[bytes] = []
        self._files = CrashingFiles(directory, self._rng)

    def live(self, lives: int) -> None:
        """Work and crash `lives` times, and then check that the disk can still be written."""
        self.directory.mkdir(parents=True)
        for _ in range(lives):
            self._life += 1
            self._crash()
        self._write_once_more()

    # -- a life --

    def _crash(self) -> None:
        """Work for a while, crash, and check what is left on the disk."""
        files = self._files
        step = self._work()
        end = self._rng.choice(list(End))
        write_was_cut = files.torn_bytes > 0
        if write_was_cut:
            self._report.torn_tails += 1
        for log in self._logs.values():
            # An append writes only batches; any other step may have been writing the mark.
            log.mark_is_torn = write_was_cut and step is not Step.APPEND
        files.kill()
        cuts: tuple[LogRecovery, ...] = ()
        if end is End.CUT_TO_MARKS:
            cuts = cut_to_flush_marks(self.directory, files)
        elif end is End.POWER_LOSS:
            files.lose_power()
        self._report.ends[end] += 1
        self._report.steps[step] += 1
        self._check(end, cuts, crash_point=f"seed {self._seed}, life {self._life}: {end} in {step}")

    def _work(self) -> Step:
        """Open the disk and do random steps; return the last step.

        The process crashes in this step or directly after it.
        """
        files = self._files
        is_killed_in_opening = self._rng.randrange(KILLED_IN_OPENING_ONE_IN) == 0
        if is_killed_in_opening:
            files.kill_in(self._rng.randrange(CALLS_MAX))
        try:
            storage = FileStorage(self.directory, files)
            storage.take_recoveries()
        except Killed:
            return Step.OPEN

        # The opening has ended normally, perhaps because it had fewer calls than the drawn number.
        files.kill_in(NEVER)
        for _ in range(self._rng.randrange(STEPS_MAX)):
            self._do(storage, self._draw_step())
            self._settle()

        last = self._draw_step()
        # Most appends are a single system call, so an append is killed in its first call.
        files.kill_in(0 if last is Step.APPEND else self._rng.randrange(CALLS_MAX))
        try:
            self._do(storage, last)
        except Killed:
            return last
        self._settle()
        return last

    def _draw_step(self) -> Step:
        """Return a random step."""
        return self._rng.choices(list(STEP_WEIGHTS), list(STEP_WEIGHTS.values()))[0]

    def _settle(self) -> None:
        """Note that the current step has ended, and has therefore had its effect."""
        for log in self._logs.values():
            log.settle()
        self._checkpoints = self._checkpoints[-1:]

    def _do(self, storage: FileStorage, step: Step) -> None:
        """Do a step on a random log, and change the expected content accordingly."""
        partition = self._rng.choice(PARTITIONS)
        expected = self._logs[partition]
        log = storage.log(partition)
        # The process may be killed within each call of `log`. So what the call may change is noted
        # before the call, and what the call guarantees (more durable batches) only after it.
        match step:
            case Step.APPEND:
                batch = self._batch(expected.next_offset)
                expected.batches_after.append(batch)
                log.append(batch)
            case Step.FAILED_APPEND:
                self._files.fill_disk()
                try:
                    log.append(self._batch(expected.next_offset))
                except OSError:
                    return
                raise AssertionError("a full disk took a batch")
            case Step.TRUNCATE:
                length = self._rng.randint(0, len(expected.batches))
                del expected.batches_after[length:]
                expected.mark_after = min(expected.mark, length)
                expected.durable = min(expected.durable, length)
                expected.durable_mark = min(expected.durable_mark, length)
                log.truncate(length)
            case Step.CLEAN:
                length = self._rng.randint(0, len(expected.batches))
                # The cleaning keeps the first batch, and about half of the others.
                kept = [
                    batch
                    for index, batch in enumerate(expected.batches[:length])
                    if index == 0 or self._rng.random() < 0.5
                ]
                expected.batches_after = [*kept, *expected.batches[length:]]
                expected.mark_after = len(expected.batches_after)
                expected.is_cleaning = True
                log.replace_prefix(length, kept)
                expected.durable = expected.durable_mark = len(expected.batches_after)
            case Step.FLUSH:
                expected.mark_after = len(expected.batches)
                log.flush()
                expected.durable = expected.durable_mark = len(expected.batches)
            case Step.WRITE_BACK:
                expected.mark_after = len(expected.batches)
                log.write_back()
            case Step.CHECKPOINT:
                content = self._rng.randbytes(self._rng.randrange(200))
                self._checkpoints.append(content)
                self._old_checkpoints.append(content)
                storage.write_checkpoint(CHECKPOINT, content)
            case Step.OPEN:
                # Only `_work` opens the disk, and STEP_WEIGHTS does not have this step.
                raise AssertionError("a disk is opened once a life")

    def _batch(self, base_offset: int) -> RecordBatch:
        """Return a batch of random size. Its leader epoch is the number of this life."""
        records = tuple(
            Record(None, self._rng.randbytes(self._rng.choice((0, 5, 40, 40, 900))), 7)
            for _ in range(self._rng.choice((1, 1, 2, 9)))
        )
        return build_batch(records, base_offset=base_offset, leader_epoch=self._life)

    # -- checks of the next life --

    def _check(self, end: End, cuts: Sequence[LogRecovery], *, crash_point: str) -> None:
        """Open a copy of the disk, and compare its content with what was written.

        `cuts` says what `cut_to_flush_marks` has removed. `crash_point` is for messages: "seed 7,
        life 2: power loss in flush".
        """
        copy = self.directory.with_name(f"{self.directory.name}-copy")
        shutil.copytree(self.directory, copy)
        storage = FileStorage(copy)
        recoveries = storage.take_recoveries()
        assert storage.take_recoveries() == (), f"{crash_point}: reported twice"
        for partition, expected in self._logs.items():
            log = storage.log(partition)
            log_recoveries = [
                recovery for recovery in recoveries if recovery.partition == partition
            ]
            _check_log(log, expected, end, log_recoveries, f"{crash_point}: {partition}")
            for cut in cuts:
                if cut.partition == partition:
                    _check_cut(cut, log, expected, f"{crash_point}: {partition}")
            batches = _batches_of(log)
            self._report.batches_kept += len(batches)
            self._report.batches_lost += max(0, len(expected.batches) - len(batches))
            if end is End.POWER_LOSS:
                # Whatever can be read after a power loss is on the disk, so it is durable.
                expected.durable, expected.durable_mark = len(batches), log.flushed_length
            # The content has passed the checks, and the next life begins with it.
            self._logs[partition] = ExpectedLog(
                batches=batches,
                batches_after=list(batches),
                mark=log.flushed_length,
                mark_after=log.flushed_length,
                durable=min(expected.durable, len(batches)),
                # If a cleaning was killed, the mark may be lower than before: it may still be the
                # mark of the old file, and the new file has fewer batches below the mark.
                durable_mark=min(expected.durable_mark, log.flushed_length),
            )
        assert all(cut in recoveries for cut in cuts), f"{crash_point}: not reported"
        checkpoint = storage.read_checkpoint(CHECKPOINT)
        if end is End.POWER_LOSS:
            assert checkpoint is None or checkpoint in self._old_checkpoints, (
                f"{crash_point}: checkpoint"
            )
        else:
            assert checkpoint in self._checkpoints, f"{crash_point}: checkpoint"
        self._checkpoints = [checkpoint]
        storage.close()
        shutil.rmtree(copy)

    def _write_once_more(self) -> None:
        """Check that each log takes another batch after its last crash."""
        for partition, expected in self._logs.items():
            batch = self._batch(expected.next_offset)
            storage = FileStorage(self.directory)
            storage.log(partition).append(batch)
            storage.log(partition).flush()
            storage.take_recoveries()
            storage.close()
            again = FileStorage(self.directory)
            assert _batches_of(again.log(partition)) == [*expected.batches, batch], (
                f"seed {self._seed}: {partition} cannot be written after its last crash"
            )
            assert again.log(partition).flushed_length == len(expected.batches) + 1
            assert again.take_recoveries() == ()
            again.close()


def _check_log(
    found: FileLogStorage,
    expected: ExpectedLog,
    end: End,
    recoveries: Sequence[LogRecovery],
    crash_point: str,
) -> None:
    """Compare a log with what was written to it, and with the losses that its opening reported."""
    batches = _batches_of(found)
    before, after = expected.batches, expected.batches_after
    if expected.is_cleaning and batches == after:
        # The new file has replaced the old file, but the mark may still be that of the old file.
        assert found.flushed_length <= len(batches), f"{crash_point}: mark"
        return
    match end:
        case End.KILL:
            assert batches in (before, after), f"{crash_point}: not what was written"
            _check_marked(found, expected, crash_point)
        case End.CUT_TO_MARKS:
            written = _written(batches, expected)
            assert batches == written[: len(batches)], f"{crash_point}: no prefix"
            assert found.flushed_length == len(batches), f"{crash_point}: not cut to the mark"
            _check_marked(found, expected, crash_point)
        case End.POWER_LOSS:
            written = _written(batches, expected)
            assert batches == written[: len(batches)], f"{crash_point}: no prefix"
            assert len(batches) >= expected.durable, f"{crash_point}: flushed batches are gone"
            assert expected.durable_mark <= found.flushed_length, f"{crash_point}: mark"
    torn = [loss for loss in recoveries if loss.cause is RecoveryCause.TORN_TAIL]
    # A log that was cut to its flush mark has no incomplete batch at its end.
    torn_max = 0 if end is End.CUT_TO_MARKS else 1
    assert len(torn) <= torn_max, f"{crash_point}: {torn}"
    for recovery in torn:
        assert recovery.log_end_offset == _end_offset(batches), crash_point
        assert recovery.cut_bytes > 0, crash_point
        assert recovery.cut_batches is None, crash_point


def _written(batches: list[RecordBatch], expected: ExpectedLog) -> list[RecordBatch]:
    """Return the written batches. A crashed log must be a prefix of these batches.

    If a cleaning was interrupted, these are the batches of the old file or of the new file.
    Otherwise they are the batches before the interrupted step or after it, whichever are more. The
    shorter list is a prefix of the longer one.
    """
    before, after = expected.batches, expected.batches_after
    if expected.is_cleaning:
        return after if batches == after[: len(batches)] else before
    return before if len(before) >= len(after) else after


def _check_cut(
    cut: LogRecovery, found: FileLogStorage, expected: ExpectedLog, crash_point: str
) -> None:
    """Check what `cut_to_flush_marks` reports about one log."""
    batches = _batches_of(found)
    assert cut.cause is RecoveryCause.POWER_LOSS, crash_point
    assert cut.log_end_offset == _end_offset(batches), crash_point
    if expected.is_cleaning:
        # We know neither which file was cut, the old file or the new file, nor which of the two
        # files had the mark.
        return
    lengths_before_cut = (len(expected.batches), len(expected.batches_after))
    assert cut.cut_bytes > 0, crash_point
    assert cut.cut_batches in [length - len(batches) for length in lengths_before_cut], crash_point


def _check_marked(found: FileLogStorage, expected: ExpectedLog, crash_point: str) -> None:
    """Check the flush mark of a log after its process was killed.

    If the write of the mark itself was interrupted, an older mark may be left. But this mark must
    not be older than the last mark that was synced.
    """
    marks = (expected.mark, expected.mark_after)
    if expected.is_cleaning:
        assert found.flushed_length <= len(found), f"{crash_point}: mark"
    elif expected.mark_is_torn:
        assert expected.durable_mark <= found.flushed_length <= max(marks), f"{crash_point}: mark"
    else:
        assert found.flushed_length in marks, f"{crash_point}: mark"


def _end_offset(batches: Sequence[RecordBatch]) -> int:
    return batches[-1].next_offset if batches else 0


def _batches_of(log: FileLogStorage) -> list[RecordBatch]:
    return [log.batch(index) for index in range(len(log))]
