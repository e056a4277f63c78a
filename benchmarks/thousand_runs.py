"""Duration of `analyze` for 100 and 1,000 runs, as in `many_runs`.

This measurement takes long, so it runs only if the command line names it.
"""

from benchmarks.many_runs import measure
from benchmarks.measurement import Measurement

SIZES = (100, 1_000)


def run() -> tuple[Measurement, ...]:
    """Measure SIZES: ten million rows, then a hundred million."""
    return measure(SIZES)
