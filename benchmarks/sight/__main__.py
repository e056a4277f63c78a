"""`python -m benchmarks.sight COMMAND`: the mutation score of the search, docs/SIGHT.md."""

import argparse
import os
import signal
import sys
import time
from functools import partial
from pathlib import Path

from benchmarks.sight.fates import record_of
from benchmarks.sight.records import FIRST, read_record, write_record
from benchmarks.sight.sampled import (
    SampledMutant,
    draw_sample,
    read_sample,
    sample_path,
    write_sample_file,
)
from benchmarks.sight.sight_page import SIGHT_PAGE, sight_page
from benchmarks.sight.sitting import SEEDS, SPACES, Journal, journal_path, sample_digest, sit
from benchmarks.sight.unit_tests import killed_path, try_unit_tests

_say = partial(print, flush=True)


def main() -> None:
    """Draw a sample, play seeds, write a record or the page, or run the unit tests.

    A sample is a list of mutants (small changes of the code). A journal has the unfinished results
    of a sample. A record is the summary of a journal.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sight", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    draw = commands.add_parser("draw", help="draw a sample; one that exists is not drawn again")
    draw.add_argument("--sample", type=int, required=True)
    draw.add_argument("--seed", type=int, required=True)
    play = commands.add_parser("play", help="play seeds with a sample's mutants, or continue")
    play.add_argument("--sample", type=int, default=1)
    play.add_argument("--name", default=FIRST, help="name of the record, such as before or after")
    play.add_argument("--seeds", type=int, default=SEEDS)
    play.add_argument("--space", nargs="+", default=SPACES, help="one or two spaces")
    play.add_argument("--workers", type=int, default=1)
    play.add_argument(
        "--minutes", type=float, help="end after the seed that is played at that time"
    )
    play.add_argument("--nice", type=int, default=19, help="nice value of the processes, 0 to 19")
    record = commands.add_parser("record", help="write the record of a journal, finished or not")
    record.add_argument("--sample", type=int, default=1)
    record.add_argument("--name", default=FIRST)
    record.add_argument("--journal", type=Path, help="default: the journal of this checkout")
    tests = commands.add_parser("unit-tests", help="run the unit tests with each mutant, for hours")
    tests.add_argument("--sample", type=int, default=1)
    commands.add_parser("page", help="write docs/SIGHT.md from the records")
    arguments = parser.parse_args()
    match arguments.command:
        case "draw":
            head, drawn = draw_sample(arguments.sample, arguments.seed)
            write_sample_file(sample_path(arguments.sample), head, drawn)
            _say(f"{len(drawn)} mutants in {sample_path(arguments.sample)}")
        case "play":
            _play(arguments)
        case "record":
            name, sample = arguments.name, arguments.sample
            journal = Journal(arguments.journal or journal_path(name, sample))
            _say(write_journal_record(journal, name, sample, _mutants(sample)))
        case "unit-tests":
            try_unit_tests(killed_path(arguments.sample), _mutants(arguments.sample), say=_say)
        case _:
            # The only other command is `page`.
            SIGHT_PAGE.write_text(sight_page(), encoding="utf-8")
            _say(f"wrote {SIGHT_PAGE}")


def _play(arguments: argparse.Namespace) -> None:
    """Play until all seeds are done or the time is over; write the record of the played seeds."""
    os.nice(arguments.nice)
    # By default SIGTERM would end the process immediately. An exit lets `sit` end its player and
    # remove the player's folder.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    mutants = _mutants(arguments.sample)
    journal = Journal(journal_path(arguments.name, arguments.sample))
    began_s = time.monotonic()
    minutes = arguments.minutes
    is_done = sit(
        journal,
        mutants,
        seeds=arguments.seeds,
        spaces=arguments.space,
        workers=arguments.workers,
        record=read_record(arguments.name, arguments.sample),
        until=lambda: minutes is not None and time.monotonic() - began_s > 60 * minutes,
        say=_say,
    )
    # The record is written even if the time was over; the next call continues from the journal.
    written = write_journal_record(journal, arguments.name, arguments.sample, mutants)
    _say(f"{'finished' if is_done else 'to be continued'}: {written}")


def write_journal_record(
    journal: Journal, name: str, sample: int, mutants: tuple[SampledMutant, ...]
) -> str:
    """Write the record of a journal; return a line about the record, or why there is none."""
    journaled = journal.read()
    if journaled is None:
        return f"nothing was played: there is no journal {journal.path}"
    head, orders = journaled
    if head.sample != sample_digest(mutants):
        return f"no record: {journal.path} is about another sample than {sample}"
    record = record_of(name, sample, mutants, head, orders)
    path = write_record(record)
    found = sum(fate.found_seed is not None for fate in record.fates)
    return f"{found} of {len(mutants)} mutants found in {record.head.seeds} seeds: {path}"


def _mutants(sample: int) -> tuple[SampledMutant, ...]:
    """Return the mutants of a sample."""
    _head, mutants = read_sample(sample_path(sample))
    return mutants


if __name__ == "__main__":
    main()
