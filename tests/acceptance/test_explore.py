"""The command `explore` plays many random experiments, and reports where something went wrong.

The words of such a search, which is also called an exploration:

- The space is a file from which the random experiments are drawn. It says, for example, how many
  brokers there may be and which faults may hit them.
- A seed is a number that decides what is drawn from the space. The same seed always gives the same
  schedule: the same experiment with the same faults at the same times.
- A finding is a violation of one of Kafka's promises.
- A mark is a rare situation that has a name. The command reports which marks its runs reached.

The exit code is 0 without a finding, and 1 with findings. It is 130 after Ctrl-C, 141 if the
terminal was closed, and 254 if the command refuses its arguments.

Most tests explore the space `reference`, or a copy of it without one of Kafka's safety rules. In
the copy, a leader may acknowledge an append before its followers have it, so a few seeds suffice
for a finding. Every run takes a fraction of a second.
"""

import json
import os
import signal
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from chaos.checkers.registry import CHECKERS
from chaos.experiment.loader import load_experiment
from chaos.exploration.space import load_space
from chaos.exploration.store import PlayedAgain, PlayedSeeds, open_exploration
from chaos.results.replay_stamp import code_version
from tests.support.harness.command_line import COMMAND_TIMEOUT_S, CommandLine
from tests.support.harness.programs import ray_head

pytestmark = pytest.mark.slow

HERE = ("--workers", "1")
"""With one worker, the command plays all seeds in its own process."""
EIGHT_SEEDS = ("--count", "8", "--recheck", "25")
"""Eight seeds. 25 % of them, which is two, are played twice, to check that a seed gives one run."""
SEEDS_UNTIL_FINDING = 6
"""Without the safety rule, one of the first six seeds has a finding."""


def write_unguarded_space(command_line: CommandLine) -> str:
    """Write a copy of the space `reference` without the safety rule; return the file's name."""
    text = load_space("reference").path.read_text()
    assert text.count("  cluster:\n") == 1
    assert text.count("name: reference\n") == 1
    # This setting lets a leader acknowledge an append alone.
    rule_is_off = "    guards:\n      high_watermark_gate: false\n"
    text = text.replace("  cluster:\n", f"  cluster:\n{rule_is_off}")
    file = command_line.folder / "unguarded.yaml"
    file.write_text(text.replace("name: reference\n", "name: unguarded\n"))
    return file.name


def results_of(path: Path) -> dict[str, Any]:
    """Return the results of the exploration in this directory."""
    results: dict[str, Any] = json.loads((path / "results.json").read_text())
    return results


def latest_exploration(command_line: CommandLine, space: str = "unguarded") -> Path:
    """Return the directory of the latest exploration of `space`."""
    return open_exploration(command_line.folder / "runs" / "explorations" / space).path


def digests_by_seed(path: Path) -> dict[int, str]:
    """Return the digest of each seed that the exploration in this directory has played.

    The digest of a seed is a hash of its run: equal digests mean equal runs.
    """
    records = [
        record for record in open_exploration(path).records() if isinstance(record, PlayedSeeds)
    ]
    seeds = [run.seed for record in records for run in record.runs]
    assert len(set(seeds)) == len(seeds), "no seed is played twice"
    return {run.seed: run.digest for record in records for run in record.runs}


def wait_until(condition: Callable[[], bool]) -> None:
    """Poll until `condition` holds. The condition depends on another process."""
    deadline_s = time.monotonic() + COMMAND_TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


def test_search_without_findings_passes_and_lists_unreached_marks(
    command_line: CommandLine,
) -> None:
    """With all of Kafka's safety rules, three seeds find nothing, and the exploration passes.

    The output also names the marks that no run reached. An exploration keeps no run directories, so
    `list` finds no runs.
    """
    done = command_line.run("explore", "reference", *HERE, "--count", "3", "--recheck", "100")

    assert done.returncode == 0, done.stdout + done.stderr
    assert "PASS  3 runs of reference from seed 0: every seed was played" in done.stdout
    assert "3 seeds played twice (0 in another process): 3 gave the same" in done.stdout
    assert "never reached: " in done.stdout
    assert "\x1b" not in done.stdout
    path = latest_exploration(command_line, "reference")
    assert sorted(digests_by_seed(path)) == [0, 1, 2]
    assert f"exploration: {path.relative_to(command_line.folder)}" in done.stdout
    assert "to go on" not in done.stdout
    listed = command_line.run("list")
    assert "set aside" not in listed.stdout
    assert "no runs in runs yet" in listed.stdout


