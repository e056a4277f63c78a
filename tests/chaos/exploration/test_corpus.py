"""Every bug that a search has found is played again: mended bugs must stay mended.

Each file of tests/corpus is an experiment. Its comment describes the bug, and its part `replay` has
the seed and the expected result:

- `pass`: our code had a bug, and this experiment showed it. The bug is mended, so the run passes.
- `violated`: the file switches off a guard, which is a safety check that Kafka always makes. The
  run must show what the guard prevents. With the guard on, it must pass.

`replay` also has the digest of the recorded run. It belongs to the code of that time, so it is not
compared.
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
MENDED_BY = "# Mended by commit "
SHOWN_WITH = "# Guard off: "


def read_corpus_file(path: Path) -> tuple[Experiment, ReplayStamp]:
    """Return the experiment of a corpus file, and the data of its run."""
    experiment = load_experiment(str(path)).experiment
    assert experiment.replay is not None, f"{path.name} has no `replay:`"
    return experiment, experiment.replay


def checks_violated(run: PlayedRun) -> set[str]:
    """Return the checks with a finding."""
    return {finding.signature.check for finding in run.findings}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_file_gives_its_recorded_result(path: Path) -> None:
    """A violation must be found by the check that the first word of `expect` names.

    The recorded seed is played first. But the code has changed since then, so a violation that
    depends on a race may need another seed now. Then some more seeds are played.
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
    """With the guard on, the plan passes under its own network seed and under three others."""
    experiment, stamp = read_corpus_file(path)
    guarded = replace(experiment, cluster=replace(experiment.cluster, guards=Guards()))

    for seed in (stamp.seed, 101, 102, 103):
        run = play(guarded, seed)
        assert run.result is PlayResult.PASS, run.findings or run.reasons


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_each_file_describes_its_bug_or_guard(path: Path) -> None:
    """The comment of a mended bug names the commit; that of a guard's file names the guard."""
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
    """The file of a guard shows a violation that the guard prevents."""
    shown: set[str] = set()
    for path in WITH_A_GUARD_OFF:
        experiment, _ = read_corpus_file(path)
        guards = asdict(experiment.cluster.guards)
        shown |= {name for name, is_on in guards.items() if not is_on}

    assert shown == set(asdict(Guards()))
