"""How the program is called, and its exit codes: what every help needs, at no cost of imports."""

PROGRAM = "python -m coordlab"
EXIT_CODES_HELP = (
    "Exit codes: 0 pass, 1 a promise was violated, 2 unknown (the run proves nothing), "
    "130 interrupted, 141 nobody reads the output any more, 254 bad arguments or experiment file, "
    "or no run could begin, 255 internal error, or the run could not be recorded."
)
