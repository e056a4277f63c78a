"""What a run does if the disk is full: it undoes its faults, stops, and can still be read.

1. A run first allocates a reserve, a file of 4 MB. If there is no room for the reserve, no run
   begins, and the exit code is 254.
2. During the run the trace (a row for each event) is written to a Parquet file with the suffix
   `.unfinished`. At the end of the run this file gets its final name.
3. If the disk is full before the end, the run deletes the reserve. This makes room for the last
   rows of the trace and for the small files: manifest, journal, log and results. The exit code is
   255, because the tool failed, and so the run says nothing about Kafka.
"""

import errno
import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partialmethod
from pathlib import Path
from typing import Protocol

import pytest

from chaos.results import recording
from chaos.results.run_directory import EVENTS_FILE, PastRun, list_runs
from cluster.trace.parquet import ParquetTraceWriter, read_parquet
from coordlab.cli import run_cli
from results_schema.manifest import RunStatus
from results_schema.results import RunOutcome, Verdict
from tests.support.harness.small_disk import small_disk

pytestmark = pytest.mark.slow

RUN = (
    *("run", "coordinator_crash", "--runtime", "virtual", "--no-analyze"),
    *("--var", "groups.orders-readers.members=3", "--var", "topics.orders.partitions=3"),
)
"""Command line of a small run, which takes little time."""


class SmallDisk:
    """A disk with room for `room` bytes besides the reserve.

    When the reserve is deleted, there is room for another `reserve` bytes.
    """

    def __init__(self, room: int, reserve: int) -> None:
        self._room = room
        self._reserve = reserve

    def write(self, file: int, content: memoryview) -> int:
        """Write as much as fits on the disk, and return the number of written bytes.

        Raises: OSError if nothing fits.
        """
        if self._room == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        done = os.write(file, content[: self._room])
        self._room -= done
        return done

    def free_reserve(self) -> bool:
        """Delete the reserve, as RunDisk does. Return False if it was deleted before."""
        freed, self._reserve = self._reserve, 0
        self._room += freed
        return freed > 0


def write_trace_in_small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a run write its trace every 1,000 rows, so that the disk fills during the run."""
    in_small_chunks = partialmethod(ParquetTraceWriter.__init__, rows_per_chunk=1_000)
    monkeypatch.setattr(ParquetTraceWriter, "__init__", in_small_chunks)


class PlayOn(Protocol):
    """A function that plays RUN on a SmallDisk, and returns the exit code and the run."""

    def __call__(self, *, room: int, reserve: int) -> tuple[int, PastRun]:
        """Play the run. `room` and `reserve` are the parameters of SmallDisk, in bytes."""
        ...


@pytest.fixture
def play_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PlayOn:
    """Return a function that plays RUN on a SmallDisk, and returns the exit code and the run."""

    def play(*, room: int, reserve: int) -> tuple[int, PastRun]:
        disk = SmallDisk(room, reserve)
        monkeypatch.setattr(recording, "write_bytes", disk.write)
        monkeypatch.setattr(recording.RunDisk, "free_reserve", disk.free_reserve)
        write_trace_in_small_chunks(monkeypatch)
        code = run_cli([*RUN, "--runs", str(tmp_path)])
        (past,) = list_runs(tmp_path)
        return code, past

    return play


def check_reported_as_unknown(
    past: PastRun, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Check that no fault is in force, and that results and `list` show an unknown verdict."""
    faults_in_force = [entry.fault_id for entry in past.journal() if entry.in_force]
    assert faults_in_force == []
    assert past.manifest.status is RunStatus.FAILED
    results = past.results()
    assert results is not None
    assert (results.outcome, results.verdict) == (RunOutcome.INTERNAL_ERROR, Verdict.UNKNOWN)
    assert results.exit_code == 255
    assert run_cli(["list", "--json", "--runs", str(root)]) == 0
    (listed,) = json.loads(capsys.readouterr().out)["runs"]
    assert (listed["status"], listed["verdict"], listed["exit_code"]) == ("failed", "unknown", 255)


