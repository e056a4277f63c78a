"""A run's directory. This module creates it, fills it during the run, and reads it afterwards.

The directory `runs/<experiment>/<timestamp>/` contains these files:

    manifest.json       what was run
    journal.json        the faults of the run
    results.json        the verdict and what the checkers found
    log.txt             what the run did, line by line
    events/*.parquet    the trace: one row for each event
    tables/             tables that `analyze` makes from the trace
    report.html         the page that `analyze` makes from the tables

In the folder of an experiment there is also a link `latest`, which points to the newest run. The
names of directories contain no colons, because Hadoop refuses names with colons.

A reader must never see a partial file. So the JSON files are replaced atomically, and the trace
gets its final name only when it is complete. The only exception is the log, to which lines are
appended.
"""

import os
import shutil
import socket
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from chaos.experiment.structs import Experiment
from chaos.results.manifest import config_of, git_commit, installed_versions
from chaos.results.recording import RESERVE_BYTES, NotRecorded, RunDisk, TraceSink
from results_schema.forms import refusal
from results_schema.journal import JournalEntry, decode_journal, encode_journal
from results_schema.manifest import Manifest, Plan, RunStatus
from results_schema.results import Results, RunOutcome, Verdict, exit_code

DEFAULT_ROOT = Path("runs")
"""Folder of all runs, in the current directory."""
EXPLORATIONS = "explorations"
"""Name of the folder below the root that has the results of `explore`, which are no runs.

No experiment may have this name, because its runs would be in the same folder.
"""
LATEST = "latest"
"""Name of the link to the latest run, in the folder of each experiment."""
EVENTS_FILE = "part-00000.parquet"
"""Name of the file with the whole trace, in the folder `events`."""
TRACE_FOLDER = "trace"
"""Name of the folder in which a run in real time collects the files of its nodes."""
_MAX_ATTEMPTS = 1_000
"""Number of names `NAME`, `NAME-2`, `NAME-3` and so on to try for a new directory."""


class NotARun(Exception):
    """There is no readable run at a path, or none can be created. The message has the reason."""


class RunDirectory:
    """The directory of one run, open for writing.

    If a write fails, this class mostly raises no exception, because the run must go on to undo its
    faults. `disk` remembers the failure.
    """

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.path = path
        self.manifest = manifest
        self.disk = RunDisk(path)

    @property
    def events(self) -> Path:
        """The folder of the trace."""
        return self.path / "events"

    def write_manifest(self) -> None:
        """Write the current manifest."""
        self._replace("manifest.json", _json(self.manifest))

    def write_journal(self, entries: tuple[JournalEntry, ...]) -> None:
        """Write the current journal."""
        self._replace("journal.json", encode_journal(entries))

    def write_results(self, results: Results) -> None:
        """Write the results."""
        self._replace("results.json", _json(results))

    def finish(self, status: RunStatus) -> None:
        """Mark the run as ended."""
        self.manifest.status = status
        self.manifest.ended_at = _now().isoformat(timespec="milliseconds")
        self.write_manifest()

    def log(self, time_us: int, message: str) -> None:
        """Append a line to the run's log. `time_us` is the time on the run's clock."""

        def append() -> None:
            with (self.path / "log.txt").open("a", encoding="utf-8") as file:
                # The time in seconds has a fixed width, so that all messages begin in one column.
                file.write(f"{time_us / 1e6:12.6f} {message}\n")

        self.disk.write(self.path / "log.txt", append)

    def open_trace(self) -> TraceSink:
        """Open the file of the trace, which gets its final name only when it is complete.

        Raises: NotARun if the file cannot be written; the run's directory is removed then.
        """
        path = self.events / f".{EVENTS_FILE}.unfinished"
        try:
            return TraceSink(path, self.disk)
        except OSError as error:
            shutil.rmtree(self.path, ignore_errors=True)
            raise _cannot_begin(self.path, error) from error

    def conclude(self, results: Results, *, rows: int | None) -> None:
        """Free the reserve, and check that every file of the run is complete.

        `rows` is the number of rows in the trace; None if the trace was discarded.

        Raises: NotRecorded if a file is incomplete. Before this, the failure is written to
        results.json and to the manifest, if this is possible.
        """
        self.disk.free_reserve()
        # If the disk becomes full during the run, the run notices this at its next check and stops
        # with this outcome.
        failed_by_disk = results.outcome is RunOutcome.INTERNAL_ERROR
        # If the disk becomes full only at the end of the run, the failed write may succeed with the
        # freed reserve. Then nothing is lost, and the run is complete.
        if self.disk.trouble is None or not (self.disk.lost or failed_by_disk):
            return
        trace = "" if rows is None else f", and {rows:,} rows of the trace"
        sentence = (
            f"The run could not be recorded: {self.disk.trouble}; kept in {self.path}: "
            f"{', '.join(self._kept()) or 'nothing'}{trace}"
        )

        outcome, verdict = RunOutcome.INTERNAL_ERROR, Verdict.UNKNOWN
        self.write_results(
            msgspec.structs.replace(
                results,
                outcome=outcome,
                verdict=verdict,
                exit_code=exit_code(outcome, verdict),
                reasons=(sentence,),
            )
        )
        self.finish(RunStatus.FAILED)
        raise NotRecorded(sentence)

    def _kept(self) -> list[str]:
        names = ("manifest.json", "journal.json", "log.txt", "results.json")
        return [name for name in names if (self.path / name).exists()]

    def _replace(self, name: str, content: bytes) -> None:
        path = self.path / name
        self.disk.write(path, lambda: replace_file(path, content))