def test_finding_is_grouped_and_written_as_a_file_that_can_be_run(
    command_line: CommandLine,
) -> None:
    """For each finding the search writes a file, with which a run that had the finding is replayed.

    The file has the seed of this run, the version of the code, and the digest.
    """
    done = command_line.run(
        *(
            "explore",
            write_unguarded_space(command_line),
            *HERE,
            "--count",
            str(SEEDS_UNTIL_FINDING),
        ),
        *("--junit", "build/explored.xml"),
    )

    assert done.returncode == 1, done.stdout + done.stderr
    path = latest_exploration(command_line)
    results = results_of(path)
    assert (results["verdict"], results["exit_code"]) == ("violated", 1)
    assert results["runs"]["violated"] >= 1
    for finding in results["findings"]:
        loaded = load_experiment(str(path / finding["file"])).experiment
        assert loaded.replay is not None
        assert loaded.replay.seed == finding["example_seed"]
        assert loaded.name == f"unguarded-{finding['example_seed']}"
        assert loaded.replay.code == code_version()
        assert loaded.replay.finding == f"{finding['check']}: {finding['summary']}"
        assert loaded.replay.digest == digests_by_seed(path)[finding["example_seed"]]
        for command in (finding["replay"], finding["shrink"]):
            assert command in done.stdout
    first = results["findings"][0]
    again = command_line.run("replay", str(path / first["file"]))
    assert again.returncode == 1, again.stdout + again.stderr
    suite = ET.parse(command_line.folder / "build/explored.xml").getroot()[0]
    cases = {case.get("name"): case for case in suite.iterfind("testcase")}
    # A JUnit file has a test case for each check, and one for the command itself.
    assert set(cases) == {"explore", *CHECKERS}
    failed = {name for name, case in cases.items() if case.find("failure") is not None}
    assert failed == {finding["check"] for finding in results["findings"]}
    assert suite.get("errors") == "0"


def test_json_is_one_document_and_nothing_else(command_line: CommandLine) -> None:
    """Scripts read standard output. Without a terminal nothing is written to standard error."""
    done = command_line.run("explore", "reference", *HERE, "--count", "2", "--json")

    assert (done.returncode, done.stderr) == (0, "")
    document = json.loads(done.stdout)
    assert set(document) == {"exploration_directory", "manifest", "results"}
    assert document["results"] == results_of(
        command_line.folder / document["exploration_directory"]
    )
    assert document["manifest"]["code"] == code_version()


def test_search_stops_after_the_first_finding(command_line: CommandLine) -> None:
    """The search looks for findings after each batch of seeds.

    With --batch 1, a batch is one seed. So the search stops right after the seed with the finding.
    """
    done = command_line.run(
        "explore", write_unguarded_space(command_line), *HERE, "--stop-after", "1", "--batch", "1"
    )

    assert done.returncode == 1
    results = results_of(latest_exploration(command_line))
    assert results["stopped_because"] == "enough was found"
    assert results["seeds"] <= SEEDS_UNTIL_FINDING
    assert f"to go on: {sys.executable} -m coordlab explore --resume " in done.stdout


def test_search_ends_at_its_time_limit(command_line: CommandLine) -> None:
    """Without a count only the time limit ends a search."""
    done = command_line.run("explore", "reference", *HERE, "--time-limit", "1s", "--json")
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)["results"]
    assert results["stopped_because"] == "the time limit was reached"
    assert results["seeds"] >= 1


