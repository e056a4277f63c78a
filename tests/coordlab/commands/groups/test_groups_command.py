"""`groups` at a moment of a replay: its output, its exit codes, and what it refuses.

`coordlab groups` asks a cluster about its groups, as kafka-consumer-groups does. With `--replay
FILE --at 60s` it plays an experiment in virtual time up to that moment, and asks the cluster then.
The experiment of these tests, `QUICK`, has one fault: the coordinator of its group `readers`
crashes.
"""

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from chaos.experiment.dump import experiment_text
from chaos.exploration.play import play
from chaos.exploration.replay_file import stamp_of
from chaos.results.run_directory import create_run_directory
from chaos.run.plan import plan_of
from coordlab.cli import run_cli
from protocol.trace import TraceRow
from results_schema.manifest import RunStatus
from results_schema.results import EXIT_BAD_ARGUMENTS, EXIT_PASS, EXIT_VIOLATED
from tests.support.builders.quick_experiment import quick_experiment
from tests.support.harness.golden import Golden
from tests.support.transcripts.words import number_uuids

Captured = pytest.CaptureFixture[str]
GROUP = "readers"
QUICK = quick_experiment()


def crash_time_us() -> int:
    """Return the time at which the coordinator is killed in `QUICK`.

    This is 1 s after the steady state has begun.
    """
    rows: list[TraceRow] = []
    play(QUICK, seed=0, observers=[rows.append])
    return next(row.time_us for row in rows if row.kind == "node_killed")


CRASH_US = crash_time_us()
STEADY_US = CRASH_US - 500_000
WHILE_STEADY = f"{STEADY_US}us"
"""The value of `--at` for half a second before the crash, when the group is stable."""
AFTER_CRASH = f"{CRASH_US + 100_000}us"
"""The value of `--at` for a moment at which brokers still name the dead coordinator."""


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in an empty folder with the experiment in it, on a wide terminal."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    Path("quick.yaml").write_text(experiment_text(QUICK))


def groups(*arguments: str, at: str = WHILE_STEADY) -> int:
    """Run `groups` at a moment of the replay; return its exit code."""
    return run_cli(["groups", *arguments, "--replay", "quick.yaml", "--at", at])


def document(captured: Captured) -> Any:  # noqa: ANN401 - what JSON holds
    """Return the JSON that the command has printed since the last call."""
    return json.loads(captured.readouterr().out)


RESET_TOOL = ("reset-offsets", "--group", "tool", "--topic", "orders:0")
"""The beginning of a command that resets an offset of the group `tool`, which does not exist yet.
"""
ANSWERED = (
    (EXIT_PASS, WHILE_STEADY, ("list", "--why")),
    (EXIT_PASS, WHILE_STEADY, ("describe", "--group", GROUP)),
    (EXIT_PASS, WHILE_STEADY, ("describe", "--group", GROUP, "--members", "--verbose")),
    (EXIT_PASS, WHILE_STEADY, ("describe", "--group", GROUP, "--state")),
    (EXIT_VIOLATED, WHILE_STEADY, ("describe", "--group", "nobody", "--group", GROUP, "--state")),
    (EXIT_VIOLATED, AFTER_CRASH, ("describe", "--group", GROUP, "--timeout", "500ms")),
    (EXIT_VIOLATED, WHILE_STEADY, ("delete", "--group", GROUP)),
    (
        EXIT_VIOLATED,
        WHILE_STEADY,
        ("reset-offsets", "--group", GROUP, "--all-topics", "--to-latest", "--execute"),
    ),
    (EXIT_VIOLATED, WHILE_STEADY, ("delete-offsets", "--group", GROUP, "--topic", "orders:0")),
    (EXIT_PASS, WHILE_STEADY, (*RESET_TOOL, "--to-offset", "9999")),
    (EXIT_VIOLATED, WHILE_STEADY, (*RESET_TOOL, "--topic", "odrers", "--to-latest", "--execute")),
)
"""Exit code, moment and command line of each question.

EXIT_VIOLATED (1) means here that an answer is an error.
"""


def test_answers_equal_the_reviewed_pages(capsys: Captured, golden: Golden) -> None:
    """Answers have the columns, reasons, errors and names of Kafka's tool.

    Before the comparison, each time is replaced by `#` and each uuid by a number, because most
    changes of the code change times and uuids.
    """
    outputs: list[str] = []
    numbers_of_uuids: dict[str, int] = {}
    for code, at, arguments in ANSWERED:
        assert groups(*arguments, at=at) == code, arguments
        answer = re.sub(r"\d+\.\d{2,}", "#", capsys.readouterr().out)
        lines = [line.rstrip() for line in number_uuids(answer, numbers_of_uuids).splitlines()]
        outputs.append("\n".join((f"$ coordlab groups {' '.join(arguments)}", *lines)) + "\n")
    assert not Path("runs").exists(), "nothing of the run is written"
    golden.check("pages/answers.txt", "\n".join(outputs))


