"""The work for one seed in a worker process: play it into its directory, and summarize its trace.

All workers have the same SeedJob. The main process gives a worker one seed at a time. The worker
writes a run directory, and answers with a PlayedSeed, encoded as bytes. A summary has the figures
of one run, computed from its trace (the run's recorded events).
"""

import traceback
from dataclasses import dataclass
from pathlib import Path

import msgspec

from cluster.fan_out import Items, number_of
from coordlab.commands.run.play import Playable, play_into
from coordlab.seed_names import seed_run_name
from pipeline.in_memory.summary import summarize_directory
from pipeline.summary.summary_file import encode_summary
from results_schema.results import RunOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedJob:
    """An experiment to play with every seed.

    - `playable`: the experiment with all options that determine its runs, except the seed.
    - `runs`: folder of the run directories.
    - `group`: the beginning of the names of these directories.
    - `digits`: number of digits to which seeds are padded in these names, so that the names sort
      like the seeds.
    """

    playable: Playable
    runs: Path
    group: str
    digits: int

    def name_of(self, seed: int) -> str:
        """Return the name of a seed's directory."""
        return seed_run_name(self.group, seed, self.digits)


class PlayedSeed(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of a worker, for one seed.

    - `directory`: the run directory; None if none could be made.
    - `summary`: bytes for `decode_summary`; None if the run did not complete, or if its trace has
      too many rows to sum up in memory.
    - `failure`: traceback of an error of coordlab itself; None if there was no error.
    """

    seed: int
    directory: str | None = None
    summary: bytes | None = None
    failure: str | None = None


def play_seed(job: SeedJob, items: Items) -> bytes:
    """Play the one seed in `items`, and return an encoded PlayedSeed."""
    # The main process gives one item at a time.
    (item,) = items
    return msgspec.msgpack.encode(_played(job, number_of(item)))


def decode_seed(answer: bytes) -> PlayedSeed:
    """Decode the result of `play_seed`."""
    return msgspec.msgpack.decode(answer, type=PlayedSeed)


def _played(job: SeedJob, seed: int) -> PlayedSeed:
    """Play one seed. An exception becomes the `failure` of the answer, and is not raised.

    After a Ctrl-C before or after the run, the answer has no failure and no summary.
    """
    path: Path | None = None
    summary = None
    try:
        directory = job.playable.make_directory(job.runs, seed, name=job.name_of(seed))
        path = directory.path
        results = play_into(directory, job.playable)
        if results.outcome is RunOutcome.COMPLETED:
            summary = summarize_directory(path)
    except KeyboardInterrupt:
        # A run handles Ctrl-C itself, so this Ctrl-C came before or after the run.
        return PlayedSeed(seed=seed, directory=None if path is None else str(path))
    except Exception:
        directory_text = None if path is None else str(path)
        return PlayedSeed(seed=seed, directory=directory_text, failure=traceback.format_exc())
    return PlayedSeed(
        seed=seed,
        directory=str(path),
        summary=None if summary is None else encode_summary(summary),
    )
