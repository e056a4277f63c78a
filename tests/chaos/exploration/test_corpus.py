"""Every bug that a search has found is played again: mended bugs must stay mended.

Each file of tests/corpus is an experiment. Its comment describes the bug, and its part `replay` has
the seed and the expected result:

- `pass`: our code had a bug, and this experiment showed the bug. The bug is mended, so the run must
  pass.
- `violated`: the file switches off a guard, which is a safety check that Kafka always makes. The
  run must show what the guard prevents. With the guard on, the run must pass.

`replay` also has the digest of the recorded run, which is a hash of its events. The code has
changed since then, so the digest is not compared.
"""

from itertools import chain
from pathlib import Path

import pytest
from msgspec.structs import asdict, replace

from chaos.experiment.loader import load_experiment
from chaos.experiment.structs import Experiment
from chaos.exploration.play import PlayedRun, PlayResult, play
from chaos.exploration.shrink.shrink import NETWORK_SEEDS
from chaos.results.replay_stamp import ReplayStamp
from protocol.config import Guards

pytestmark = pytest.mark.slow

CORPUS = Path(__file__).resolve().parents[2] / "corpus"
FILES = sorted(CORPUS.glob("*.yaml"))
WITH_A_GUARD_OFF = [path for path in FILES if "guards:" in path.read_text(encoding="utf-8")]
# The comment of each file has a line that begins with one of these words.
MENDED_BY = "# Mended by commit "
SHOWN_WITH = "# Guard off: "


def read_corpus_file(path: Path) -> tuple[Experiment, ReplayStamp]:
    """Return the experiment of a corpus file, and the stamp of its recorded run."""
    experiment = load_experiment(str(path)).experiment
    assert experiment.replay is not None, f"{path.name} has no `replay:`"
    return experiment, experiment.replay


def checks_violated(run: PlayedRun) -> set[str]:
    """Return the names of the checks that have found something in the run."""
    return {finding.signature.check for finding in run.findings}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_file_gives_its_recorded_result(path: Path) -> None:
    """In a file with a violation, the first word of `expect` is the check that must find it.

    The recorded seed is played first. But the code has changed since the recording, so a violation
    that depends on a race may need another seed now. So up to NETWORK_SEEDS more seeds are played,
    until the check finds the violation.
    """
    experiment, stamp = read_corpus_file(path)

    run = play(experiment, stamp.seed)

    assert run.faults_hit > 0
    if stamp.result == PlayResult.PASS:
        assert run.result is PlayResult.PASS, run.findings or run.reasons
        return
    check = experiment.expect.split()[0]
    runs = chain([run], (play(experiment, seed) for seed in range(NETWORK_SEEDS)))
    assert any(check in checks_violated(run_of_seed) for run_of_seed in runs)


@pytest.mark.parametrize("path", WITH_A_GUARD_OFF, ids=lambda path: path.stem)
def test_guard_prevents_the_violation_of_its_file(path: Path) -> None:
    """With the guard on, the run passes with the recorded seed, and with three arbitrary seeds."""
    experiment, stamp = read_corpus_file(path)
    guarded = replace(experiment, cluster=replace(experiment.cluster, guards=Guards()))

    for seed in (stamp.seed, 101, 102, 103):
        run = play(guarded, seed)
        assert run.result is PlayResult.PASS, run.findings or run.reasons


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_each_file_describes_its_bug_or_guard(path: Path) -> None:
    """The comment of a mended bug names the commit that mended it.

    The comment of a file that switches off a guard names this guard.
    """
    experiment, stamp = read_corpus_file(path)
    comment = [
        line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("#")
    ]
    first_words = MENDED_BY if stamp.result == PlayResult.PASS else SHOWN_WITH

    assert len([line for line in comment if line.startswith(first_words)]) == 1
    if stamp.result != PlayResult.PASS:
        guards = asdict(experiment.cluster.guards)
        guards_off = ", ".join(name for name, is_on in guards.items() if not is_on)
        assert f"{SHOWN_WITH}{guards_off}" in comment


def test_every_guard_has_a_file() -> None:
    """For each guard there is a file that switches it off, and shows what the guard prevents."""
    shown: set[str] = set()
    for path in WITH_A_GUARD_OFF:
        experiment, _ = read_corpus_file(path)
        guards = asdict(experiment.cluster.guards)
        shown |= {name for name, is_on in guards.items() if not is_on}

    assert shown == set(asdict(Guards()))