@dataclass(frozen=True, slots=True, kw_only=True)
class UninterruptedSearch:
    """The digests of the seeds and the results of a search that was not interrupted."""

    digests: dict[int, str]
    results: dict[str, Any]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> UninterruptedSearch:
    """Play the search once without an interruption. Each resumed search must have its results."""
    command_line = CommandLine(tmp_path_factory.mktemp("whole"))
    done = command_line.run("explore", write_unguarded_space(command_line), *HERE, *EIGHT_SEEDS)
    assert done.returncode == 1, done.stdout + done.stderr
    path = latest_exploration(command_line)
    return UninterruptedSearch(digests=digests_by_seed(path), results=results_of(path))


@pytest.mark.parametrize("signal_sent", [signal.SIGINT, signal.SIGHUP, signal.SIGKILL])
def test_resumed_search_has_the_results_of_an_uninterrupted_one(
    command_line: CommandLine, uninterrupted: UninterruptedSearch, signal_sent: signal.Signals
) -> None:
    """A resumed search loses no finished seed, and plays none of them again.

    SIGKILL may end the process in the middle of a write. The test imitates that: it appends half a
    line, which the resumed search drops. After SIGINT and SIGHUP the process ends in order, with
    exit code 130 or 141.
    """
    with command_line.started(
        "explore", write_unguarded_space(command_line), *HERE, *EIGHT_SEEDS
    ) as process:
        folder = command_line.folder / "runs/explorations/unguarded/latest"
        wait_until(
            lambda: (folder / "batches.jsonl").exists() and len(digests_by_seed(folder)) >= 3
        )
        process.send_signal(signal_sent)
        output, errors = process.communicate(timeout=COMMAND_TIMEOUT_S)
    path = latest_exploration(command_line)
    played_before = digests_by_seed(path)
    if signal_sent is signal.SIGKILL:
        with (path / "batches.jsonl").open("ab") as file:
            file.write(b'{"record":"played","runs":[{"seed":')
    elif signal_sent is signal.SIGHUP:
        assert (process.returncode, errors) == (141, "")
    else:
        assert process.returncode == 130, output + errors
        assert "INTERRUPTED" in output
        assert f"explore --resume {path.relative_to(command_line.folder)}\n" in output
        assert results_of(path)["seeds"] == len(played_before)
    assert "Traceback" not in output + errors
    # Some of the eight seeds were played before the signal, and some are still to be played.
    assert 3 <= len(played_before) < 8

    resumed = command_line.run("explore", "--resume", str(path), *HERE)

    assert resumed.returncode == 1, resumed.stdout + resumed.stderr
    assert played_before.items() <= digests_by_seed(path).items()
    assert digests_by_seed(path) == uninterrupted.digests
    results = results_of(path)
    for key in ("runs", "seeds", "marks", "faults_hit", "virtual_us"):
        assert results[key] == uninterrupted.results[key], key
    assert _findings(results) == _findings(uninterrupted.results)
    assert results["rechecks"]["equal"] == uninterrupted.results["rechecks"]["equal"]
    # 25 % of the eight seeds (EIGHT_SEEDS) were played twice.
    assert results["rechecks"]["equal"] >= 2


