"""`python -m coordlab`: checks that the packages are ours, then runs the command line."""

import sys

from coordlab.exit_codes import ExitCode
from coordlab.own_packages import foreign_packages


def main() -> None:
    """Run the command line and exit with its code."""
    problems = foreign_packages()
    if problems:
        for problem in problems:
            sys.stderr.write(f"coordlab: {problem}\n")
        sys.exit(ExitCode.BAD_INPUT)
    from coordlab.cli import run_cli  # noqa: PLC0415 - only once the packages are known to be ours

    sys.exit(run_cli(sys.argv[1:]))


if __name__ == "__main__":
    main()
