"""The name of the program, as users have to type it, and its exit codes.

The help of every command needs the name and the exit codes. So this module imports little.
"""

import shlex
import shutil
import sys
from pathlib import Path

PROGRAM = "python -m coordlab"
"""The program's name in the documentation and in the files of runs, whatever the user has typed."""
SCRIPT = "coordlab"
"""The name of the script that an installation puts into a folder of the PATH."""
EXIT_CODES_HELP = (
    "Exit codes: 0 pass, 1 a promise was violated, 2 unknown (the run proves nothing), "
    "130 interrupted, 141 the reader of the output is gone, 254 bad arguments or experiment file, "
    "or no run could begin, 255 internal error, or the run could not be recorded."
)


def called_as() -> str:
    """Return how the user has called the program, such as `.venv/bin/python -m coordlab`.

    Commands that are printed for the user to paste begin with this text. In a process that was
    started in another way, for instance by a test, the text is PROGRAM.
    """
    # Unlike `sys.argv`, `sys.orig_argv` begins with the interpreter.
    command_line = sys.orig_argv
    if command_line[1:3] == ["-m", "coordlab"]:
        return shlex.join(command_line[:3])
    script = Path(sys.argv[0])
    if script.name != SCRIPT:
        return PROGRAM
    # The user can type `coordlab` only if the PATH leads to this script. It may also lead to the
    # script of another installation.
    script_on_path = shutil.which(SCRIPT)
    is_this_one = script_on_path is not None and Path(script_on_path).resolve() == script.resolve()
    return SCRIPT if is_this_one else shlex.quote(str(script))


def to_paste(command: str) -> str:
    """Return a recorded command as this user has to type it.

    `python -m coordlab run fencing` may become `coordlab run fencing`.
    """
    if not command.startswith(PROGRAM):
        return command
    return called_as() + command.removeprefix(PROGRAM)