def _findings(results: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the findings of a search, without the paths of files."""
    keys = ("check", "claim", "story", "example_seed", "seeds")
    return [{key: finding[key] for key in keys} for finding in results["findings"]]


def test_exploration_can_be_extended(command_line: CommandLine) -> None:
    """`--count 3` is the total: the resumed search plays only seed 42 of the seeds 40 to 42."""
    command_line.run("explore", "reference", *HERE, "--first-seed", "40", "--count", "2")
    path = latest_exploration(command_line, "reference")
    longer = command_line.run("explore", "--resume", str(path.parent), *HERE, "--count", "3")
    assert longer.returncode == 0, longer.stderr
    assert sorted(digests_by_seed(path)) == [40, 41, 42]


def test_resumed_exploration_keeps_its_share_of_mutated_seeds(
    command_line: CommandLine,
) -> None:
    """The command refuses another share, with which the seeds would give other schedules.

    A mutated seed does not draw a new schedule from the space. It plays a changed copy of an
    earlier schedule.
    """
    command_line.run("explore", "reference", *HERE, "--count", "1", "--mutated", "30")
    path = latest_exploration(command_line, "reference")
    assert open_exploration(path).manifest.mutated_percent == 30

    refused = command_line.run("explore", "--resume", str(path), *HERE, "--mutated", "10")

    assert refused.returncode == 254
    assert "was begun with --mutated 30.0, and goes on with it; got 10.0" in refused.stderr
    # The only seed had no earlier schedule to change.
    assert results_of(path)["guided"]["mutated_runs"] == 0


def test_exploration_of_a_changed_space_is_not_resumed(command_line: CommandLine) -> None:
    """A seed draws another schedule from a changed space, so the command refuses to go on.

    The results before and after the change would not belong together. Here the number of brokers
    changes.
    """
    space = write_unguarded_space(command_line)
    command_line.run("explore", space, *HERE, "--count", "1")
    file = command_line.folder / space
    file.write_text(file.read_text().replace("brokers: 3", "brokers: 4"))
    path = latest_exploration(command_line)

    refused = command_line.run("explore", "--resume", str(path), *HERE, "--count", "2")

    assert refused.returncode == 254
    assert "the space changed: " in refused.stderr
    assert list(digests_by_seed(path)) == [0]


@pytest.mark.ray
def test_search_on_ray_is_stopped_by_ctrl_c_and_leaves_no_process(
    command_line: CommandLine,
) -> None:
    """A terminal sends Ctrl-C to all processes of the command, also to the workers of Ray.

    Each worker then breaks off its run. Such a run must not be counted as broken: `broken` is the
    number of runs that failed by a bug.
    """
    with command_line.started(
        # With 5,000 seeds the search cannot be finished before Ctrl-C.
        *("explore", "reference", "--workers", "2", "--count", "5000", "--recheck", "50")
    ) as process:
        folder = command_line.folder / "runs/explorations/reference/latest"
        # If the process ends by a mistake, the wait ends, too, and its exit code below is wrong.
        wait_until(
            lambda: (
                process.poll() is not None
                or ((folder / "batches.jsonl").exists() and len(digests_by_seed(folder)) >= 4)
            )
        )
        os.killpg(process.pid, signal.SIGINT)
        output, errors = process.communicate(timeout=COMMAND_TIMEOUT_S)

    assert process.returncode == 130, output + errors
    assert "Traceback" not in output + errors
    path = latest_exploration(command_line, "reference")
    results = results_of(path)
    assert results["outcome"] == "interrupted"
    assert results["runs"]["broken"] == 0
    records = list(open_exploration(path).records())
    workers = {record.worker for record in records if isinstance(record, PlayedSeeds | PlayedAgain)}
    assert len(workers) == 2
    wait_until(lambda: command_line.processes() == [])


@pytest.mark.ray
def test_search_on_a_named_ray_sends_its_code_and_leaves_it_running(
    command_line: CommandLine, tmp_path: Path
) -> None:
    """The command uses a Ray that another program has started.

    The machines of such a Ray may lack the folder with our code, so the command sends the code. The
    second command shows that the first command left the Ray running.
    """
    with ray_head(tmp_path, auth_mode=None) as address:
        done = command_line.run(
            *("explore", "reference", "--ray-address", address, "--workers", "2"),
            *("--count", "4", "--recheck", "50", "--json"),
        )
        assert done.returncode == 0, done.stdout + done.stderr
        again = command_line.run(
            *("explore", "reference", "--ray-address", address, "--workers", "1"),
            *("--count", "1", "--json"),
        )
        assert again.returncode == 0, again.stdout + again.stderr
    results = json.loads(done.stdout)["results"]
    assert results["seeds"] == 4
    # 50 % of the four seeds were played twice.
    assert results["rechecks"]["equal"] == 2
    assert results["rechecks"]["in_another_process"] == 2
