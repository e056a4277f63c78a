"""Replay files: a schedule as an experiment file, stamped with what one run of it was.

Data flow: (Experiment, PlayedRun) -> text of a file that `run`, `replay`, `diff` and `shrink` take.
"""

from functools import cache
from hashlib import blake2b

import msgspec

from chaos.experiment.dump import experiment_text
from chaos.experiment.structs import Experiment
from chaos.exploration.play import PlayedFinding, PlayedRun
from chaos.results.manifest import git_commit
from chaos.results.replay_stamp import ReplayStamp, code_version, python_version

_DIGEST_BYTES = 8


def replay_text(experiment: Experiment, played: PlayedRun, *, comment: str = "") -> str:
    """Return the text of the file that replays `played`, which was a whole run of `experiment`."""
    stamped = msgspec.structs.replace(experiment, replay=stamp_of(experiment, played))
    return experiment_text(stamped, comment=comment)


def stamp_of(
    experiment: Experiment, played: PlayedRun, *, finding: PlayedFinding | None = None
) -> ReplayStamp:
    """Return what a file remembers of `played`, a run to its end by this code and Python.

    Shape: `finding` is the one that the file is about; the first, if that is not said.
    """
    about = finding or next(iter(played.findings), None)
    return ReplayStamp(
        seed=played.seed,
        code=code_version(),
        commit=_commit(),
        python=python_version(),
        result=played.result.value,
        digest=played.digest,
        finding=None if about is None else finding_line(about),
        trail=played.trail,
        schedule=schedule_digest(experiment),
    )


def finding_line(finding: PlayedFinding) -> str:
    """Return a finding as a stamp has it: its check and what it says."""
    return f"{finding.signature.check}: {finding.summary}"


def schedule_digest(experiment: Experiment) -> str:
    """Return a digest of all of an experiment that decides a run: not of its name and words."""
    bare = msgspec.structs.replace(
        experiment, name="x", question="", expect="", links={}, replay=None
    )
    return blake2b(msgspec.json.encode(bare), digest_size=_DIGEST_BYTES).hexdigest()


@cache
def _commit() -> str | None:
    return git_commit()
