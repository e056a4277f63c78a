"""Run directories, each with the files of one run.

Such a directory can be read while the run goes on, and even if the run was interrupted.

The runs of the experiment `small`, which these tests play, are in the folder `small`:

    small/2026-01-01T00-00-00.000Z/   one run, with these files and others:
        manifest.json                 what is played, by which process, and how to replay the run
        journal.json                  an entry for each fault; here there is one fault, `crash-0`
    small/latest                      a link to the last run
"""

from pathlib import Path

import pytest

from chaos.results.manifest import experiment_of, run_command_line
from chaos.results.run_directory import (
    NotARun,
    RunDirectory,
    create_run_directory,
    list_runs,
    open_run,
)
from chaos.run.journal import Journal
from chaos.run.plan import plan_of
from results_schema.journal import FaultOutcome
from results_schema.manifest import RunStatus
from tests.support.builders.experiments import experiment
from tests.support.harness.programs import pid_of_ended_process


def create(root: Path) -> RunDirectory:
    """Create the directory of a run of `small`.

    "again" stands for the command that replays the run.
    """
    small = experiment()
    return create_run_directory(
        root, small, plan_of(small), seed=7, runtime="virtual", replay="again"
    )


def test_concurrent_runs_get_directories_of_their_own(tmp_path: Path) -> None:
    """Runs that begin at the same time must not write into one directory.

    The name of a directory is a time without colons. (Hadoop, which reads the files, refuses names
    with colons.)
    """
    paths = [create(tmp_path).path for _ in range(5)]

    assert len(set(paths)) == 5
    assert all(":" not in path.name for path in paths)
    assert (tmp_path / "small" / "latest").resolve() == paths[-1].resolve()


def test_manifest_has_all_that_reproduces_the_run(tmp_path: Path) -> None:
    """The manifest has the experiment, the plan, the seed and the runtime of the run.

    Settings that the experiment file omits are in the manifest with their defaults, because later
    versions may have other defaults.
    """
    run = create(tmp_path)

    manifest = open_run(run.path).manifest

    assert experiment_of(manifest) == experiment()
    assert manifest.plan == plan_of(experiment())
    assert (manifest.seed, manifest.runtime, manifest.replay) == (7, "virtual", "again")
    assert manifest.versions["python"]
    assert manifest.config["groups"]["readers"]["config"]["session.timeout.ms"] == 45_000


def test_run_of_a_dead_process_reads_as_incomplete(tmp_path: Path) -> None:
    """The process that played a run was killed, so the manifest still says that the run goes on.

    The manifest has the id of this process. So a reader of the manifest sees that the process has
    ended.
    """
    run = create(tmp_path)
    assert not open_run(run.path).incomplete
    assert open_run(run.path).is_running
    assert open_run(run.path).is_here  # the process is on this machine, so a reader can look for it

    run.manifest.pid = pid_of_ended_process()
    run.write_manifest()

    assert open_run(run.path).manifest.status is RunStatus.RUNNING
    assert open_run(run.path).incomplete
    assert not open_run(run.path).is_running


@pytest.mark.parametrize(
    ("status", "incomplete"),
    [
        (RunStatus.COMPLETED, False),
        (RunStatus.INTERRUPTED, True),
        (RunStatus.FAILED, True),
    ],
)
def test_ended_run_has_its_outcome(tmp_path: Path, status: RunStatus, *, incomplete: bool) -> None:
    """The directory shows how the run ended. Only the trace of a completed run is complete."""
    run = create(tmp_path)
    run.finish(status)

    past = open_run(run.path)

    assert past.manifest.status is status
    assert past.manifest.ended_at is not None
    assert past.incomplete is incomplete
    assert not past.is_running


def test_journal_is_on_disk_after_every_change(tmp_path: Path) -> None:
    """Even the journal of a run that is killed shows the faults that were injected."""
    run = create(tmp_path)
    journal = Journal(plan_of(experiment()), run.write_journal)
    assert open_run(run.path).journal()[0].outcome is FaultOutcome.PLANNED

    entry = journal.entry("crash-0")
    entry.outcome, entry.node, entry.pid = FaultOutcome.HIT, "broker-1", 4711
    journal.changed()

    (written,) = open_run(run.path).journal()
    assert (written.outcome, written.node, written.pid) == (FaultOutcome.HIT, "broker-1", 4711)
    assert written.in_force  # the crash was injected, and is not healed yet


def test_list_skips_the_latest_link_and_other_files(tmp_path: Path) -> None:
    """`latest` is a link to the last run.

    If `list` followed the link, it would list this run twice. The second run has a damaged journal,
    and is listed all the same. The folder `notes` is no run.
    """
    first, second = create(tmp_path), create(tmp_path)
    (tmp_path / "small" / "notes").mkdir()
    (second.path / "journal.json").write_text("{")

    assert [past.path for past in list_runs(tmp_path)] == [first.path, second.path]
    assert list(list_runs(tmp_path / "nowhere")) == []


def test_experiments_folder_opens_its_latest_run(tmp_path: Path) -> None:
    """A user may give the folder of an experiment: `analyze runs/small` means its last run."""
    create(tmp_path)
    last = create(tmp_path)

    assert open_run(tmp_path / "small").path == last.path.resolve()


@pytest.mark.parametrize("content", [None, "", "{}", '{"format": 99}'])
def test_path_without_a_run_is_reported(tmp_path: Path, content: str | None) -> None:
    """The error names the manifest: it is missing, empty, without fields, or of another format."""
    if content is not None:
        (tmp_path / "manifest.json").write_text(content)

    with pytest.raises(NotARun, match=r"manifest\.json"):
        open_run(tmp_path)


def test_replay_command_quotes_what_a_shell_would_split() -> None:
    """Users paste the command into a shell, so spaces and brackets must be quoted."""
    command = run_command_line(
        "my experiment.yaml", runtime="virtual", seed=7, overrides=["faults[0].at=1s"]
    )

    assert command == (
        "python -m coordlab run 'my experiment.yaml' --runtime virtual --seed 7 "
        "--var 'faults[0].at=1s'"
    )
