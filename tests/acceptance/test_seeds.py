"""`coordlab run --seeds 1..20` from outside: the runs of single seeds, and their common results.

Every command is a process of its own in an empty folder. The runs are small, and in virtual time.
A seed is a number that decides all random choices of a run. The exit code is 0 if all seeds passed,
and 2 if the verdict of a seed is unknown. It is 130 after Ctrl-C, 254 for wrong arguments, and 255
after a failure of coordlab itself.
"""

import json
import os
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from signal import SIGINT, SIGKILL

import pytest

from results_schema.manifest import RunStatus
from tests.support.harness.command_line import COMMAND_TIMEOUT_S, ROOT, CommandLine

pytestmark = pytest.mark.slow

VIRTUAL_RUN = ("run", "coordinator_crash", "--runtime", "virtual")
"""The command that plays the experiment coordinator_crash in virtual time."""
# Options that make the experiment small.
SMALL = (
    "--var=groups.orders-readers.members=3",
    "--var=topics.orders.partitions=3",
    "--var=producers[0].records_per_second=20",
)


def test_each_seed_gives_the_run_that_it_gives_alone(command_line: CommandLine) -> None:
    """A seed that is played among others gives the same run as alone with `--seed`.

    The two runs have the same digest (a hash of the trace) and the same replay command.
    """
    alone = command_line.run(*VIRTUAL_RUN, *SMALL, "--seed", "7", "--no-analyze")
    several = command_line.run(
        *VIRTUAL_RUN, *SMALL, "--seeds", "7..8", "--workers", "2", "--json", "--junit", "seeds.xml"
    )
    listed = command_line.run("list", "--json")

    assert (alone.returncode, several.returncode) == (0, 0), several.stderr
    document = json.loads(several.stdout)
    assert document["seeds"]["passed"] == [7, 8]
    # The name of a directory ends in `-seed-7` if the seed was one of several.
    manifests = {run.path.name: run.manifest for run in command_line.runs()}
    (seed_7,) = (manifest for name, manifest in manifests.items() if name.endswith("-seed-7"))
    (seed_8,) = (manifest for name, manifest in manifests.items() if name.endswith("-seed-8"))
    (seed_7_alone,) = (manifest for name, manifest in manifests.items() if "-seed-" not in name)
    assert seed_7.digest == seed_7_alone.digest
    assert seed_8.digest != seed_7.digest
    assert seed_7.replay == seed_7_alone.replay
    assert len(json.loads(listed.stdout)["runs"]) == 3
    # The figure `detect` is the time until the crash was noticed. It is computed over both seeds.
    (detect,) = [
        figure
        for figure in document["figures"]
        if (figure["figure"], figure["statistic"]) == ("detect", "max")
    ]
    assert (detect["unit"], detect["seeds"]) == ("us", 2)
    suites = ET.parse(command_line.folder / "seeds.xml").getroot()
    assert [suite.get("name") for suite in suites] == [
        "coordlab.coordinator_crash.seed-7",
        "coordlab.coordinator_crash.seed-8",
    ]
    assert suites.get("errors") == "0"


def test_inconclusive_seeds_are_listed_with_their_commands(command_line: CommandLine) -> None:
    """The exit code is 2 (unknown), and each seed is listed with the command that plays it alone.

    The time limit of 8 s ends the runs before their fault.
    """
    done = command_line.run(
        *VIRTUAL_RUN, *SMALL, "--seeds", "1,3", "--time-limit", "8s", "--no-analyze"
    )

    assert done.returncode == 2
    assert "UNKNOWN  coordinator_crash on virtual, 2 seeds: 2 unknown" in done.stdout
    for seed in (1, 3):
        assert f"seed {seed} unknown: the time limit of 8 s was reached" in done.stdout
        assert f"coordinator_crash --runtime virtual --seed {seed} --var" in done.stdout


def test_file_with_its_own_seed_is_played_with_those_of_the_command(
    command_line: CommandLine,
) -> None:
    """A file that a search has written names the seed of its run. `--seeds` replaces this seed."""
    file = str(ROOT / "tests/corpus/coordinator_elected_again_before_it_heard_of_another.yaml")
    done = command_line.run(
        "run", file, "--runtime", "virtual", "--seeds", "0,2", "--no-analyze", "--no-trace"
    )

    assert done.returncode == 0, done.stderr
    assert "passed: seeds 0,2" in done.stdout
    assert sorted(run.manifest.seed for run in command_line.runs()) == [0, 2]


def test_folder_that_cannot_be_made_is_refused_before_any_seed(command_line: CommandLine) -> None:
    """A wrong `--runs` is reported once, as a mistake of the user, and not for each seed."""
    (command_line.folder / "file").write_text("")
    done = command_line.run(*VIRTUAL_RUN, "--seeds", "1..3", "--runs", "file/runs")

    assert done.returncode == 254
    assert done.stderr.startswith("no run directory can be made in file/runs: ")


def test_worker_that_is_killed_is_a_failure_of_the_lab(command_line: CommandLine) -> None:
    """A worker is the process that plays the seeds. It is killed when it has begun seed 2.

    Seed 2 is reported as a failure, and seed 3 is still played, by a new worker.
    """
    with command_line.started(
        *VIRTUAL_RUN, *SMALL, "--seeds", "1..3", "--workers", "1", "--no-analyze"
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "seed 1 passed\n"
        # Python's multiprocessing starts a worker by its function `spawn_main`.
        (worker,) = (
            pid
            for pid in command_line.processes()
            if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()
        )
        os.kill(worker, SIGKILL)
        output, _ = process.communicate(timeout=COMMAND_TIMEOUT_S)

    assert process.returncode == 255
    assert "FAILED  coordinator_crash on virtual, 3 seeds: 1 failed, 2 passed" in output
    assert (
        "seed 2 failed: the worker that played seed 2 died: it was ended by signal 9 (SIGKILL)"
    ) in output
    assert "passed: seeds 1,3" in output


def test_ctrl_c_ends_the_workers_and_lists_finished_seeds(command_line: CommandLine) -> None:
    """The seed in progress ends like an interrupted run, and no other seed is begun."""
    with command_line.started(*VIRTUAL_RUN, *SMALL, "--seeds", "1..9", "--workers", "1") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "seed 1 passed\n"
        process.send_signal(SIGINT)
        output, errors = process.communicate(timeout=COMMAND_TIMEOUT_S)

    assert process.returncode == 130
    assert "INTERRUPTED  coordinator_crash on virtual, 9 seeds: " in output
    # The worker may have finished more than the first seed: "passed: seed 1" or "seeds 1..2".
    assert "passed: seeds 1" in output.replace("seed 1", "seeds 1")
    hint = f"to analyse them: {sys.executable} -m coordlab analyze runs/coordinator_crash/"
    assert hint in output
    assert "Traceback" not in errors
    statuses = {run.manifest.status for run in command_line.runs()}
    assert statuses <= {RunStatus.COMPLETED, RunStatus.INTERRUPTED}
    assert command_line.processes() == []
