"""Finds the schedule that a word of the command line names, for `replay`, `diff` and `shrink`.

A schedule is an experiment with a seed. The two together determine a run in virtual time (a
simulated clock). The user names a schedule in one of these ways:

- `fencing-1.yaml`: an experiment file. If `explore` or `shrink` wrote the file, its key `replay` is
  the stamp of the file: it has the seed, and describes the run for which the file was written.
- `4711`: a seed. It draws an experiment and its faults from a space, which is a file that says what
  may be drawn.
- `12-400-4711`: a lineage, which is several seeds. The seed 12 draws faults, 400 changes these
  faults, and 4711 changes the result once more.
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

    - `words`: the words that name the schedule on a command line, such as
      `("4711", "--space", "reference")`.
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
        """The words that name the schedule on a command line, quoted for a shell."""
        return shlex.join(self.words)

    @property
    def replay_command(self) -> str:
        """The command that plays the schedule again."""
        return f"{PROGRAM} replay {self.name}"

    def changes_since_stamp(self, verb: str, *, force: bool) -> tuple[str, ...]:
        """Return the changes of the code and of Python since the file was written.

        Such changes matter, because the run may then differ from the run in the stamp. Without a
        stamp there is no earlier run, so nothing is returned.

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
    """Return the schedule that `word` names: seeds of `space`, or an experiment file.

    A file without a stamp gets the seed 0, which is also the default seed of `run`.

    Raises: ExperimentError if there is no such file or space, or if it has a mistake.
    """
    lineage = lineage_of_text(word)
    if lineage is not None:
        grown = grow(load_space(space), lineage)
        return Schedule(
            experiment=grown.experiment,
            # This seed decides the latencies of the network. It is not always the last number of
            # the lineage: a seed that changes earlier faults may keep the earlier latencies.
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