class PastRun:
    """A run that is read from its directory. This or a compatible version must have written it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            content = (path / "manifest.json").read_bytes()
            # In another version of the format, the fields may have another meaning. So such a
            # manifest is refused because of its version's number, before it is decoded.
            refusal_text = refusal(content, "run")
            if refusal_text is not None:
                raise NotARun(f"{path / 'manifest.json'} {refusal_text}")
            self.manifest = msgspec.json.decode(content, type=Manifest)
        except FileNotFoundError as error:
            raise NotARun(f"{path} holds no manifest.json") from error
        except (OSError, msgspec.MsgspecError) as error:
            raise NotARun(f"{path / 'manifest.json'} cannot be read: {error}") from error

    @property
    def events(self) -> Path:
        """The folder of the trace."""
        return self.path / "events"

    @property
    def incomplete(self) -> bool:
        """True if the run has ended, but not by itself. Its trace may then end at any row.

        Such a run has a final status other than COMPLETED, or its process died before it could
        write a final status.
        """
        if self.manifest.status is RunStatus.RUNNING:
            return not _is_alive(self.manifest.pid, self.manifest.host)
        return self.manifest.status is not RunStatus.COMPLETED

    @property
    def is_running(self) -> bool:
        """True if the run is in progress, as far as this machine can tell."""
        return self.manifest.status is RunStatus.RUNNING and not self.incomplete

    @property
    def is_here(self) -> bool:
        """True if the run's driver (the process that ran the experiment) was on this machine."""
        return self.manifest.host == socket.gethostname()

    def journal(self) -> tuple[JournalEntry, ...]:
        """Return the journal; empty if none was written."""
        try:
            return decode_journal((self.path / "journal.json").read_bytes())
        except FileNotFoundError:
            return ()
        except msgspec.MsgspecError as error:
            raise NotARun(f"{self.path / 'journal.json'} cannot be read: {error}") from error

    def results(self) -> Results | None:
        """Return the results; None if the run ended before it wrote them."""
        try:
            return msgspec.json.decode((self.path / "results.json").read_bytes(), type=Results)
        except FileNotFoundError:
            return None
        except msgspec.MsgspecError as error:
            raise NotARun(f"{self.path / 'results.json'} cannot be read: {error}") from error


def create_run_directory(
    root: Path,
    experiment: Experiment,
    plan: Plan,
    *,
    seed: int,
    runtime: str,
    replay: str,
    experiment_file: str | None = None,
    time_scale: float = 1.0,
    name: str | None = None,
) -> RunDirectory:
    """Create the directory of a new run, with its manifest, and point `latest` to it.

    The directory's name is `name`, or the time of the run's start. If a directory of this name
    exists already, a number is appended. `replay` is the command line that repeats the run.

    Raises: NotARun if the directory cannot be created.
    """
    started = _now()
    if experiment.name == EXPLORATIONS:
        raise NotARun(f"{root / EXPLORATIONS} is the folder of explorations: name it otherwise")
    try:
        path = make_unique(root / experiment.name, name or timestamp(started))
    except OSError as error:
        raise NotARun(f"no run directory can be made in {root}: {error}") from error

    manifest = Manifest(
        run=f"{experiment.name}/{path.name}",
        experiment=experiment.name,
        experiment_file=experiment_file,
        config=config_of(experiment),
        plan=plan,
        seed=seed,
        runtime=runtime,
        time_scale=time_scale,
        pid=os.getpid(),
        host=socket.gethostname(),
        started_at=started.isoformat(timespec="milliseconds"),
        versions=installed_versions(),
        git_commit=git_commit(),
        replay=replay,
    )

    run = RunDirectory(path, manifest)
    try:
        run.events.mkdir()
        run.disk.reserve()
        replace_file(path / "manifest.json", _json(manifest))
        point_latest(path)
    except OSError as error:
        # Without a complete manifest the directory would be listed as an unreadable run.
        shutil.rmtree(path, ignore_errors=True)
        raise _cannot_begin(path, error) from error
    return run


