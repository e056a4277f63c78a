"""`python -m coordlab`."""

import sys

from coordlab.cli import run_cli


def main() -> None:
    """Run the command line and exit with its code."""
    sys.exit(run_cli(sys.argv[1:]))


if __name__ == "__main__":
    main()
