"""`coordlab init` writes an experiment file, which must run, explain itself, and overwrite nothing.

`init mine` writes `mine.yaml`, with a cluster, a plan with one fault, and all settings that a new
user may want to change. A setting whose value is the default is commented out: `#name: value`.
"""

import re
from pathlib import Path

import msgspec
import pytest
import yaml

from chaos.checkers.registry import CHECKERS
from chaos.experiment.loader import list_experiments, load_experiment
from chaos.experiment.structs import Experiment
from chaos.faults.registry import FAULT_KINDS
from chaos.results.run_directory import open_run
from coordlab.cli import run_cli
from coordlab.commands.init.command import fault_plans
from results_schema.results import EXIT_BAD_ARGUMENTS, EXIT_PASS

COMMENTED_OUT = re.compile(r"^( *)#(?=[a-z])", re.MULTILINE)
"""Finds the `#` before a setting that is commented out, with its indentation. The `#` of a comment
in words is not found, because a space follows it."""
QUOTED_DEFAULT = re.compile(r"Default:(?:\n +#)? (\S+)\.(\n +[a-z._]+:) (\S+)$", re.MULTILINE)
"""Finds a setting with a comment above it that quotes its default, in two lines such as these:

# How many replicas must have a record. Default: 1.
min.insync.replicas: 2

The groups of the pattern are the default (1), the line end with the name, and the value (2).
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_fault_has_an_example() -> None:
    """A person who adds a kind of fault must add a plan that shows it."""
    assert list(fault_plans()) == list(FAULT_KINDS)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULT_KINDS)
def test_new_experiment_runs_unchanged_and_proves_something(
    here: Path, fault: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The fault of the new file hits, the file has no warning, and the verdict is pass."""
    assert run_cli(["init", "mine", "--fault", fault]) == EXIT_PASS
    assert load_experiment("mine.yaml").warnings == ()

    arguments = ("--runtime", "virtual", "--seed", "1", "--no-analyze", "--no-trace")
    assert run_cli(["run", "mine.yaml", *arguments]) == EXIT_PASS, capsys.readouterr().out

    journal_of_faults = open_run(here / "runs" / "mine").journal()
    assert fault in {entry.fault for entry in journal_of_faults}
    assert {entry.outcome.value for entry in journal_of_faults} == {"hit"}


@pytest.mark.usefixtures("here")
def test_commented_lines_have_the_defaults() -> None:
    """If a user removes the # before a setting, the file is valid and means the same."""
    run_cli(["init", "mine"])
    text = Path("mine.yaml").read_text()
    Path("uncommented.yaml").write_text(COMMENTED_OUT.sub(r"\1", text))

    as_written = load_experiment("mine.yaml").experiment
    uncommented = load_experiment("uncommented.yaml").experiment

    assert len(COMMENTED_OUT.findall(text)) > 20  # the pattern still finds the lines
    assert uncommented.groups["readers"].config.group_instance_id == "readers-{index}"
    assert uncommented.checks == ("fencing", "durable_commits")
    # These two commented lines are examples. All other commented lines have defaults.
    without_examples = msgspec.to_builtins(uncommented)
    without_examples["groups"]["readers"]["config"]["group.instance.id"] = None
    without_examples["checks"] = []
    assert msgspec.convert(without_examples, Experiment) == as_written


@pytest.mark.usefixtures("here")
def test_defaults_quoted_in_comments_are_those_of_the_settings() -> None:
    """If a setting differs from Kafka's default, the comment above it quotes the default.

    A file with all quoted defaults must mean the same as a file without these settings.
    """
    run_cli(["init", "mine"])
    uncommented = COMMENTED_OUT.sub(r"\1", Path("mine.yaml").read_text())
    # In quoted.yaml the quoted defaults replace the values. In unset.yaml the settings are removed.
    Path("quoted.yaml").write_text(QUOTED_DEFAULT.sub(r"\2 \1", uncommented))
    Path("unset.yaml").write_text(QUOTED_DEFAULT.sub("", uncommented))

    quoted = load_experiment("quoted.yaml").experiment
    unset = load_experiment("unset.yaml").experiment

    # Six settings of the file have another value than Kafka's default.
    quotations = QUOTED_DEFAULT.findall(uncommented)
    assert len(quotations) == 6
    assert uncommented.count("Default:") == 6
    assert all(default != value for default, _, value in quotations)
    assert quoted == unset


