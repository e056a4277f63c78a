"""The directory of a search, from which the search can be resumed after any interruption.

The command `explore` searches for bugs: it plays many runs, whose faults are drawn from a space. (A
space is a file that says what may vary.) Such a search is called an exploration. The directory of
an exploration has a manifest, a copy of the space, and the file `batches.jsonl`, to which each
batch of finished runs adds a line.

`explore --resume` reads `batches.jsonl`, and plays only the seeds that are missing there. So no
finished run may be lost, and runs of an earlier version of the code must not be mixed with new
runs.

The runs in these tests are made up: `passed(0)` is a run of seed 0 that passed.
"""

import re
from pathlib import Path

import pytest

from chaos.experiment.problems import ExperimentError
from chaos.exploration import store as exploration_store
from chaos.exploration.space import Space, base_experiment, load_space
from chaos.exploration.store import (
    CannotResume,
    ExplorationRecord,
    ExplorationStore,
    Lost,
    NotAnExploration,
    PlayedAgain,
    PlayedSeeds,
    check_resumable,
    create_exploration,
    open_exploration,
)
from chaos.results.manifest import run_command_line
from chaos.results.recording import NotRecorded
from chaos.results.run_directory import EXPLORATIONS, NotARun, create_run_directory, scan_runs
from tests.support.builders.experiments import experiment
from tests.support.harness.fan_out import passed, violated

RECORDS: tuple[ExplorationRecord, ...] = (
    PlayedSeeds(worker="here:1", busy_s=1.5, runs=(passed(0), violated(1))),
    PlayedAgain(worker="here:2", busy_s=0.5, runs=(passed(0),)),
    Lost(seeds=(7,), why="killed"),
)


@pytest.fixture
def space(tmp_path: Path) -> Space:
    """Return a copy of the space `reference`, which a test may change."""
    path = tmp_path / "mine.yaml"
    path.write_bytes(load_space("reference").path.read_bytes())
    return load_space(str(path))


@pytest.fixture
def store(tmp_path: Path, space: Space) -> ExplorationStore:
    """Return a new exploration with three records."""
    made = create_exploration(tmp_path, space, first_seed=5, count=10, recheck_percent=5.0)
    for record in RECORDS:
        made.append(record)
    return made


def test_records_are_read_back_as_they_were_written(store: ExplorationStore) -> None:
    """RECORDS has a record of each kind: of played seeds, of rechecked seeds, and of lost seeds."""
    assert tuple(open_exploration(store.path).records()) == RECORDS
    assert open_exploration(store.path).manifest == store.manifest


def test_torn_last_line_is_dropped_at_every_length(store: ExplorationStore) -> None:
    """`kill -9` may interrupt a write after any byte, so the file may end with a part of a line.

    This part is dropped. The records before it are kept, and new records are appended to them.
    """
    batches = store.path / "batches.jsonl"
    whole = batches.read_bytes()
    last_line_begins = whole.rindex(b"\n", 0, -1) + 1
    for length in range(last_line_begins, len(whole)):
        batches.write_bytes(whole[:length])
        opened = open_exploration(store.path)
        assert tuple(opened.records()) == RECORDS[:2]
        opened.drop_torn_line()
        opened.append(RECORDS[2])
        assert tuple(opened.records()) == RECORDS


def test_unreadable_line_is_named(store: ExplorationStore) -> None:
    """The second of three lines is unreadable. A kill can tear only the last line.

    So the file is damaged in some other way, and the user must know. If the line were skipped, its
    seeds would be dropped silently.
    """
    batches = store.path / "batches.jsonl"
    lines = batches.read_bytes().splitlines(keepends=True)
    batches.write_bytes(lines[0] + b"{}\n" + lines[2])
    with pytest.raises(NotAnExploration, match=r"batches\.jsonl:2: cannot be read"):
        tuple(open_exploration(store.path).records())


def test_folder_of_a_space_stands_for_its_latest_exploration(
    tmp_path: Path, store: ExplorationStore
) -> None:
    """The explorations of the space `standard` are in the folder `runs/explorations/standard`.

    This folder has a directory for each exploration, with a time stamp as its name. Instead of such
    a directory a user may give the folder of the space, or the link `latest` in this folder.
    """
    assert open_exploration(store.path.parent).path == store.path
    assert open_exploration(store.path.parent / "latest").path == store.path


def test_path_without_an_exploration_is_refused(tmp_path: Path) -> None:
    """The first folder is empty, and the second folder does not exist."""
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(NotAnExploration, match="holds no exploration"):
            open_exploration(path)


