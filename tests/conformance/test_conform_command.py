"""What the command `coordlab conform` prints, and its exit codes.

The command gets a folder with recordings of a real Kafka. A recording consists of steps, each of
which is a request with Kafka's answer. The command plays the requests against our simulated
cluster, and compares the answers with Kafka's. A difference counts as a violation, because our
cluster promises to answer as Kafka does.
"""

import json
from pathlib import Path

import pytest

from coordlab.cli import run_cli
from results_schema.results import EXIT_BAD_ARGUMENTS, EXIT_PASS, EXIT_VIOLATED

SCENARIOS = Path(__file__).parent / "transcripts" / "3.9" / "scenarios"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with one recording, `mine/generations.json`.

    Our cluster gives the same answers as in this recording. The folder is outside of the
    repository, as that of a user.
    """
    below = tmp_path / "mine"
    below.mkdir()
    (below / "generations.json").write_bytes((SCENARIOS / "generations.json").read_bytes())
    return tmp_path


def spoil(folder: Path) -> None:
    """Change the recorded answers of steps 2 and 5, so that our cluster gives others."""
    path = folder / "mine" / "generations.json"
    recording = json.loads(path.read_text())
    # Steps are counted from 1, so `steps[1]` is step 2. Its recorded generation is 1, the first
    # generation of a group.
    recording["steps"][1]["response"]["generation_id"] = 2
    recording["steps"][4]["response"]["error_code"] = 99
    path.write_text(json.dumps(recording))


def test_conform_of_equal_recordings_passes(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(["conform", str(folder)]) == EXIT_PASS
    printed = capsys.readouterr().out
    assert "steps are equal (100.00 %); 1 of 1 files are equal as a whole" in printed


def test_conform_prints_the_first_difference_of_a_file(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second difference (error code 99) is printed only with `--all`."""
    spoil(folder)
    assert run_cli(["conform", str(folder)]) == EXIT_VIOLATED
    printed = capsys.readouterr().out
    assert "step 2 JoinGroup v9: answer generation_id: expected 2, came 1" in printed
    assert "expected 99" not in printed
    assert run_cli(["conform", str(folder), "--all"]) == EXIT_VIOLATED
    assert "expected 99" in capsys.readouterr().out


def test_conform_as_json_has_shares_and_every_difference(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spoil(folder)
    assert run_cli(["conform", str(folder), "--json"]) == EXIT_VIOLATED
    document = json.loads(capsys.readouterr().out)
    # All steps are equal, except the two steps that `spoil` has changed.
    steps = document["share"]["steps"]
    assert document["share"] == {"equal": steps - 2, "steps": steps}
    assert document["equal_files"] == 0
    (file,) = document["files"]
    assert [difference["n"] for difference in file["differences"]] == [2, 5]
    assert document["by_api"]["JoinGroup"]["equal"] < document["by_api"]["JoinGroup"]["steps"]
    assert list(document["by_folder"]) == [str(folder / "mine")]


def test_conform_of_a_bad_file_names_the_place_and_plays_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All files are read before one is played. So nothing is printed about the good file."""
    (folder / "bad.json").write_text("{")
    assert run_cli(["conform", str(folder)]) == EXIT_BAD_ARGUMENTS
    printed = capsys.readouterr()
    assert printed.out == ""
    assert str(folder / "bad.json") in printed.err


def test_conform_of_no_folder_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["conform", "nowhere"]) == EXIT_BAD_ARGUMENTS
    assert "there is no such folder" in capsys.readouterr().err
