"""How the program is called, and its exit codes: what every help needs, at no cost of imports."""

import shlex
import shutil
import sys
from pathlib import Path

PROGRAM = "python -m coordlab"
"""How documents and recorded runs call it."""
SCRIPT = "coordlab"
EXIT_CODES_HELP = (
    "Exit codes: 0 pass, 1 a promise was violated, 2 unknown (the run proves nothing), "
    "130 interrupted, 141 nobody reads the output any more, 254 bad arguments or experiment file, "
    "or no run could begin, 255 internal error, or the run could not be recorded."
)


def called_as() -> str:
    """Return how this process was called, to be pasted: `.venv/bin/python -m coordlab`."""
    words = sys.orig_argv
    if words[1:3] == ["-m", "coordlab"]:
        return shlex.join(words[:3])
    script = Path(sys.argv[0])
    if script.name != SCRIPT:
        return PROGRAM
    found = shutil.which(SCRIPT)
    on_path = found is not None and Path(found).resolve() == script.resolve()
    return SCRIPT if on_path else shlex.quote(str(script))


def to_paste(command: str) -> str:
    """Return a command that begins with PROGRAM as it is to be typed where this process was."""
    rest = command.removeprefix(PROGRAM)
    return command if rest == command else called_as() + rest
