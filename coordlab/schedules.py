"""Finds the schedule that a word of the command line names, for `replay`, `diff` and `shrink`.

A schedule is an experiment with a seed, which together determine a run in virtual time. The user
names it in one of these ways:

- `fencing-1.yaml`: an experiment file. If `explore` or `shrink` wrote it, its key `replay` has the
  seed, and describes the run for which it was written. This is its stamp.
- `4711`: a seed, with which an experiment and its faults are drawn from a space file.
- `12-400-4711`: a seed that changes the faults of an earlier seed, instead of drawing new ones.
  Here 4711 changes the faults of 400, which has changed those of 12.
"""

import shlex
from dataclasses import dataclass
from pathlib import Path

import click

from chaos.experiment.loader import load_experiment
from chaos.experiment.problems import ExperimentError, Problem
from chaos.experiment.structs import Experiment
from chaos.exploration.guided.lineage import grow, lineage_of_text
from chaos.exploration.space import load_space
from chaos.results.replay_stamp import ReplayStamp, differences
from coordlab.options import DEFAULT_SPACE
from coordlab.program import PROGRAM


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """An experiment with its seed.

    - `words`: what names it on a command line, such as `("4711", "--space", "reference")`.
    - `stamp`: the code, Python version and digest of the run for which the file was written; None
      if the file has no stamp, or there is no file.
    - `path`: the file; None if the schedule was drawn from a space.
    """

    experiment: Experiment
    seed: int
    words: tuple[str, ...]
    stamp: ReplayStamp | None = None
    path: Path | None = None

    @property
    def name(self) -> str:
        """What names the schedule on a command line, quoted for a shell."""
        return shlex.join(self.words)

    @property
    def replay_command(self) -> str:
        """The command that plays the schedule again."""
        return f"{PROGRAM} replay {self.name}"

    def changes_since_stamp(self, verb: str, *, force: bool) -> tuple[str, ...]:
        """Return what has changed in the code and in Python since the file was written.

        Such changes matter, because the run may then differ from the one in the stamp. Without a
        stamp nothing can have changed.

        `verb`: what the command does with the schedule, such as "play", for the error message.
        Raises: click.UsageError if something has changed, unless `force` is True.
        """
        changed = () if self.stamp is None else differences(self.stamp)
        if changed and not force:
            raise click.UsageError(
                f"{self.name} cannot be replayed: {'; '.join(changed)}. "
                f"Check that out, or {verb} it as it is now with --force."
            )
        return changed


def named_schedule(word: str, space: str) -> Schedule:
    """Return the schedule that `word` names, a seed of `space` or an experiment file.

    A file without a stamp gets the seed 0, as `run` would play it.

    Raises: ExperimentError if there is no such file or space, or if it has a mistake.
    """
    lineage = lineage_of_text(word)
    if lineage is not None:
        grown = grow(load_space(space), lineage)
        return Schedule(
            experiment=grown.experiment,
            # This seed decides the latencies of the network. A seed that changes the faults of an
            # earlier one may keep the earlier network, so it is not always the last number.
            seed=grown.network_seed,
            # The default space need not be named.
            words=(word,) if space == DEFAULT_SPACE else (word, "--space", space),
        )
    loaded = load_experiment(word)
    stamp = loaded.experiment.replay
    return Schedule(
        experiment=loaded.experiment,
        seed=0 if stamp is None else stamp.seed,
        words=(word,),
        stamp=stamp,
        path=loaded.path,
    )


def no_such_schedule(word: str, why: str) -> ExperimentError:
    """Return the error to raise if `word` names no schedule, with the reason `why`."""
    return ExperimentError([Problem(file=word, line=None, path="", message=why)])
