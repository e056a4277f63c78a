"""The work of a worker process of `run --seeds`, which plays one seed after the other.

When a worker starts, it gets a SeedJob, which says what to play and is the same for all workers.
Then the main process sends one seed at a time to the worker. The worker plays this seed into a run
directory, computes the summary of the run, and answers with a PlayedSeed, encoded as bytes.
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
    """The experiment to play, and the place of the run directories. It has no seed.

    - `playable`: the experiment and its options.
    - `runs`: the folder in which the run directories are made.
    - `batch`, `digits`: the parts of the directories' names; see `seed_run_name`.
    """

    playable: Playable
    runs: Path
    batch: str
    digits: int

    def name_of(self, seed: int) -> str:
        """Return the name of a seed's directory."""
        return seed_run_name(self.batch, seed, self.digits)


class PlayedSeed(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of a worker about one seed.

    Verdict and findings are no part of the answer, because they are in the run directory.

    - `directory`: the run directory; None if it could not be made.
    - `summary`: the figures of the run as bytes, for `decode_summary`; None if the run did not
      complete, or if its trace is too large to be summed up in memory.
    - `failure`: the traceback, if coordlab itself failed.
    """

    seed: int
    directory: str | None = None
    summary: bytes | None = None
    failure: str | None = None


def play_seed(job: SeedJob, items: Items) -> bytes:
    """Play the one seed in `items`, and return an encoded PlayedSeed."""
    (item,) = items  # the main process never sends more than one
    return msgspec.msgpack.encode(_play_one_seed(job, number_of(item)))


def decode_seed(answer: bytes) -> PlayedSeed:
    """Decode what `play_seed` has returned."""
    return msgspec.msgpack.decode(answer, type=PlayedSeed)


def _play_one_seed(job: SeedJob, seed: int) -> PlayedSeed:
    """Play one seed. Raises nothing: an exception becomes the `failure` of the answer."""
    path: str | None = None  # the path of the run directory, as soon as it has been made
    summary = None
    try:
        directory = job.playable.make_directory(job.runs, seed, name=job.name_of(seed))
        path = str(directory.path)
        results = play_into(directory, job.playable)
        if results.outcome is RunOutcome.COMPLETED:
            summary = summarize_directory(directory.path)
    except KeyboardInterrupt:
        # A Ctrl-C during the run itself ends the run in order, and raises nothing. So this Ctrl-C
        # came shortly before the run or after it, and there is no summary.
        return PlayedSeed(seed=seed, directory=path)
    except Exception:
        return PlayedSeed(seed=seed, directory=path, failure=traceback.format_exc())
    encoded_summary = None if summary is None else encode_summary(summary)
    return PlayedSeed(seed=seed, directory=path, summary=encoded_summary)
