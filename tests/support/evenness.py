"""The Kolmogorov-Smirnov test: are values spread evenly over an interval?"""

import itertools
import math
from collections.abc import Sequence

TERMS = 100
"""The number of terms of Kolmogorov's infinite series at which the sum is cut off."""


def p_of_uniform(values: Sequence[float], low: float, high: float) -> float:
    """Return a number near 0 if the values are not evenly spread from `low` to `high`.

    The result is the p-value: the probability that the same number of evenly drawn values is spread
    at least as unevenly as these values. The formula is Kolmogorov's limit for many values, with
    Stephens' correction for few values. From ten values on, the result is accurate to a few
    thousandths.
    """
    places = sorted((value - low) / (high - low) for value in values)
    count = len(places)
    # Plot the share of the values below x against x. The plot is a staircase, which rises by
    # 1 / count at each value. For perfectly even values, it would be a straight line. Look for the
    # largest distance between the staircase and this line. The distance is largest at a step or
    # just before a step.
    distance = max(
        max((index + 1) / count - place, place - index / count)
        for index, place in enumerate(places)
    )
    # Stephens' correction.
    scaled = (math.sqrt(count) + 0.12 + 0.11 / math.sqrt(count)) * distance
    if scaled < 0.2:
        # The series converges too slowly for so small a distance. Here p is 1 to ten digits.
        return 1.0
    # The terms are added and subtracted in turn.
    signs = itertools.cycle((1, -1))
    terms = (next(signs) * math.exp(-2 * (term * scaled) ** 2) for term in range(1, TERMS))
    # A finite sum may lie a little outside of 0 to 1.
    return min(1.0, max(0.0, 2 * sum(terms)))
