"""`python -m coordlab` from outside: exit codes, output, and the files and processes that remain.

Every command is a process of its own in an empty folder. The runs are small, and use virtual time:
their clock is simulated, so nothing waits for it. Each run makes a directory. There the manifest
says what was played, the journal lists the faults, and the results have the verdict. The trace,
which is the list of all recorded events, is in the folder `events`.

These are the exit codes of a run:

- 0: it passed
- 1: a promise of Kafka's was violated
- 2: its verdict is unknown, because it proved too little
- 130: it was interrupted
- 254: its arguments are wrong
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from signal import SIGINT

import pytest

from chaos.checkers.registry import CHECKERS, context_of
from chaos.experiment.loader import find_experiment, load_experiment
from coordlab.cli import COMMANDS
from protocol.trace import TraceKind
from results_schema.manifest import RunStatus
from results_schema.results import RunOutcome, Verdict
from tests.support.harness.command_line import COMMAND_TIMEOUT_S, ROOT, CommandLine
from tests.support.worlds.acceptance import rows_of_run

pytestmark = pytest.mark.slow

VIRTUAL_RUN = ("run", "coordinator_crash", "--runtime", "virtual")
"""The command that plays the experiment coordinator_crash in virtual time."""
SMALL = (
    "--var=groups.orders-readers.members=3",
    "--var=topics.orders.partitions=3",
    "--var=producers[0].records_per_second=20",
    "--no-analyze",
)
"""Options that make the experiment small, and omit its analysis, which takes long."""
EVERY_HELP = """
import contextlib, io, json, sys
from coordlab.cli import COMMANDS, run_cli
helps = {}
for command in COMMANDS:
    with contextlib.redirect_stdout(io.StringIO()) as output:
        assert run_cli([command, "--help"]) == 0
    helps[command] = output.getvalue()
