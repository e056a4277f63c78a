"""The directory of an exploration, from which `explore --resume` can continue it.

An exploration is a search for violations. It plays many seeds, and each seed stands for the run of
one experiment, which is drawn from a space file, or made by a change of an earlier experiment. The
directory of the exploration is `runs/explorations/<space>/<timestamp>/`, with these files:

    manifest.json     how the exploration was started
    space.yaml        a copy of the space file
    batches.jsonl     the results of all finished batches
    findings/*.yaml   for each kind of violation, an experiment that shows it
    results.json      the totals

A batch consists of the seeds that a worker process gets together. Each line of batches.jsonl is one
record. There are three types of records:

- PlayedSeeds: the runs of a finished batch.
- PlayedAgain: the runs of seeds that were played a second time, to see whether a seed always gives
  the same run.
- Lost: seeds that were given up.

A record is appended as soon as its batch is finished, so Ctrl-C or `kill -9` loses only unfinished
batches. If the process dies while it writes a line, this line is incomplete, and a later session
drops it.
"""

import shutil
import socket
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import yaml

from chaos.exploration.play import PlayedRun
from chaos.exploration.space import Space, load_space
from chaos.results.manifest import git_commit, installed_versions
from chaos.results.recording import NotRecorded
from chaos.results.replay_stamp import code_version, python_version
from chaos.results.run_directory import (
    DEFAULT_ROOT,
    EXPLORATIONS,
    LATEST,
    make_unique,
    point_latest,
    replace_file,
    timestamp,
)
from results_schema.forms import READ_FORMS, refusal

EXPLORATIONS_ROOT = DEFAULT_ROOT / EXPLORATIONS
FORMAT = READ_FORMS["exploration"][-1]
"""Version of the format in which these files are written: the newest that this code can read."""
SPACE_FILE = "space.yaml"
FINDINGS = "findings"


class NotAnExploration(Exception):
    """A path has no readable exploration, or none can be created there. The message says why."""


class CannotResume(Exception):
    """An exploration cannot be resumed here; the message names the changes since its start."""


class ExplorationManifest(msgspec.Struct, frozen=True, kw_only=True):
    """The content of manifest.json: the input of an exploration. It is written once.

    - `exploration`: the name of the space and of the directory, as `<space>/<timestamp>`.
    - `space_file`: the path of the file from which space.yaml was copied.
    - `count`: number of seeds; None if the exploration plays as many seeds as the time allows.
    - `recheck_percent`: percentage of seeds that are played a second time.
    - `mutated_percent`: percentage of seeds that mutate (change) the plan of an earlier run.
    - `overrides`: the values of the option `--var`, such as `cluster.brokers=5`.
    - `code`: digest of the code that determines a run (`replay_stamp.code_version`).
    - `python`: version of Python, such as "3.12".
    - `started_at`: time of the start, in ISO 8601 and UTC.
    """

    format: int = FORMAT
    exploration: str
    space: str
    space_file: str
    first_seed: int
    count: int | None = None
    recheck_percent: float
    mutated_percent: float = 0.0
    overrides: tuple[str, ...] = ()
    code: str
    commit: str | None = None
    python: str
    versions: dict[str, str] = {}
    host: str
    started_at: str


class PlayedSeeds(msgspec.Struct, frozen=True, kw_only=True, tag_field="record", tag="played"):
    """Seeds that were played in one batch.

    - `worker`: the worker process that played the batch.
    - `busy_s`: the processor time that the batch took, in seconds.
    """

    worker: str
    busy_s: float
    runs: tuple[PlayedRun, ...]


class PlayedAgain(msgspec.Struct, frozen=True, kw_only=True, tag_field="record", tag="again"):
    """Seeds that were played a second time, for comparison.

    The fields have the same meaning as in PlayedSeeds.
    """

    worker: str
    busy_s: float
    runs: tuple[PlayedRun, ...]


class Lost(msgspec.Struct, frozen=True, kw_only=True, tag_field="record", tag="lost"):
    """Seeds that were given up, because two worker processes died while they played each of them.

    The first worker played the seed in a batch, the second played it alone.
    """

    seeds: tuple[int, ...]
    why: str


ExplorationRecord = PlayedSeeds | PlayedAgain | Lost
_record_decoder = msgspec.json.Decoder(ExplorationRecord)
"""Decoder of a line of batches.jsonl."""


