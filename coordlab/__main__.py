"""The entry point of `python -m coordlab`: runs the command line, and exits with its code."""

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
        # Usually `run_cli` handles a Ctrl-C itself. But a Ctrl-C can come while `run_cli` prints an
        # error. The interruption need not come from the user: if the reader of the output is gone,
        # the print fails, and Output interrupts this process.
        code = EXIT_INTERRUPTED
    sys.exit(output.conclude(code))


if __name__ == "__main__":
    main()