def _cannot_begin(path: Path, error: OSError) -> NotARun:
    """Return the error of a run whose directory could not be written, and was removed."""
    # `>> 20` turns bytes into MB.
    return NotARun(
        f"no run can begin: {path} cannot be written: {error.strerror or error}; it needs "
        f"{RESERVE_BYTES >> 20} MB at least, and nothing was kept"
    )


def open_run(path: Path) -> PastRun:
    """Return the run at `path`, which is a run's directory, or a link to such a directory.

    If `path` is the folder of an experiment, return the latest run of this experiment.

    Raises: NotARun if there is no readable run.
    """
    if not path.is_dir():
        raise NotARun(f"{path} is no directory")
    if not (path / "manifest.json").exists() and (path / LATEST).is_dir():
        path = path / LATEST
    return PastRun(path.resolve())


def list_runs(root: Path = DEFAULT_ROOT) -> Iterator[PastRun]:
    """Yield every readable run under `root`.

    The experiments are in the order of their names. Of each experiment the oldest run comes first.
    """
    return (run for run in scan_runs(root) if isinstance(run, PastRun))


def scan_runs(root: Path = DEFAULT_ROOT) -> Iterator[PastRun | NotARun]:
    """Yield every run under `root`, in the order of `list_runs`.

    If a run is unreadable, yield the exception NotARun in its place, which has the reason.
    """
    for folder in _folders(root):
        if folder.name == EXPLORATIONS:
            continue
        try:
            paths = _folders(folder)
        except OSError as error:
            yield NotARun(f"{folder} cannot be read: {error}")
            continue
        for path in paths:
            try:
                yield PastRun(path)
            except NotARun as error:
                yield error


def run_names(root: Path = DEFAULT_ROOT) -> list[Path]:
    """Return the sorted paths of all run directories, relative to `root`.

    They have the form `<experiment>/<timestamp>`. This function does not read the manifests, so it
    also returns a folder that has no manifest.
    """
    experiments = (folder for folder in _folders(root) if folder.name != EXPLORATIONS)
    return [run.relative_to(root) for experiment in experiments for run in _folders(experiment)]


def _folders(parent: Path) -> list[Path]:
    """Return the folders in `parent` in order of names, without links and hidden folders."""
    if not parent.is_dir():
        return []
    return sorted(
        path
        for path in parent.iterdir()
        if path.is_dir() and not path.is_symlink() and not path.name.startswith(".")
    )


def _now() -> datetime:
    return datetime.now(UTC)


def timestamp(moment: datetime) -> str:
    """Return a moment in UTC as the name of a directory.

    The order of such names is the order of time, and the names have no colons.
    """
    # [:-3] cuts off the last three digits, so that milliseconds are left.
    return moment.strftime("%Y-%m-%dT%H-%M-%S.%f")[:-3] + "Z"


def make_unique(parent: Path, name: str) -> Path:
    """Create a directory `name` in `parent`, and return its path.

    If such a directory exists already, a number is appended to the name. Raises: OSError.
    """
    parent.mkdir(parents=True, exist_ok=True)
    for attempt in range(1, _MAX_ATTEMPTS):
        path = parent / (name if attempt == 1 else f"{name}-{attempt}")
        try:
            path.mkdir()
        except FileExistsError:
            continue
        return path
    raise FileExistsError(f"{parent / name} and {_MAX_ATTEMPTS} more exist")


def point_latest(path: Path) -> None:
    """Let `latest` point to `path`. If two runs begin at the same time, the last call wins."""
    # A link cannot be changed. So a new link is made under another name, and then renamed. In this
    # way `latest` exists at each moment.
    temporary = path.parent / f".{LATEST}-{os.getpid()}-{path.name}"
    temporary.symlink_to(path.name)
    temporary.replace(path.parent / LATEST)


def _json(value: msgspec.Struct) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"


def replace_file(path: Path, content: bytes) -> None:
    """Write a file atomically. A reader sees either its old content or its new content."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    except OSError:
        # If the disk is full, a partial file would take space that the next attempt needs.
        temporary.unlink(missing_ok=True)
        raise


def _is_alive(pid: int, host: str) -> bool:
    """Return False if the process `pid` on `host` has certainly ended."""
    if host != socket.gethostname():
        return True  # a process on another machine cannot be checked from here
    try:
        os.kill(pid, 0)  # signal 0 is not delivered: it only asks whether the process exists
    except ProcessLookupError:
        return False
    except PermissionError:  # the process exists, and belongs to another user
        return True
    return True
