"""Every earlier finding (broken promise) is played again: mended bugs must stay mended.

Each file of tests/corpus is an experiment with the data of its run (`replay`); its comment
describes it. There are two kinds of files, by the result in `replay`:

- `pass`: our code had a bug, with which the plan violated a promise. The bug is mended.
- `violated`: the file switches a guard off (a check of Kafka that an experiment can omit), and must
  still show what the guard prevents. With the guard on, the plan passes.

`replay` also has the digest of a trace. The digest belongs to the code of that time, and is not
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
# The files that switch a guard off.
OF_GUARDS = [path for path in FILES if "guards:" in path.read_text(encoding="utf-8")]
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
    """The recorded seed is played first.

    Since the code has changed, a violation that depends on a race may need another seed. The first
    word of `expect` is the check that must have a finding.
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


@pytest.mark.parametrize("path", OF_GUARDS, ids=lambda path: path.stem)
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
        off = [name for name, on in asdict(experiment.cluster.guards).items() if not on]
        assert f"{SHOWN_WITH}{', '.join(off)}" in comment


def test_every_guard_has_a_file() -> None:
    """The file of a guard shows a violation that the guard prevents."""
    shown = {
        name
        for path in OF_GUARDS
        for name, on in asdict(read_corpus_file(path)[0].cluster.guards).items()
        if not on
    }

    assert shown == set(asdict(Guards()))
