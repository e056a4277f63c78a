"""`python -m coordlab`."""

import sys

from coordlab.cli import run_cli
from coordlab.output import Output
from results_schema.results import EXIT_INTERRUPTED


def main() -> None:
    """Run the command line and exit with its code."""
    output = Output()
    output.take_over()
    try:
        code = run_cli(sys.argv[1:])
    except KeyboardInterrupt:  # the output was closed while the error of another end was printed
        code = EXIT_INTERRUPTED
    sys.exit(output.conclude(code))


if __name__ == "__main__":
    main()
