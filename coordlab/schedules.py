"""Schedules that `replay`, `diff` and `shrink` play: an experiment file, or a seed of a space.

A space is a file from which each seed draws an experiment with its plan of faults. A mutated seed
changes the plan of an earlier seed, its parent. The name of a mutated seed is its lineage:
`12-400-4711` is seed 4711, which changes the plan of 400, which changes the plan of 12.

The key `replay` in a file is the stamp: the seed, the code and the digest of the run for which the
file was written. A digest is a hash over the rows of a run's trace (its recorded events).
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
    """An experiment with its seed; the two determine a run in virtual time (a simulated clock).

    - `words`: the words that name the schedule on a command line.
    - `stamp`: seed, code and digest of an earlier run of the schedule; None if the file has none.
    - `path`: the file; None if the schedule was drawn from a space.
    """

    experiment: Experiment
    seed: int
    words: tuple[str, ...]
    stamp: ReplayStamp | None = None
    path: Path | None = None

    @property
    def name(self) -> str:
        """The words that name the schedule, quoted for a shell."""
        return shlex.join(self.words)

    @property
    def replay_command(self) -> str:
        """The command that plays the schedule again."""
        return f"{PROGRAM} replay {self.name}"

    def changes_since_stamp(self, verb: str, *, force: bool) -> tuple[str, ...]:
        """Return texts on how code and Python have changed since the stamp was written.

        Without a stamp there are no texts. A digest holds only for the same code and Python.

        `verb`: what the command does with the schedule, such as "play"; for the error's message.
        Raises: click.UsageError if code or Python have changed and `force` is False.
        """
        changed = () if self.stamp is None else differences(self.stamp)
        if changed and not force:
            raise click.UsageError(
                f"{self.name} cannot be replayed: {'; '.join(changed)}. "
                f"Check that out, or {verb} it as it is now with --force."
            )
        return changed


def named_schedule(word: str, space: str) -> Schedule:
    """Return the schedule that `word` names: a seed of `space`, or an experiment file.

    A file without `replay` is played with seed 0, as `run` does.

    Raises: ExperimentError if there is no such file or space, or if it has a mistake.
    """
    lineage = lineage_of_text(word)
    if lineage is not None:
        grown = grow(load_space(space), lineage)
        return Schedule(
            experiment=grown.experiment,
            # The seed of a run decides the latencies of its network. A mutation can keep the
            # parent's, so this seed is not always the last number of the lineage.
            seed=grown.network_seed,
            # Without `--space`, a command reads a seed as a seed of the default space.
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
    """Return an error with the reason why `word` cannot be played. The caller raises it."""
    return ExperimentError([Problem(file=word, line=None, path="", message=why)])
