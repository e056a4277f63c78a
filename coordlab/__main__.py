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
    except KeyboardInterrupt:
        # `run_cli` handles Ctrl-C itself. This interrupt came while `run_cli` printed an error: the
        # reader of the output has gone away (see `output`).
        code = EXIT_INTERRUPTED
    sys.exit(output.conclude(code))


if __name__ == "__main__":
    main()
