"""Exit codes of the command line (DESIGN section 10)."""

from enum import IntEnum


class ExitCode(IntEnum):
    """What the shell learns."""

    PASS = 0
    VIOLATED = 1
    UNKNOWN = 2
    INTERRUPTED = 130
    BAD_INPUT = 254
    INTERNAL_ERROR = 255