class ExplorationStore:
    """One exploration's directory, open for writing."""

    def __init__(self, path: Path, manifest: ExplorationManifest) -> None:
        self.path = path
        self.manifest = manifest
        self._batches = path / "batches.jsonl"

    def append(self, record: ExplorationRecord) -> None:
        """Append one record. The record then survives the end of this process.

        Raises: NotRecorded if the file cannot be written.
        """
        try:
            with self._batches.open("ab") as file:
                file.write(msgspec.json.encode(record) + b"\n")
        except OSError as error:
            raise self._not_recorded(self._batches, error) from error

    def records(self) -> Iterator[ExplorationRecord]:
        """Yield every record, oldest first, but not an incomplete last line.

        Raises: NotAnExploration if a record is unreadable.
        """
        if not self._batches.exists():
            return
        with self._batches.open("rb") as file:
            for number, line in enumerate(file, 1):  # lines count from 1 in the message
                if not line.endswith(b"\n"):
                    return  # an incomplete line: the process died while it wrote the line
                try:
                    yield _record_decoder.decode(line)
                except msgspec.MsgspecError as error:
                    raise NotAnExploration(
                        f"{self._batches}:{number}: cannot be read: {error}"
                    ) from error

    def drop_torn_line(self) -> None:
        """Cut off an incomplete last line, so that the next record begins on its own line."""
        if not self._batches.exists():
            return
        with self._batches.open("r+b") as file:
            content = file.read()
            # If there is no complete line, rfind returns -1, and the whole content is cut off.
            file.truncate(content.rfind(b"\n") + 1)

    def write_results(self, results: msgspec.Struct) -> None:
        """Write results.json atomically."""
        content = msgspec.json.format(msgspec.json.encode(results), indent=2) + b"\n"
        self._replace(self.path / "results.json", content)

    def write_finding(self, name: str, text: str) -> Path:
        """Write the replay file of a finding; return its path."""
        folder = self.path / FINDINGS
        path = folder / f"{name}.yaml"
        try:
            folder.mkdir(exist_ok=True)
        except OSError as error:
            raise self._not_recorded(folder, error) from error
        self._replace(path, text.encode())
        return path

    def _replace(self, path: Path, content: bytes) -> None:
        """Write a file atomically. Raises: NotRecorded."""
        try:
            replace_file(path, content)
        except OSError as error:
            raise self._not_recorded(path, error) from error

    def _not_recorded(self, path: Path, error: OSError) -> NotRecorded:
        """Return the exception for a file that cannot be written."""
        return NotRecorded(
            f"The search could not be recorded: {path} cannot be written: "
            f"{error.strerror or error}; every batch that was finished before is kept, and "
            f"`explore --resume {self.path}` continues the search"
        )

    def space(self) -> Space:
        """Return the space with its overrides, as it was at the exploration's start."""
        return load_space(str(self.path / SPACE_FILE), self.manifest.overrides)


def create_exploration(
    root: Path,
    space: Space,
    *,
    first_seed: int,
    count: int | None,
    recheck_percent: float,
    mutated_percent: float = 0.0,
    overrides: tuple[str, ...] = (),
) -> ExplorationStore:
    """Create the directory of a new exploration, and make the link `latest` point to it.

    `overrides` are the overrides with which `space` was loaded.

    Raises: NotAnExploration if the directory or one of its files cannot be written.
    """
    started = datetime.now(UTC)
    try:
        path = make_unique(root / space.name, timestamp(started))
        text = space.path.read_text(encoding="utf-8")
        replace_file(path / SPACE_FILE, text.encode())
    except OSError as error:
        raise NotAnExploration(f"no exploration can be kept in {root}: {error}") from error

    manifest = ExplorationManifest(
        exploration=f"{space.name}/{path.name}",
        space=space.name,
        space_file=str(space.path),
        first_seed=first_seed,
        count=count,
        recheck_percent=recheck_percent,
        mutated_percent=mutated_percent,
        overrides=overrides,
        code=code_version(),
        commit=git_commit(),
        python=python_version(),
        versions=installed_versions(),
        host=socket.gethostname(),
        started_at=started.isoformat(timespec="milliseconds"),
    )
    content = msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n"
    try:
        replace_file(path / "manifest.json", content)
        point_latest(path)
    except OSError as error:
        # No command can open a directory without a manifest, so it must not stay.
        shutil.rmtree(path, ignore_errors=True)
        raise NotAnExploration(f"no exploration can be kept in {root}: {error}") from error
    return ExplorationStore(path, manifest)


def open_exploration(path: Path) -> ExplorationStore:
    """Return the exploration in the directory `path`.

    If `path` is the folder of a space, return the space's latest exploration.

    Raises: NotAnExploration if there is no exploration, or if its manifest cannot be read.
    """
    if not (path / "manifest.json").exists() and (path / LATEST).is_symlink():
        path = path / LATEST
    # Use the directory's real name, because a later exploration will change the link `latest`.
    if path.is_symlink():
        path = path.parent / path.readlink()
    file = path / "manifest.json"
    try:
        content = file.read_bytes()
        # In another version of the format, the fields may have another meaning. So such a manifest
        # is refused because of its version's number, before it is decoded.
        refusal_text = refusal(content, "exploration")
        if refusal_text is not None:
            raise NotAnExploration(f"{file} {refusal_text}")
        manifest = msgspec.json.decode(content, type=ExplorationManifest)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NotAnExploration(f"{path} holds no exploration: no manifest.json") from error
    except (OSError, msgspec.MsgspecError) as error:
        raise NotAnExploration(f"{file} cannot be read: {error}") from error
    return ExplorationStore(path, manifest)


def check_resumable(store: ExplorationStore) -> None:
    """Check that code, Python and space have not changed since the exploration began.

    Only then does a seed give the same run as it gave in the first session.

    Raises: CannotResume with all changes.
    """
    manifest = store.manifest
    changed = []
    if manifest.code != code_version():
        commit = "" if manifest.commit is None else f" (commit {manifest.commit[:12]})"
        changed.append(
            f"the code changed: it was begun by {manifest.code}{commit}, this is {code_version()}"
        )
    if manifest.python != python_version():
        changed.append(f"it was begun by Python {manifest.python}, this is {python_version()}")
    original = Path(manifest.space_file)
    copy = store.path / SPACE_FILE
    # A missing original is no change, because a resumed exploration reads only the copy.
    if original.exists() and _content(original) != _content(copy):
        changed.append(f"the space changed: {original} is no longer what {copy} is")
    if changed:
        raise CannotResume(
            f"{store.path} cannot be continued: {'; '.join(changed)}. Begin a new exploration, "
            "because the results of two versions would be mixed"
        )


def _content(path: Path) -> object:
    """Return the data of a YAML file, so that comments and formatting do not count as changes."""
    return yaml.safe_load(path.read_text(encoding="utf-8"))
