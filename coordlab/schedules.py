"""Schedules that `replay`, `diff` and `shrink` play: an experiment file, or a seed of a space."""

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
    """An experiment with its seed: all that decides a run in virtual time.

    Shape: `words` name it on a command line; `stamp` is None where no run of it was remembered;
    `path` is its file, None for one that was drawn.
    """

    experiment: Experiment
    seed: int
    words: tuple[str, ...]
    stamp: ReplayStamp | None = None
    path: Path | None = None

    @property
    def name(self) -> str:
        """Its words on a command line."""
        return shlex.join(self.words)

    @property
    def replay_command(self) -> str:
        """The command that plays it again."""
        return f"{PROGRAM} replay {self.name}"

    def changes_since_stamp(self, verb: str, *, force: bool) -> tuple[str, ...]:
        """Return how code and Python differ from those of its stamp; nothing without a stamp.

        Raises: click.UsageError if they differ, unless forced; `verb` is what the command does.
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

    A mutated seed is written with those that it comes from, `12-400-4711`.

    An ordinary experiment, without `replay`, has seed 0, as with `run`.
    Raises: ExperimentError.
    """
    lineage = lineage_of_text(word)
    if lineage is not None:
        grown = grow(load_space(space), lineage)
        return Schedule(
            experiment=grown.experiment,
            seed=grown.network_seed,
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
    """Return the error that says why `word` cannot be played."""
    return ExperimentError([Problem(file=word, line=None, path="", message=why)])