def test_groups_are_filtered_by_their_states_and_types(capsys: Captured) -> None:
    """The only group is Stable and has the type `classic`.

    States are compared without regard to upper and lower case, so `STABLE` finds the group.
    """
    for option, value, count in (
        ("--state", "STABLE,empty", 1),
        ("--state", "Dead", 0),
        ("--type", "classic", 1),
        ("--type", "consumer", 0),
    ):
        assert groups("list", option, value, "--json") == EXIT_PASS
        assert len(document(capsys)["groups"]) == count, (option, value)


def test_question_at_one_moment_always_has_the_same_answer(capsys: Captured) -> None:
    """The requests are a part of the replayed run. It is in virtual time, so it can be repeated."""
    question = ("describe", "--all-groups", "--why", "--json")
    assert groups(*question) == EXIT_PASS
    answer = document(capsys)
    assert groups(*question) == EXIT_PASS
    assert document(capsys) == answer

    (group,) = answer["groups"]
    assert (group["group"], group["state"], group["error"]) == (GROUP, "Stable", None)
    assert [member["client_id"] for member in group["members"]]
    (rebalance,) = answer["rebalances"][GROUP]
    assert rebalance["reason"] == "join"
    assert rebalance["length_us"] == rebalance["join_us"] + rebalance["sync_us"]
    assert answer["asked"]["asked_at_us"] == STEADY_US


def test_question_after_the_crash_of_the_coordinator_waits_for_the_next_one(
    capsys: Captured,
) -> None:
    """The next coordinator answers the question as soon as it has loaded the group.

    Before that, the controller must fence the dead broker. All this takes 1 to 5 s, because the
    brokers of this experiment have short sessions.
    """
    at_us = CRASH_US + 100_000
    arguments = ("describe", "--group", GROUP, "--state", "--why", "--json")
    assert groups(*arguments, at=f"{at_us}us") == EXIT_PASS

    answer = document(capsys)
    took_us = answer["asked"]["answered_at_us"] - answer["asked"]["asked_at_us"]
    assert 1_000_000 < took_us < 5_000_000
    (group,) = answer["groups"]
    assert group["state"] == "Stable"
    # The only rebalance is the first rebalance of the group, long before the crash.
    assert len(answer["rebalances"][GROUP]) == 1, "a failover without a rebalance"


def test_replaced_coordinator_that_is_cut_off_can_be_asked(
    capsys: Captured,
) -> None:
    """A cut separates the coordinator from the other brokers, and another broker takes over.

    Both brokers then have the group (a split brain). With `--broker` only the old coordinator is
    asked, and answers as before. Without `--broker` all brokers are asked, and the answer has the
    new coordinator.
    """
    cut = {
        "at": "1s",
        "fault": "cut",
        "from": f"coordinator-of({GROUP})",
        "to": ["controller", "brokers"],
        "duration": "4s",
    }
    Path("quick.yaml").write_text(experiment_text(quick_experiment(faults=[cut])))
    assert groups("list", "--json") == EXIT_PASS
    (before_cut,) = document(capsys)["groups"]
    old_coordinator = before_cut["coordinator"]

    # The cut begins at CRASH_US, because it has the time of the crash in `QUICK`, and lasts 4 s.
    during_cut = f"{CRASH_US + 3_000_000}us"
    assert groups("list", "--json", at=during_cut) == EXIT_PASS
    listed = document(capsys)["groups"]
    assert any(group["coordinator"] != old_coordinator for group in listed)
    assert groups("list", "--json", "--broker", str(old_coordinator), at=during_cut) == EXIT_PASS
    assert document(capsys)["groups"] == [before_cut]


def test_reset_is_committed_with_execute(capsys: Captured) -> None:
    """The reset creates the group `tool`, and commits an offset for this group.

    The log is shorter than 9999 records, so the log's end is committed instead. `state` is the
    state before the reset: Dead, because the group did not exist.
    """
    assert groups(*RESET_TOOL, "--to-offset", "9999", "--execute", "--json") == EXIT_PASS
    answer = document(capsys)
    assert (answer["executed"], answer["state"], answer["error"]) == (True, "Dead", None)
    (offset,) = answer["offsets"]
    assert offset["asked_for"] == 9999
    assert 0 < offset["new_offset"] < 9999


def test_moment_that_never_comes_is_refused_with_the_end_of_the_run(capsys: Captured) -> None:
    """The run ends before 3600 s, so there is no cluster to ask."""
    assert groups("list", at="3600s") == EXIT_BAD_ARGUMENTS
    assert "before 3600.000000s" in capsys.readouterr().err


