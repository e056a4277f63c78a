"""Directories that another version of coordlab wrote in another form are refused with a message.

A run writes a directory of files. An exploration, which is a search that plays many runs, writes a
directory, too. The files have a "form". This is a number, the field `format` of `manifest.json`,
the file that describes the directory. A later version of coordlab that gives the files other fields
also gives them the next number.
"""

import json
from pathlib import Path

import pytest

from chaos.exploration.store import NotAnExploration, open_exploration
from chaos.results.run_directory import NotARun, PastRun, list_runs, open_run, scan_runs

MANIFEST = {
    "run": "small/2026-01-01T00-00-00.000Z",
    "experiment": "small",
    "config": {},
    "plan": [],
    "seed": 1,
    "runtime": "virtual",
    "status": "completed",
    "pid": 1,
    "host": "elsewhere",
    "started_at": "2026-01-01T00:00:00.000+00:00",
    "replay": "python -m coordlab run small",
}


def write_manifest(folder: Path, **fields: object) -> Path:
    """Write a manifest with these fields into the folder, and return the folder."""
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text(json.dumps(fields))
    return folder


def test_manifest_without_a_form_is_read_as_the_first(tmp_path: Path) -> None:
    """Manifests that were written before the forms had numbers have no field `format`."""
    folder = write_manifest(tmp_path / "small" / "a", **MANIFEST)
    assert open_run(folder).manifest.format == 1


def test_run_of_a_later_form_is_refused_with_form_and_writer(tmp_path: Path) -> None:
    """Files of a later form may have data that this version would silently ignore."""
    folder = write_manifest(
        tmp_path / "small" / "a", **MANIFEST, format=7, versions={"coordlab": "0.9.0"}
    )
    with pytest.raises(NotARun) as refused:
        PastRun(folder)
    assert str(refused.value) == (
        f"{folder / 'manifest.json'} was written in form 7 by coordlab 0.9.0, this version reads "
        "form 1: read it with the version that wrote it"
    )


def test_run_of_a_later_form_with_other_fields_is_refused_for_its_form(tmp_path: Path) -> None:
    """The form is read before the other fields.

    So the message names the form, and no missing field.
    """
    folder = write_manifest(tmp_path / "small" / "a", format=2, unknown_field="x")
    with pytest.raises(NotARun, match="was written in form 2, this version reads form 1"):
        PastRun(folder)


def test_other_runs_are_listed_beside_one_of_a_later_form(tmp_path: Path) -> None:
    """A run of another version must not hide the runs that can be read.

    `list_runs` returns the readable runs only. `scan_runs` also returns an error for each run that
    cannot be read.
    """
    write_manifest(tmp_path / "small" / "a", **MANIFEST)
    write_manifest(tmp_path / "small" / "b", **MANIFEST, format=7)
    assert [past.path.name for past in list_runs(tmp_path)] == ["a"]
    assert [str(scanned) for scanned in scan_runs(tmp_path) if isinstance(scanned, NotARun)] == [
        f"{tmp_path / 'small' / 'b' / 'manifest.json'} was written in form 7, this version reads "
        "form 1: read it with the version that wrote it"
    ]


def test_exploration_of_a_later_form_is_refused_with_its_form(tmp_path: Path) -> None:
    """`explore --resume` opens folders with `open_exploration`, so it refuses such a folder."""
    folder = write_manifest(tmp_path / "standard" / "a", format=3)
    with pytest.raises(NotAnExploration, match="was written in form 3, this version reads form 1"):
        open_exploration(folder)
