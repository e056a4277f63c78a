"""Schedules that `replay`, `diff` and `shrink` play: an experiment file, or a seed of a space.

A space is a file from which seeds draw experiments with their faults. A mutated seed changes the
plan that an earlier seed has drawn, its parent; the lineage names both. `replay` in a file is the
stamp: seed, code and digest of the run for which the file was written.
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
    """An experiment with its seed, which together determine a run in virtual time.

    - `words`: name the schedule on a command line.
    - `stamp`: digest and code of an earlier run of it; None if the file has none.
    - `path`: the file; None if the schedule was drawn from a space.
    """

    experiment: Experiment
    seed: int
    words: tuple[str, ...]
    stamp: ReplayStamp | None = None
    path: Path | None = None

    @property
    def name(self) -> str:
        """The words that name the schedule, as they are typed."""
        return shlex.join(self.words)

    @property
    def replay_command(self) -> str:
        """The command that plays the schedule again."""
        return f"{PROGRAM} replay {self.name}"

    def changes_since_stamp(self, verb: str, *, force: bool) -> tuple[str, ...]:
        """Return how code and Python differ from those of the stamp, as texts; () without a stamp.

        `verb`: what the command does with the schedule, for the message.
        Raises: click.UsageError if they differ, unless `force`.
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

    The name of a mutated seed includes the seeds of its parents: `12-400-4711`. A file without
    `replay` has seed 0, as with `run`.
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
    """Return, not raise, an error with the reason why `word` cannot be played."""
    return ExperimentError([Problem(file=word, line=None, path="", message=why)])