def test_unchanged_exploration_is_continued(store: ExplorationStore) -> None:
    """`check_resumable` raises an exception if something has changed. Here it raises none."""
    check_resumable(open_exploration(store.path))


def test_exploration_of_other_code_or_python_is_refused(
    store: ExplorationStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With another version of the code or of Python, a seed may mean other faults.

    So the new results could not be added to the earlier ones.
    """
    monkeypatch.setattr(exploration_store, "code_version", lambda: "0123456789abcdef")
    monkeypatch.setattr(exploration_store, "python_version", lambda: "3.99")
    with pytest.raises(CannotResume) as refused:
        check_resumable(store)
    assert f"begun by {store.manifest.code}" in str(refused.value)
    assert "this is 0123456789abcdef" in str(refused.value)
    assert re.search(r"begun by Python 3\.\d+, this is 3\.99", str(refused.value))


def test_exploration_of_a_space_that_changed_is_refused(
    store: ExplorationStore, space: Space
) -> None:
    """If the space changes, a seed may mean other faults.

    So only changes of comments are allowed.
    """
    text = space.path.read_text()
    space.path.write_text("# a comment changes nothing\n" + text)
    check_resumable(store)
    changed = text.replace("brokers: 3", "brokers: 5")
    assert changed != text
    space.path.write_text(changed)
    with pytest.raises(CannotResume, match="the space changed: "):
        check_resumable(store)


def test_space_that_was_removed_is_played_from_its_copy(
    store: ExplorationStore, space: Space
) -> None:
    """The file of the space is gone, but the exploration's directory has a copy of it."""
    space.path.unlink()
    check_resumable(store)
    assert store.space().name == space.name


def test_explorations_are_no_runs_and_no_experiment_has_their_name(
    tmp_path: Path, space: Space
) -> None:
    """Explorations are in the folder `runs`, beside a folder for the runs of each experiment.

    The command `list` must not take `explorations` for a folder with unreadable runs. And no
    experiment may be named `explorations`, because its runs would be in the same folder.
    """
    runs = tmp_path / "runs"
    create_exploration(runs / EXPLORATIONS, space, first_seed=0, count=None, recheck_percent=5.0)
    assert list(scan_runs(runs)) == []
    with pytest.raises(NotARun, match="folder of explorations"):
        create_run_directory(
            runs,
            experiment(name=EXPLORATIONS),
            (),
            seed=0,
            runtime="virtual",
            replay=run_command_line("x", runtime="virtual", seed=0),
        )


def test_batch_that_cannot_be_written_names_path_error_and_the_kept_seeds(
    store: ExplorationStore,
) -> None:
    """If a batch cannot be written, for example to a full disk, the search ends with a message.

    Here the batch cannot be written because a folder is in the place of the file. At the end the
    test puts the file back in its place. It still has the earlier records.
    """
    batches = store.path / "batches.jsonl"
    moved_away = batches.rename(store.path / "moved_away")
    batches.mkdir()
    with pytest.raises(NotRecorded) as failed:
        store.append(RECORDS[0])
    assert str(failed.value) == (
        f"The search could not be recorded: {batches} cannot be written: Is a directory; every "
        f"batch that was finished before is kept, and `explore --resume {store.path}` "
        "continues the search"
    )
    batches.rmdir()
    moved_away.rename(batches)
    assert tuple(open_exploration(store.path).records()) == RECORDS


def test_overrides_of_an_exploration_are_restored_with_its_space(tmp_path: Path) -> None:
    """An override (`--var`) replaces a value in each experiment that is drawn from the space.

    A resumed search must draw with the same overrides. The overrides are in the manifest, because
    the copy of the space does not have them.
    """
    override = "cluster.config.unclean.leader.election.enable=true"
    changed = load_space("reference", (override,))
    assert base_experiment(changed) != base_experiment(load_space("reference"))
    made = create_exploration(
        tmp_path, changed, first_seed=0, count=1, recheck_percent=5.0, overrides=(override,)
    )
    restored = open_exploration(made.path).space()
    assert base_experiment(restored) == base_experiment(changed)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("cluster.config.no.such.key=1", "unknown key"),
        ("name=other", "is drawn from each seed"),
        ("cluster.config.min.insync.replicas=many", "--var"),
    ],
)
def test_override_that_no_draw_would_keep_is_refused(override: str, message: str) -> None:
    """An override that would have no effect must be refused, and not silently ignored.

    The three overrides have an unknown key, a key that each draw sets anew, and a wrong value.
    """
    with pytest.raises(ExperimentError) as refused:
        load_space("reference", (override,))
    assert message in "".join(map(str, refused.value.problems))