@pytest.mark.usefixtures("here")
def test_comment_lists_all_checks() -> None:
    """The comment of the key `checks` says that a run without the key has all checks."""
    run_cli(["init", "mine"])
    text = " ".join(Path("mine.yaml").read_text().replace("\n#", "").split())

    assert f"without this line all: {', '.join(CHECKERS)}." in text


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("fault", FAULT_KINDS)
def test_new_file_fits_a_screen_and_has_the_commands_to_check_and_run_it(fault: str) -> None:
    """The commands in the file help a user who opens it later."""
    run_cli(["init", "mine", "--fault", fault])
    text = Path("mine.yaml").read_text()
    assert max(len(line) for line in text.splitlines()) <= 100
    assert "python -m coordlab validate mine.yaml" in text
    assert "python -m coordlab run mine.yaml --runtime virtual" in text


def test_new_file_of_a_name_is_written_where_run_finds_it(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """If there is a folder `experiments`, the file is written into it, and `run mine` finds it.

    The output ends with this next step.
    """
    (here / "experiments").mkdir()

    assert run_cli(["init", "mine"]) == EXIT_PASS

    output = capsys.readouterr().out
    assert load_experiment("mine").experiment.name == "mine"
    assert output.startswith("wrote experiments/mine.yaml")
    assert "python -m coordlab run mine --runtime virtual --seed 1" in output


@pytest.mark.parametrize("name", ["sub/mine", "sub/mine.yaml", "sub/mine.yml"])
@pytest.mark.usefixtures("here")
def test_new_file_of_a_path_is_named_after_it(name: str) -> None:
    """`init` creates the folders of the path that are missing."""
    assert run_cli(["init", name]) == EXIT_PASS

    path = Path(name if "." in name else f"{name}.yaml")
    assert load_experiment(str(path)).experiment.name == "mine"


def test_existing_file_is_not_overwritten_without_force(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A user who repeats the command must not lose an edited file."""
    (here / "mine.yaml").write_text("my work")

    assert run_cli(["init", "mine"]) == EXIT_BAD_ARGUMENTS
    assert "mine.yaml exists already" in " ".join(capsys.readouterr().err.split())
    assert (here / "mine.yaml").read_text() == "my work"

    assert run_cli(["init", "mine", "--force"]) == EXIT_PASS
    assert load_experiment("mine.yaml").experiment.name == "mine"


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("source", [listed.name for listed in list_experiments()])
def test_copy_of_a_shipped_experiment_differs_only_in_its_name(source: str) -> None:
    """The copy has the comments of the original, because they describe the experiment's result."""
    original = load_experiment(source)

    assert run_cli(["init", "mine", "--from", source]) == EXIT_PASS

    copied = load_experiment("mine.yaml").experiment
    assert msgspec.structs.replace(copied, name=source) == original.experiment
    comments = [line for line in original.path.read_text().splitlines() if line.startswith("#")]
    assert set(comments) <= set(Path("mine.yaml").read_text().splitlines())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["two words"], "expected letters, digits, `-` and `_`"),
        (["mine", "--fault", "crahs"], "did you mean `crash`?"),
        (["mine", "--from", "coordinator_crsh"], "did you mean `coordinator_crash`?"),
        (["mine", "--from", "coordinator_crash", "--fault", "crash"], "has its own plan"),
        (["file/mine"], "cannot be written"),
    ],
)
def test_bad_arguments_write_nothing(
    here: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The exit code is 254, and most messages have a suggestion.

    The last case has the path `file/mine`, and `file` is no folder.
    """
    (here / "file").write_text("")

    assert run_cli(["init", *arguments]) == EXIT_BAD_ARGUMENTS

    assert message in " ".join(capsys.readouterr().err.split())
    assert [path.name for path in here.iterdir()] == ["file"]


@pytest.mark.usefixtures("here")
def test_first_line_names_the_published_schema_for_editors() -> None:
    """The path of the schema exists, and the schema accepts the file."""
    run_cli(["init", "mine"])
    first, _, rest = Path("mine.yaml").read_text().partition("\n")

    mark, _, schema = first.partition("$schema=")
    assert mark == "# yaml-language-server: "
    assert yaml.safe_load(Path(schema).read_text())["title"] == "coordlab experiment"
    assert yaml.safe_load(rest)["name"] == "mine"


def test_schema_command_prints_the_published_file(capsys: pytest.CaptureFixture[str]) -> None:
    """The output is equal to the file byte for byte, so `schema > file` installs it."""
    assert run_cli(["schema"]) == EXIT_PASS
    published = Path(__file__).resolve().parents[4] / "docs" / "experiment.schema.json"
    assert capsys.readouterr().out == published.read_text()
