"""`python -m benchmarks.planted_bugs [BUG ...]`: hunt, print; record if all were hunted."""

import argparse
import sys

from benchmarks.planted_bugs.bugs import BUGS
from benchmarks.planted_bugs.hunt import SEEDS, hunt
from benchmarks.planted_bugs.operation_bugs import OPERATION_BUGS
from benchmarks.planted_bugs.record import PAGE, write_operations, write_page
from chaos.exploration.space import load_space


def main() -> None:
    """Hunt the bugs named, or all of them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.planted_bugs", description=__doc__)
    known = {**BUGS, **OPERATION_BUGS}
    parser.add_argument("bugs", nargs="*", metavar="BUG", help=f"of {', '.join(known)}")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--space", help="default: each bug's own")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.bugs if name not in known]
    if unknown:
        sys.exit(f"no such bug: {', '.join(unknown)}")
    spaces = {
        name: load_space(name)
        for name in dict.fromkeys(arguments.space or bug.space for bug in known.values())
    }
    hunts = []
    for name in arguments.bugs or BUGS:
        hunts.append(
            hunt(known[name], spaces[arguments.space or known[name].space], seeds=arguments.seeds)
        )
        print(hunts[-1], flush=True)
    if not arguments.bugs:
        write_page(hunts)
        print(f"wrote {PAGE}")
    elif set(arguments.bugs) == set(OPERATION_BUGS):
        write_operations(hunts)
        print(f"wrote a section of {PAGE}")


if __name__ == "__main__":
    main()
