"""The name of the program and its exit codes.

The help of every command needs them, so this module imports little and starts fast.
"""

import shlex
import shutil
import sys
from pathlib import Path

PROGRAM = "python -m coordlab"
"""The program's name in the documentation and in recorded runs, whatever the user has typed."""
SCRIPT = "coordlab"
"""File name of the script that an installation puts on the PATH."""
EXIT_CODES_HELP = (
    "Exit codes: 0 pass, 1 a promise was violated, 2 unknown (the run proves nothing), "
    "130 interrupted, 141 the reader of the output is gone, 254 bad arguments or experiment file, "
    "or no run could begin, 255 internal error, or the run could not be recorded."
)


def called_as() -> str:
    """Return the command that started this process, for pasting: `.venv/bin/python -m coordlab`.

    It is PROGRAM if the process was started in another way, for instance by a test.
    """
    # The words of the command line from the interpreter on: python, its options, the rest.
    words = sys.orig_argv
    if words[1:3] == ["-m", "coordlab"]:
        return shlex.join(words[:3])
    script = Path(sys.argv[0])
    if script.name != SCRIPT:
        return PROGRAM
    # The short name is only right if the PATH leads to this script, and not to another
    # installation's script.
    script_on_path = shutil.which(SCRIPT)
    is_this_one = script_on_path is not None and Path(script_on_path).resolve() == script.resolve()
    return SCRIPT if is_this_one else shlex.quote(str(script))


def to_paste(command: str) -> str:
    """Return `command` with `called_as()` instead of PROGRAM, if it begins with PROGRAM."""
    rest = command.removeprefix(PROGRAM)
    return command if rest == command else called_as() + rest
