"""Replay files: experiment files with a stamp of one run, so that `replay` can repeat this run.

The stamp has the seed and the result of the run. It also has two texts for the comparison with a
replay:

- The digest is a hash over all rows of the run's trace. The digest of a replay must be equal.
- The trail is for the case that the digests differ. It has a few digits of the hash at each of many
  regular times, over the rows so far. So two trails show when their runs began to differ.

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
    """Return the stamp of `played`, a complete run that was just made by this code and Python.

    The stamp names one finding of the run: `finding`, or the run's first if `finding` is None.
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

    These parts are called its schedule here. The name, the texts, the links to web pages and the
    stamp do not belong to the schedule, so they are replaced by fixed values first.
    """
    bare = msgspec.structs.replace(
        experiment, name="x", question="", expect="", links={}, replay=None
    )
    return blake2b(msgspec.json.encode(bare), digest_size=_DIGEST_BYTES).hexdigest()


@cache
def _commit() -> str | None:
    """Return the commit of this code; cached, because each query of git is a process."""
    return git_commit()