def test_run_that_ends_before_an_answer_is_reported(capsys: Captured) -> None:
    """The question is asked a microsecond before the run ends, so no answer can arrive."""
    ended_us = play(QUICK, seed=0).virtual_us
    code = groups("list", at=f"{ended_us - 1}us")

    assert code == EXIT_VIOLATED
    assert "Error: the run ended at" in capsys.readouterr().out


def test_schedule_of_other_code_is_refused_unless_forced(capsys: Captured) -> None:
    """The stamp of the file names the version of the code that played the schedule.

    Another version may give another run, with other answers. So the file is refused.
    """
    stamp = msgspec.structs.replace(stamp_of(QUICK, play(QUICK, seed=0)), code="0f")
    stamped = msgspec.structs.replace(QUICK, replay=stamp)
    Path("found.yaml").write_text(experiment_text(stamped))
    arguments = ["groups", "list", "--replay", "found.yaml", "--at", WHILE_STEADY]

    assert run_cli(arguments) == EXIT_BAD_ARGUMENTS
    assert "the code is another" in capsys.readouterr().err
    assert run_cli([*arguments, "--force"]) == EXIT_PASS


REFUSED = (
    ["list", "--at", "1s"],
    ["list", "--replay", "quick.yaml"],
    ["list", "--replay", "quick.yaml", "--at", "1s", "--run", "."],
    ["list", "--replay", "nowhere.yaml", "--at", "1s"],
    ["describe"],
    ["describe", "--group", "g", "--all-groups"],
    ["describe", "--group", "g", "--members", "--state"],
    ["describe", "--group", "g", "--verbose"],
    ["delete"],
    ["delete-offsets", "--group", "g"],
    ["delete-offsets", "--group", "g", "--topic", "t:x"],
    ["reset-offsets", "--group", "g", "--to-latest"],
    ["reset-offsets", "--group", "g", "--all-topics"],
    ["reset-offsets", "--group", "g", "--all-topics", "--to-latest", "--shift-by", "1"],
    ["reset-offsets", "--group", "g", "--all-topics", "--to-offset", "-1"],
    ["list", "--replay", "quick.yaml", "--at", "1s", "--broker", "9"],
    ["list", "--state", "stable,Emty"],
    ["list", "--type", "share"],
    ["lsit"],
)


def test_invalid_question_is_refused_before_the_replay(capsys: Captured, golden: Golden) -> None:
    """A wrong command line has exit code 254, and a message that names the expected value."""
    outputs = []
    for arguments in REFUSED:
        assert run_cli(["groups", *arguments]) == EXIT_BAD_ARGUMENTS, arguments
        error = capsys.readouterr().err.replace(str(Path.cwd()), "FOLDER")
        outputs.append(f"$ coordlab groups {' '.join(arguments)}\n{error.rstrip()}\n")
    golden.check("pages/refused.txt", "\n".join(outputs))


def test_groups_without_a_running_run_suggests_a_replay(capsys: Captured) -> None:
    """The message suggests a command that works without a run in progress."""
    assert run_cli(["groups", "list"]) == EXIT_BAD_ARGUMENTS
    error_output = capsys.readouterr().err
    assert "none of the runs in runs is in progress in real time on this machine" in error_output
    assert "--replay split_brain_generations --at 60s" in error_output


@pytest.mark.parametrize(
    ("runtime", "change", "error_output"),
    [
        ("virtual", {}, "is a run in virtual time"),
        ("ray", {"status": RunStatus.COMPLETED, "ended_at": "now"}, "is completed"),
        # No process of Linux has so large a pid, so the process that drove the run seems dead.
        ("ray", {"pid": 2**22 + 1}, "broke off"),
        ("ray", {"host": "elsewhere"}, "is driven from elsewhere: ask there"),
        ("ray", {"config": {}}, "is a run of another version"),
        ("ray", {}, "cannot be asked: there is no"),
    ],
    ids=["virtual", "completed", "killed", "elsewhere", "other version", "no listeners"],
)
def test_run_that_cannot_be_asked_is_refused_with_the_reason(
    capsys: Captured, runtime: str, change: dict[str, object], error_output: str
) -> None:
    """The command refuses at once if the cluster has ended or is on another machine.

    `change` replaces fields of the run's manifest.
    """
    directory = create_run_directory(
        Path("runs"), QUICK, plan_of(QUICK), seed=0, runtime=runtime, replay=""
    )
    for name, value in change.items():
        setattr(directory.manifest, name, value)
    directory.write_manifest()

    assert run_cli(["groups", "list", "--run", str(directory.path)]) == EXIT_BAD_ARGUMENTS
    assert error_output in capsys.readouterr().err
    # Without `--run` the command looks for a run itself, and refuses this run, too.
    assert run_cli(["groups", "list"]) == EXIT_BAD_ARGUMENTS