print(json.dumps({"helps": helps, "imported": "ray" in sys.modules}))
"""
"""A program that prints the help of every command, and whether Ray was imported meanwhile."""
NO_JAVA = {"PATH": "/nonexistent", "JAVA_HOME": None}
"""The environment of a computer without Java, which Spark needs."""


def write_edited(command_line: CommandLine, before: str, after: str) -> int:
    """Copy the experiment coordinator_crash to mine.yaml, with `after` in place of `before`.

    Return the number of the changed line.
    """
    text = find_experiment("coordinator_crash").read_text()
    assert text.count(before) == 1
    (command_line.folder / "mine.yaml").write_text(text.replace(before, after))
    return text[: text.index(before)].count("\n") + 1


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (
            "    commit_interval_ms: 200",
            "    commit_intervall_ms: 200",
            "groups.orders-readers.commit_intervall_ms: unknown key; expected one of 16 keys, "
            "nearest `commit_interval_ms`, `commit_metadata`, `members`, `poll_timeout_ms`, "
            "`topic_filter`; did you mean `commit_interval_ms`?",
        ),
        (
            "    auto.leader.rebalance.enable: false",
            "    auto.leader.rebalance.enabled: false",
            "cluster.config.auto.leader.rebalance.enabled: unknown key; "
            "expected one of 57 keys, nearest `auto.leader.rebalance.enable`, "
            "`unclean.leader.election.enable`, `log.cleaner.enable`, `auto.create.topics.enable`, "
            "`leader.imbalance.check.interval.seconds`; "
            "did you mean `auto.leader.rebalance.enable`?",
        ),
        (
            "    fault: crash",
            "    fault: crahs",
            "faults[0].fault: unknown fault `crahs`; expected one of `crash`, `power_loss`, "
            "`controlled_shutdown`, `pause`, `node_loss`, `machine_loss`, `machine_pause`, "
            "`machine_cut`, `rollout`, `scale`, `leadership_move`, "
            "`preferred_leader_election`, `remove_members`, `delete_group`, `delete_offsets`, "
            "`reset_offsets`, `create_topic`, `delete_topic`, `cut`, `clog`, `slow`, "
            "`reset`, `response_loss`; "
            "did you mean `crash`?",
        ),
        (
            "    target: coordinator-of(orders-readers)",
            "    target: coordinator-of(orders-raeders)",
            "faults[0].target: no group `orders-raeders` is defined; expected a group of the "
            "file: `orders-readers`, got `coordinator-of(orders-raeders)`; "
            "did you mean `coordinator-of(orders-readers)`?",
        ),
        (
            "    target: coordinator-of(orders-readers)",
            "    target: coordinatorof(orders-readers)",
            "faults[0].target: unknown target `coordinatorof`; expected one of "
            "`coordinator-of(<group>)`, `leader-of(<topic-partition>)`, "
            "`follower-of(<topic-partition>)`, `broker(<id>)`, `any-broker`, `controller`, "
            "`member(<group>, <index>)`, `leader-member-of(<group>)`, `brokers`, "
            "`members(<group>)`, `clients`, `all-topic-partitions`, `zookeeper(<id>)`, "
            "`zookeeper-leader`, `zookeepers`, `machine(<number>)`, `kafka-client(<client id>)`, "
            "`kafka-clients`, `machine-of(<target>)`, "
            "got `coordinatorof(orders-readers)`; "
            "did you mean `coordinator-of(orders-readers)`?",
        ),
    ],
    ids=["key", "kafka's key", "fault", "target's group", "target"],
)
def test_invalid_file_is_refused_before_the_start(
    command_line: CommandLine, before: str, after: str, message: str
) -> None:
    """The message says which line is wrong, what is expected, and what the user may have meant.

    Neither a run directory nor a process remains.
    """
    line = write_edited(command_line, before, after)

    done = command_line.run("run", "mine.yaml")

    assert done.returncode == 254
    assert (done.stdout, done.stderr) == ("", f"mine.yaml:{line}: {message}\n")
    assert [path.name for path in command_line.folder.iterdir()] == ["mine.yaml"]
    assert command_line.processes() == []


def test_bad_arguments_exit_254_and_leave_nothing(command_line: CommandLine) -> None:
    """This test tries one bad argument. tests/coordlab/test_bad_arguments.py tries all of them."""
    done = command_line.run("run", "coordinator_crsh")

    assert done.returncode == 254
    assert "did you mean `coordinator_crash`?" in done.stderr
    assert "Traceback" not in done.stderr
    assert list(command_line.folder.iterdir()) == []


def test_virtual_run_passes_and_leaves_a_complete_directory(command_line: CommandLine) -> None:
    """The run directory has every file except the tables and the report.

    An analysis would write these two, but SMALL has the option --no-analyze.
    """
    done = command_line.run(*VIRTUAL_RUN, "--seed", "7", *SMALL)

    assert (done.returncode, done.stderr) == (0, "")
    assert "PASS  coordinator_crash on virtual, seed 7" in done.stdout
    (past,) = command_line.runs()
    assert sorted(path.name for path in past.path.iterdir()) == [
        "events",
        "journal.json",
        "log.txt",
        "manifest.json",
        "results.json",
    ]
    manifest, results = past.manifest, past.results()
    assert results is not None
    assert (manifest.status, manifest.seed, manifest.runtime) == (
        RunStatus.COMPLETED,
        7,
        "virtual",
    )
    assert manifest.ended_at is not None
    assert manifest.digest is not None
    assert manifest.config["groups"]["orders-readers"]["members"] == 3
    assert (results.outcome, results.verdict) == (RunOutcome.COMPLETED, Verdict.PASS)
    # The journal lists the faults. The crash hit a broker, and was healed at its planned time.
    (fault,) = past.journal()
    assert (fault.outcome, fault.healed_by) == ("hit", "plan")
    rows = rows_of_run(past.path)
    assert len(rows) == results.rows_seen
    assert {row.run for row in rows} == {manifest.run}
    injected = [row for row in rows if row.kind == TraceKind.FAULT_INJECTED]
    assert [(row.time_us, row.peer) for row in injected] == [(fault.fired_at_us, fault.node)]
    latest = command_line.folder / "runs" / "coordinator_crash" / "latest"
    assert latest.resolve() == past.path
    assert manifest.replay in done.stdout


def test_seed_decides_the_digest(command_line: CommandLine) -> None:
    """Equal seeds give equal traces, and another seed gives another trace.

    `list` shows all three runs.
    """
    for seed in ("7", "7", "8"):
        assert command_line.run(*VIRTUAL_RUN, "--seed", seed, *SMALL).returncode == 0

    # A digest is a hash over all rows of a run's trace: equal digests mean equal runs.
    with_7, again_with_7, with_8 = (run.manifest.digest for run in command_line.runs())
    assert again_with_7 == with_7
    assert with_8 != with_7
    listed = command_line.run("list")
    assert listed.returncode == 0
    # The experiment's file begins with this question.
    assert "How long is a consumer group without commits" in listed.stdout
    for run in command_line.runs():
        assert run.manifest.run in listed.stdout
    assert listed.stdout.count("completed") == 3
    assert listed.stdout.count(" pass") == 3


def test_printed_replay_command_gives_the_same_trace(command_line: CommandLine) -> None:
    """A run prints a command, with which another person must be able to repeat the run."""
    options = ("--seed", "11", "--no-trace", "--time-limit", "5m")
    assert command_line.run(*VIRTUAL_RUN, *options, *SMALL).returncode == 0
    (first,) = command_line.runs()
    words = shlex.split(first.manifest.replay)
    assert words[:3] == ["python", "-m", "coordlab"]

    assert command_line.run(*words[3:], "--no-analyze").returncode == 0

    first, again = command_line.runs()
    assert first.manifest.digest == again.manifest.digest


def test_json_is_one_document_on_standard_output(command_line: CommandLine) -> None:
    """CI reads standard output, so warnings go to standard error, whatever the verdict is."""
    passed = command_line.run(*VIRTUAL_RUN, "--json", *SMALL)
    unknown = command_line.run(
        *VIRTUAL_RUN,
        "--json",
        # A group without members never becomes steady, so the verdict is unknown.
        "--var=groups.orders-readers.members=0",
        "--var=run.steady_state_timeout=2s",
    )

    document = json.loads(passed.stdout)
    assert document["results"]["verdict"] == "pass"
    assert document["manifest"]["digest"]
    assert (command_line.folder / document["run_directory"] / "manifest.json").exists()
    assert (passed.returncode, unknown.returncode) == (0, 2)
    assert json.loads(unknown.stdout)["results"]["exit_code"] == 2
    assert "nobody ever joins this group" in unknown.stderr


def test_group_without_members_proves_nothing(command_line: CommandLine) -> None:
    """The exit code is 2: without a steady group no fault is injected, so nothing was tested."""
    done = command_line.run(
        *VIRTUAL_RUN,
        "--no-analyze",
        "--var=groups.orders-readers.members=0",
        "--var=run.steady_state_timeout=5s",
    )

    assert done.returncode == 2
    assert "UNKNOWN  coordinator_crash" in done.stdout
    assert "no steady state within 5s: group orders-readers" in done.stdout
    (past,) = command_line.runs()
    results = past.results()
    assert results is not None
    assert results.verdict is Verdict.UNKNOWN
    assert past.manifest.status is RunStatus.COMPLETED
    assert [fault.outcome for fault in past.journal()] == ["planned"]


def test_junit_of_a_run_has_the_result_of_each_check(command_line: CommandLine) -> None:
    """The JUnit file of a passed run has neither failures nor errors.

    The file of a run that is unknown or interrupted has an error.
    """
    passed = command_line.run(*VIRTUAL_RUN, *SMALL, "--junit", "build/passed.xml")
    unknown = command_line.run(*VIRTUAL_RUN, *SMALL, "--time-limit", "8s", "--junit", "unknown.xml")
    with command_line.started(*VIRTUAL_RUN, "--no-analyze", "--junit", "stopped.xml") as process:
        # Interrupt the run when it reaches its faults.
        assert process.stdout is not None
        while "faults" not in process.stdout.readline():
            pass
        process.send_signal(SIGINT)
        process.communicate(timeout=COMMAND_TIMEOUT_S)

    assert (passed.returncode, unknown.returncode, process.returncode) == (0, 2, 130)
    suite_of_passed, suite_of_unknown, suite_of_stopped = (
        ET.parse(command_line.folder / name).getroot()[0]
        for name in ("build/passed.xml", "unknown.xml", "stopped.xml")
    )
    assert (suite_of_passed.get("failures"), suite_of_passed.get("errors")) == ("0", "0")
    # There is a test case for the run as a whole, and one for each check that applies to it.
    cases = {case.get("name") for case in suite_of_passed.iterfind("testcase")}
    context = context_of(load_experiment("coordinator_crash").experiment)
    checks = {name for name, checker in CHECKERS.items() if checker.concerns(context)}
    assert cases == {"run", *checks}
    error_of_run = "testcase[@name='run']/error"
    assert suite_of_passed.find(error_of_run) is None
    assert suite_of_unknown.find(error_of_run) is not None
    error_of_stopped = suite_of_stopped.find(error_of_run)
    assert error_of_stopped is not None
    assert error_of_stopped.get("type") == "interrupted"


def test_time_limit_ends_a_run_that_proves_nothing(command_line: CommandLine) -> None:
    """The limit of 8 s ends the run before its fault: exit code 2, and a complete directory."""
    done = command_line.run(*VIRTUAL_RUN, *SMALL, "--time-limit", "8s")

    assert done.returncode == 2
    assert "the time limit of 8 s was reached" in done.stdout
    (past,) = command_line.runs()
    assert past.manifest.status is RunStatus.COMPLETED


def test_violated_promise_exits_1_with_its_evidence(command_line: CommandLine) -> None:
    """A run in which a guard of Kafka's is switched off loses acknowledged commits at the crash.

    The guard, the high watermark gate, lets a broker acknowledge a commit only when all in-sync
    replicas have it. Without it the leader acknowledges at once. A slow network (20 ms) and
    frequent commits (every 20 ms) make it certain that some commits are only on the leader when it
    dies.
    """
    done = command_line.run(
        *VIRTUAL_RUN,
        *("--no-analyze", "--no-trace"),
        "--var=cluster.guards.high_watermark_gate=false",
        "--var=cluster.links.base_us=20000",
        "--var=groups.orders-readers.commit_interval_ms=20",
        "--var=faults[0].duration=10s",
        "--var=run.after_faults=1s",
    )

    assert done.returncode == 1
    assert "VIOLATED  coordinator_crash" in done.stdout
    assert "missing from the log of epoch 1" in done.stdout
    (past,) = command_line.runs()
    results = past.results()
    assert results is not None
    assert {finding.check for finding in results.findings} >= {"fencing"}


def test_verdict_and_figures_come_without_spark(command_line: CommandLine) -> None:
    """Plain Python computes the verdict and the figures. Only the tables need Spark.

    With --no-analyze no table is written.
    """
    done = command_line.run(*VIRTUAL_RUN, *SMALL, environment=NO_JAVA)
    (past,) = command_line.runs()

    assert (done.returncode, done.stderr) == (0, "")
    for words in ("client chain, per member", "commit gap", "3 of 3 members kept member id"):
        assert words in done.stdout, words
    assert "Spark" not in done.stdout
    assert not (past.path / "tables").exists()


def test_run_without_java_works_and_prints_how_to_analyse_it_later(
    command_line: CommandLine,
) -> None:
    """Only the analysis of a run needs Spark. Without Java it is omitted, and a message says so."""
    with_analysis = [option for option in SMALL if option != "--no-analyze"]
    done = command_line.run(*VIRTUAL_RUN, *with_analysis, environment=NO_JAVA)
    (past,) = command_line.runs()
    directory = past.path.relative_to(command_line.folder)

    assert (done.returncode, done.stderr) == (0, "")
    assert "Not analysed: Spark needs Java" in done.stdout
    assert "Install Java 17 or newer" in done.stdout
    assert f"python -m coordlab analyze {directory}" in done.stdout
    words_in_order = ("PASS  coordinator_crash", "commit gap", "durable commits", "Not analysed")
    positions = [done.stdout.index(words) for words in words_in_order]
    assert positions == sorted(positions)

    for arguments in (("analyze",), ("analyze", str(directory))):
        later = command_line.run(*arguments, environment=NO_JAVA)
        assert later.returncode == 254
        assert "Install Java 17 or newer" in later.stdout + later.stderr
    doctor = command_line.run("doctor", "--only", "java", environment=NO_JAVA)
    assert doctor.returncode == 1
    assert "Install Java 17 or newer" in doctor.stdout


@pytest.mark.skipif(shutil.which("java") is None, reason="doctor reports the missing Java")
def test_doctor_lists_all_its_checks(command_line: CommandLine) -> None:
    """Scripts read the checks as JSON. They also read the exit code: it is 1 if a check failed.

    Whether all checks pass depends on the machine of the test. A failed check gives advice.
    """
    done = command_line.run("doctor", "--json")
    checks = {check["name"]: check for check in json.loads(done.stdout)}
    assert {"python", "packages", "java", "memory", "disk", "open files", "ports"} <= set(checks)
    failed = [check for check in checks.values() if not check["ok"]]
    assert done.returncode == (1 if failed else 0)
    assert all(check["advice"] for check in failed)


def test_validate_prints_warnings_and_passes(command_line: CommandLine) -> None:
    """A file with a warning is still `ok`. A file that does not exist is refused.

    The warning is about a heartbeat interval of 40 s. This is valid, but unwise with a session
    timeout of 45 s.
    """
    write_edited(
        command_line,
        before="      enable.auto.commit: false",
        after="      heartbeat.interval.ms: 40000",
    )
    done = command_line.run("validate", "mine.yaml", "coordinator_crash")
    refused = command_line.run("validate", "coordinator_crash", "nowhere.yaml")
    assert (done.returncode, refused.returncode) == (0, 254)
    assert (done.stdout.count("ok "), refused.stdout.count("ok ")) == (2, 1)
    assert refused.stderr.startswith("nowhere.yaml: ")
    assert "heartbeat.interval.ms" in done.stdout
    assert not (command_line.folder / "runs").exists()


def test_help_of_every_command_exists_and_needs_no_ray(
    command_line: CommandLine,
) -> None:
    """Ray takes seconds to import, and a help text must not wait for it.

    One process prints the help of `run`, as if a user had typed it. After that, a second process
    prints the help of all commands, because a process for each command would take long.
    """
    help_of_run = command_line.run("run", "--help")
    assert help_of_run.returncode == 0
    assert help_of_run.stdout.startswith(f"Usage: {sys.executable} -m coordlab run")
    done = subprocess.run(
        [sys.executable, "-c", EVERY_HELP],
        cwd=command_line.folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    printed = json.loads(done.stdout)
    assert sorted(printed["helps"]) == sorted(COMMANDS)
    for command, help_text in printed["helps"].items():
        assert help_text.startswith(f"Usage: python -m coordlab {command}")
    assert printed["imported"] is False
