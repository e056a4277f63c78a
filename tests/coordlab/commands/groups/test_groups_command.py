"""`groups` at a moment of a replay: what it prints, its exit codes, and what it refuses."""

import json
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
from results_schema.manifest import RunStatus
from results_schema.results import EXIT_BAD_ARGUMENTS, EXIT_PASS, EXIT_VIOLATED
from tests.support.builders.quick_experiment import quick_experiment
from tests.support.harness.golden import Golden

Captured = pytest.CaptureFixture[str]
GROUP = "readers"
QUICK = quick_experiment()


def crash_time_us() -> int:
    """When the coordinator of `QUICK` is killed, a second after the steady state."""
    times: list[int] = []
    play(
        QUICK,
        0,
        observers=[lambda row: times.append(row.time_us) if row.kind == "node_killed" else None],
    )
    return times[0]


CRASH_US = crash_time_us()
STEADY_US = CRASH_US - 500_000
STEADY = f"{STEADY_US}us"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in an empty folder with the experiment in it, on a wide terminal."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    Path("quick.yaml").write_text(experiment_text(QUICK))


def groups(*arguments: str, at: str = STEADY) -> int:
    return run_cli(["groups", *arguments, "--replay", "quick.yaml", "--at", at])


def document(captured: Captured) -> Any:  # noqa: ANN401 - what JSON holds
    return json.loads(captured.readouterr().out)


def test_groups_of_a_moment_are_listed_with_the_reasons_of_their_rebalances(
    capsys: Captured,
) -> None:
    """One group, its coordinator, and the rebalance that formed it."""
    assert groups("list", "--why") == EXIT_PASS

    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith(f"quick.yaml at {STEADY_US / 1e6:.6f}s, answered after 0.0")
    assert said[1].split() == ["GROUP", "TYPE", "STATE", "COORDINATOR", "(ID)"]
    assert said[2].split()[:3] == [GROUP, "classic", "Stable"]
    assert said[3] == f"{GROUP}: 1 rebalance so far"
    assert "generation 0 to 1 in 1.00" in said[4], "the initial delay, twice"
    assert "because: join of consumer-readers-" in said[5]
    assert said[6].strip() == "came: consumer-readers-0 and 1"
    assert not Path("runs").exists(), "nothing of the run is written"


def test_groups_are_listed_by_their_states_and_types(capsys: Captured) -> None:
    """Letter case does not count; every group here is a classic one."""
    for words, count in {
        ("--state", "STABLE,empty"): 1,
        ("--state", "Dead"): 0,
        ("--type", "classic"): 1,
        ("--type", "consumer"): 0,
    }.items():
        assert groups("list", *words, "--json") == EXIT_PASS
        assert len(document(capsys)["groups"]) == count, words


def test_same_question_at_the_same_moment_has_the_same_answer(capsys: Captured) -> None:
    """Virtual time: what the asking takes is part of the run."""
    documents = []
    for _ in range(2):
        assert groups("describe", "--all-groups", "--why", "--json") == EXIT_PASS
        documents.append(document(capsys))
    assert documents[0] == documents[1]
    (group,) = documents[0]["groups"]
    assert (group["group"], group["state"], group["error"]) == (GROUP, "Stable", None)
    assert [member["client_id"] for member in group["members"]]
    (rebalance,) = documents[0]["rebalances"][GROUP]
    assert rebalance["reason"] == "join"
    assert rebalance["length_us"] == rebalance["join_us"] + rebalance["sync_us"]
    assert documents[0]["asked"]["asked_at_us"] == STEADY_US


