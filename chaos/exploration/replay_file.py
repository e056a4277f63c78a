"""Replay files: experiment files with a stamp. A stamp has the seed, result and digest of one run.

The digest is a hash over the rows of the run's trace. The trail is a few digits of the hash over
the rows so far, taken at regular times. The trails of two runs show when the runs begin to differ.
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

_DIGEST_BYTES = 8  # 16 hexadecimal digits


def replay_text(experiment: Experiment, played: PlayedRun, *, comment: str = "") -> str:
    """Return the text of the file that replays `played`, a complete run of `experiment`."""
    stamped = msgspec.structs.replace(experiment, replay=stamp_of(experiment, played))
    return experiment_text(stamped, comment=comment)


def stamp_of(
    experiment: Experiment, played: PlayedRun, *, finding: PlayedFinding | None = None
) -> ReplayStamp:
    """Return the stamp of `played`, a complete run by this code and Python.

    `finding` is the subject of the file; None means the first finding.
    """
    subject = finding or next(iter(played.findings), None)
    return ReplayStamp(
        seed=played.seed,
        code=code_version(),
        commit=_commit(),
        python=python_version(),
        result=played.result.value,
        digest=played.digest,
        finding=None if subject is None else finding_line(subject),
        trail=played.trail,
        schedule=schedule_digest(experiment),
    )


def finding_line(finding: PlayedFinding) -> str:
    """Return a finding in a stamp's form: its check and summary."""
    return f"{finding.signature.check}: {finding.summary}"


def schedule_digest(experiment: Experiment) -> str:
    """Return a digest of the parts of an experiment that determine a run.

    The name, the texts, the links to web pages and the stamp have no effect on a run. So they are
    replaced by fixed values first.
    """
    bare = msgspec.structs.replace(
        experiment, name="x", question="", expect="", links={}, replay=None
    )
    return blake2b(msgspec.json.encode(bare), digest_size=_DIGEST_BYTES).hexdigest()


@cache
def _commit() -> str | None:
    """Return the commit of this code; cached, because each query of git is a process."""
    return git_commit()
