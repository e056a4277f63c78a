"""`python -m benchmarks.planted_bugs [BUG ...]`: search for bugs, and print the results.

Without a name, all bugs are searched for, and the results are recorded in docs/PLANTED_BUGS.md.
With `--absent`, seeds of another space are played with the bugs of `operations` planted together;
the record says that none of them shows a bug.
"""

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.planted_bugs.absence import (
    PROGRESS,
    Absence,
    NotShown,
    check_shown,
    search_absent,
    shown_in_record,
)
from benchmarks.planted_bugs.bugs import BUGS
from benchmarks.planted_bugs.hunt import SEEDS, hunt
from benchmarks.planted_bugs.operation_bugs import OPERATION_BUGS
from benchmarks.planted_bugs.record import PAGE, write_absence, write_operations, write_page
from chaos.exploration.space import load_space

ABSENT_FROM = "standard"
"""With --absent, the default of --space: the space whose seeds must not show the bugs."""
ABSENT_SEEDS = 2_000
"""With --absent, the default of --seeds."""
_PRINT_EVERY = 20
"""Number of seeds after which --absent prints a line."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Search for the named bugs or for BUGS, or play another space with the bugs of operations."""
    all_bugs = {**BUGS, **OPERATION_BUGS}
    parsed = _parser(all_bugs).parse_args(arguments)
    unknown = [name for name in parsed.bugs if name not in all_bugs]
    if unknown:
        sys.exit(f"no such bug: {', '.join(unknown)}")
    if parsed.absent:
        if parsed.bugs:
            sys.exit(f"--absent plants {', '.join(OPERATION_BUGS)} together: name no bug")
        _search_absent(
            parsed.space or ABSENT_FROM, parsed.seeds or ABSENT_SEEDS, Path(parsed.progress)
        )
        return
    seeds = parsed.seeds or SEEDS
    # Each space is loaded once, although several bugs have the same space.
    space_names = {parsed.space or bug.space for bug in all_bugs.values()}
    spaces = {name: load_space(name) for name in sorted(space_names)}
    hunts = []
    for name in parsed.bugs or BUGS:
        bug = all_bugs[name]
        hunts.append(hunt(bug, spaces[parsed.space or bug.space], seeds=seeds))
        print(hunts[-1], flush=True)
    # The page must have the results of all bugs. So the results are recorded only if all of BUGS
    # were searched for, or exactly OPERATION_BUGS.
    if not parsed.bugs:
        write_page(hunts)
        print(f"wrote {PAGE}")
    elif set(parsed.bugs) == set(OPERATION_BUGS):
        write_operations(hunts)
        print(f"wrote a section of {PAGE}")


def _parser(names_of_bugs: Iterable[str]) -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.planted_bugs",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("bugs", nargs="*", metavar="BUG", help=f"of {', '.join(names_of_bugs)}")
    parser.add_argument("--seeds", type=int, help=f"default: {SEEDS}, with --absent {ABSENT_SEEDS}")
    parser.add_argument("--space", help=f"default: each bug's own, with --absent `{ABSENT_FROM}`")
    parser.add_argument(
        "--absent",
        action="store_true",
        help="plant the bugs of operations together and play seeds that must not show them",
    )
    parser.add_argument(
        "--progress", default=str(PROGRESS), metavar="FILE", help="kept results of --absent"
    )
    return parser


def _search_absent(space: str, seeds: int, progress: Path) -> None:
    """Check that planted bugs show in their own space, then play seeds that must not show them."""
    try:
        shown_by = shown_in_record(PAGE.read_text(encoding="utf-8"), OPERATION_BUGS)
        check_shown(OPERATION_BUGS, shown_by)
    except NotShown as problem:
        sys.exit(str(problem))
    print(f"each bug is shown by its seed: {len(shown_by)} of {len(shown_by)}", flush=True)
    absence = search_absent(
        OPERATION_BUGS, load_space(space), seeds=seeds, progress=progress, on_seed=_print_progress
    )
    write_absence(absence)
    print(f"wrote a section of {PAGE}")


def _print_progress(absence: Absence) -> None:
    """Print a line on the results so far, after every _PRINT_EVERY seeds."""
    if absence.seeds % _PRINT_EVERY == 0:
        print(
            f"{absence.seeds} seeds of {absence.space}: {len(absence.shown)} show a bug, "
            f"{len(absence.fails_without_bugs)} fail without it, {absence.undecided} undecided",
            flush=True,
        )


if __name__ == "__main__":
    main()
