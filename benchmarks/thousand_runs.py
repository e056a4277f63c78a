"""How long `analyze` takes for 100 and 1,000 runs: the rest of `many_runs`, long, only by name."""

from benchmarks.many_runs import measure
from benchmarks.measurement import Measurement

SIZES = (100, 1_000)


def run() -> tuple[Measurement, ...]:
    """Measure SIZES: ten million rows, then a hundred."""
    return measure(SIZES)