def test_described_offsets_members_and_state_have_kafkas_columns(capsys: Captured) -> None:
    """What kafka-consumer-groups prints, heading by heading."""
    headings = {
        (): [
            *("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"),
            *("CONSUMER-ID", "HOST", "CLIENT-ID"),
        ],
        ("--members", "--verbose"): [
            *("GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS", "ASSIGNMENT"),
        ],
        ("--state",): [
            *("GROUP", "COORDINATOR", "(ID)", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS"),
        ],
    }
    for options, expected in headings.items():
        assert groups("describe", "--group", GROUP, *options) == EXIT_PASS
        _asked, heading, first, *_ = capsys.readouterr().out.splitlines()
        assert heading.split() == expected
        assert first.split()[0] == GROUP


def test_question_after_the_crash_of_the_coordinator_waits_for_the_next_one(
    capsys: Captured,
) -> None:
    """Time goes on until the controller fenced the dead broker, and the next one has loaded."""
    at_us = CRASH_US + 100_000
    arguments = ("describe", "--group", GROUP, "--state", "--why", "--json")
    assert groups(*arguments, at=f"{at_us}us") == EXIT_PASS

    found = document(capsys)
    took_us = found["asked"]["answered_at_us"] - found["asked"]["asked_at_us"]
    assert 1_000_000 < took_us < 5_000_000
    (group,) = found["groups"]
    assert group["state"] == "Stable"
    assert len(found["rebalances"][GROUP]) == 1, "a failover without a rebalance"


def test_question_that_may_not_wait_says_what_came_last(capsys: Captured) -> None:
    """Nobody listens at the coordinator that the brokers still name."""
    at_us = CRASH_US + 100_000
    code = groups("describe", "--group", GROUP, "--timeout", "500ms", at=f"{at_us}us")

    assert code == EXIT_VIOLATED
    assert f"Error: group {GROUP}: DISCONNECTED, still after 0.5 s" in capsys.readouterr().out


def test_coordinator_that_was_replaced_and_does_not_know_it_can_be_asked_itself(
    capsys: Captured,
) -> None:
    """Cut off from all brokers: they have given it up, and it still has its group.

    Which brokers there are any of them may be asked, the one that is cut off too: then both stand
    in the list.
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
    (old,) = document(capsys)["groups"]

    at = f"{CRASH_US + 3_000_000}us"
    assert groups("list", "--json", at=at) == EXIT_PASS
    claims = document(capsys)["groups"]
    assert any(claim["coordinator"] != old["coordinator"] for claim in claims)
    assert groups("list", "--json", "--broker", str(old["coordinator"]), at=at) == EXIT_PASS
    assert document(capsys)["groups"] == [old]


def test_group_that_does_not_exist_is_an_error_with_kafkas_name(capsys: Captured) -> None:
    """The group that does is described all the same."""
    code = groups("describe", "--group", "nobody", "--group", GROUP, "--state")

    said = capsys.readouterr().out
    assert code == EXIT_VIOLATED
    assert "Error: group nobody does not exist: GROUP_ID_NOT_FOUND" in said
    assert "Stable" in said


def test_group_with_members_is_neither_deleted_nor_reset_and_they_are_named(
    capsys: Captured,
) -> None:
    """Whoever wants it must stop them first."""
    assert groups("delete", "--group", GROUP) == EXIT_VIOLATED
    refused = capsys.readouterr().out
    assert f"Error: group {GROUP} was not deleted: NON_EMPTY_GROUP, held by consumer-" in refused
    code = groups("reset-offsets", "--group", GROUP, "--all-topics", "--to-latest", "--execute")
    assert code == EXIT_VIOLATED
    refused = capsys.readouterr().out
    assert f"Error: offsets of {GROUP} cannot be reset: NON_EMPTY_GROUP, it is Stable" in refused
    assert "held by consumer-readers-" in refused
    assert groups("delete-offsets", "--group", GROUP, "--topic", "orders:0") == EXIT_VIOLATED
    assert "GROUP_SUBSCRIBED_TO_TOPIC" in capsys.readouterr().out


def test_reset_is_shown_and_with_execute_committed(capsys: Captured) -> None:
    """Of a group that never was; what lies outside of the log goes to its end."""
    arguments = ("reset-offsets", "--group", "tool", "--topic", "orders:0", "--to-offset", "9999")
    assert groups(*arguments) == EXIT_PASS
    said = capsys.readouterr().out
    assert "GROUP TOPIC  PARTITION NEW-OFFSET" in said
    assert "orders-0: 9999 is outside of the log" in said
    assert "nothing was changed: --execute commits these offsets" in said
    assert groups(*arguments, "--execute", "--json") == EXIT_PASS
    done = document(capsys)
    assert (done["executed"], done["state"], done["error"]) == (True, "Dead", None)
    (offset,) = done["offsets"]
    assert offset["asked_for"] == 9999
    assert 0 < offset["new_offset"] < 9999


def test_reset_of_an_unknown_topic_changes_nothing(capsys: Captured) -> None:
    """One of two is wrong: neither is committed."""
    topics = ("--topic", "orders:0", "--topic", "odrers")
    code = groups("reset-offsets", "--group", "tool", *topics, "--to-latest", "--execute")

    said = capsys.readouterr().out
    assert code == EXIT_VIOLATED
    assert "Error: odrers -: UNKNOWN_TOPIC_OR_PARTITION" in said
    assert said.splitlines()[-1] == "nothing was changed"


def test_moment_that_never_comes_is_refused_with_the_end_of_the_run(capsys: Captured) -> None:
    """There is no cluster to ask by then."""
    assert groups("list", at="3600s") == EXIT_BAD_ARGUMENTS
    assert "before 3600.000000s" in capsys.readouterr().err


def test_run_that_ends_before_an_answer_is_told(capsys: Captured) -> None:
    """Everybody is stopped: nobody answers, and nobody ever will."""
    ended_us = play(QUICK, 0).virtual_us
    code = groups("list", at=f"{ended_us - 1}us")

    assert code == EXIT_VIOLATED
    assert "Error: the run ended at" in capsys.readouterr().out


def test_schedule_of_other_code_is_refused_unless_forced(capsys: Captured) -> None:
    """As `replay` refuses it: the answers would be another run's."""
    stamp = msgspec.structs.replace(stamp_of(QUICK, play(QUICK, 0)), code="0f")
    stamped = msgspec.structs.replace(QUICK, replay=stamp)
    Path("found.yaml").write_text(experiment_text(stamped))
    arguments = ["groups", "list", "--replay", "found.yaml", "--at", STEADY]

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


def test_what_cannot_be_asked_is_refused_before_anything_is_played(
    capsys: Captured, golden: Golden
) -> None:
    """Usage errors are 254, and say what was expected."""
    said = []
    for arguments in REFUSED:
        assert run_cli(["groups", *arguments]) == EXIT_BAD_ARGUMENTS, arguments
        error = capsys.readouterr().err.replace(str(Path.cwd()), "FOLDER")
        said.append(f"$ coordlab groups {' '.join(arguments)}\n{error.rstrip()}\n")
    golden.check("pages/refused.txt", "\n".join(said))


def test_without_a_running_run_there_is_nobody_to_ask(capsys: Captured) -> None:
    """And what can be asked instead is said."""
    assert run_cli(["groups", "list"]) == EXIT_BAD_ARGUMENTS
    told = capsys.readouterr().err
    assert "none of the runs in runs goes on now on Ray on this machine" in told
    assert "--replay split_brain_generations --at 60s" in told


@pytest.mark.parametrize(
    ("runtime", "change", "told"),
    [
        ("virtual", {}, "is a run in virtual time"),
        ("ray", {"status": RunStatus.COMPLETED, "ended_at": "now"}, "is completed"),
        ("ray", {"pid": 2**22 + 1}, "ended without a word"),
        ("ray", {"host": "elsewhere"}, "is driven from elsewhere: ask there"),
        ("ray", {"config": {}}, "is a run of another version"),
        ("ray", {}, "cannot be asked: there is no"),
    ],
    ids=["virtual", "completed", "killed", "elsewhere", "other version", "no listeners"],
)
def test_run_that_cannot_be_asked_says_why(
    capsys: Captured, runtime: str, change: dict[str, object], told: str
) -> None:
    """Named, or found as the latest: nobody waits for a cluster that is not there."""
    directory = create_run_directory(
        Path("runs"), QUICK, plan_of(QUICK), seed=0, runtime=runtime, replay=""
    )
    for name, value in change.items():
        setattr(directory.manifest, name, value)
    directory.write_manifest()

    assert run_cli(["groups", "list", "--run", str(directory.path)]) == EXIT_BAD_ARGUMENTS
    assert told in capsys.readouterr().err
    assert run_cli(["groups", "list"]) == EXIT_BAD_ARGUMENTS