def test_disk_that_fills_ends_the_run_with_255_and_leaves_a_trace(
    play_on: PlayOn, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The disk has room for 60 kB, so it is full early in the run.

    The reserve is large enough for the last rows.
    """
    code, past = play_on(room=60_000, reserve=10_000_000)

    output = capsys.readouterr()
    assert code == 255
    assert "PASS" not in output.out

    (sentence,) = output.err.splitlines()  # the only line of the error output
    assert sentence.startswith("The run could not be recorded: ")
    assert "part-00000.parquet.unfinished cannot be written: No space left on device" in sentence
    assert f"kept in {past.path}: manifest.json, journal.json, log.txt, results.json" in sentence
    rows = list(read_parquet(past.events / EVENTS_FILE))
    assert f"{len(rows):,} rows of the trace" in sentence
    # A whole run takes longer than 40 s. This run ended soon after the failed write, when it next
    # asked for the status of the cluster.
    assert rows[-1].time_us < 40_000_000
    check_reported_as_unknown(past, tmp_path, capsys)


def test_disk_without_room_for_the_end_of_a_trace_keeps_the_documents(
    play_on: PlayOn, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The reserve has 10 bytes only, so the Parquet file cannot be completed.

    An incomplete Parquet file is unreadable, so it is deleted, and the message names no rows.
    """
    code, past = play_on(room=60_000, reserve=10)

    (sentence,) = capsys.readouterr().err.splitlines()
    assert code == 255
    assert "rows of the trace" not in sentence
    assert list(past.events.iterdir()) == []
    check_reported_as_unknown(past, tmp_path, capsys)


@pytest.mark.parametrize(
    "error",
    [errno.ENOSPC, errno.EDQUOT, errno.EFBIG],
    ids=["no space left", "quota exceeded", "file too large"],
)
def test_disk_that_is_full_from_the_start_begins_no_run(
    error: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The reserve cannot be allocated, so no run begins.

    The directory of the new run is removed again, and the link `latest` still leads to the first
    run.
    """

    def refuse_to_allocate(_file: int, _offset: int, _size: int) -> None:
        raise OSError(error, os.strerror(error))

    # A first run is played while the disk has room.
    assert run_cli([*RUN, "--runs", str(tmp_path)]) == 0
    (first_run,) = list_runs(tmp_path)
    capsys.readouterr()  # forget the output of the first run
    monkeypatch.setattr(os, "posix_fallocate", refuse_to_allocate)

    code = run_cli([*RUN, "--runs", str(tmp_path)])

    output = capsys.readouterr()
    assert (code, output.out) == (254, "")
    assert output.err.startswith("no run can begin: ")
    assert os.strerror(error) in output.err
    assert [past.path for past in list_runs(tmp_path)] == [first_run.path]
    assert (first_run.path.parent / "latest").resolve() == first_run.path


@pytest.mark.parametrize("in_the_way", ["coordinator_crash", "coordinator_crash/latest"])
def test_file_or_folder_in_the_way_begins_no_run(
    in_the_way: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The run cannot make its directory, because a name that it needs is taken.

    Either a file has the name of the experiment's folder, or a folder has the name of the link
    `latest`. (The test does not take away permissions, because root, who may run the tests, could
    write all the same.)
    """
    path = tmp_path / in_the_way
    if path.name == "latest":
        path.mkdir(parents=True)
    else:
        path.touch()

    code = run_cli([*RUN, "--runs", str(tmp_path)])

    output = capsys.readouterr()
    assert code == 254
    (sentence,) = output.err.splitlines()
    assert str(tmp_path) in sentence
    assert list(list_runs(tmp_path)) == []


@pytest.fixture
def small_tmpfs(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Return a function that mounts a tmpfs of a given size.

    The function skips the test if this process is not allowed to mount.
    """
    with ExitStack() as mounted:
        yield lambda size: mounted.enter_context(small_disk(tmp_path / f"tmpfs-{size}", size))


def test_read_only_folder_begins_no_run(
    small_tmpfs: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """The volume is mounted read-only, so that even root cannot write."""
    folder = small_tmpfs("1m,ro")
    code = run_cli([*RUN, "--runs", str(folder)])
    output = capsys.readouterr()
    (sentence,) = output.err.splitlines()
    assert (code, output.out) == (254, "")
    assert sentence.startswith(f"no run directory can be made in {folder}")
    assert "Read-only file system" in sentence


@pytest.mark.parametrize("size", ["64k", "500k"])
def test_small_tmpfs_begins_no_run(
    size: str, small_tmpfs: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """A container may have a volume that is smaller than the reserve."""
    folder = small_tmpfs(size)
    code = run_cli([*RUN, "--runs", str(folder)])
    output = capsys.readouterr()
    (sentence,) = output.err.splitlines()
    assert (code, output.out) == (254, "")
    assert sentence.startswith(f"no run can begin: {folder}")
    assert "No space left on device" in sentence
    assert list(list_runs(folder)) == []


def test_tmpfs_that_fills_ends_a_run_with_255_and_leaves_a_trace(
    small_tmpfs: Callable[[str], Path],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A real disk is a bit larger than the reserve, which has 4 MB. It fills during the run.

    The run ends as in the tests with a SmallDisk.
    """
    write_trace_in_small_chunks(monkeypatch)
    folder = small_tmpfs("4200k")

    code = run_cli([*RUN, "--runs", str(folder)])

    output = capsys.readouterr()
    (sentence,) = output.err.splitlines()
    assert code == 255
    assert "PASS" not in output.out
    assert "cannot be written: No space left on device; kept in " in sentence
    (past,) = list_runs(folder)
    assert f"{len(list(read_parquet(past.events / EVENTS_FILE))):,} rows of the trace" in sentence
    check_reported_as_unknown(past, folder, capsys)
