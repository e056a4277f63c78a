"""The Kolmogorov-Smirnov test: are values spread evenly over an interval?"""

import math
from collections.abc import Sequence

TERMS = 100
"""Terms of Kolmogorov's infinite series that are added up."""


def p_of_uniform(values: Sequence[float], low: float, high: float) -> float:
    """Return the p-value of `values`: near 0 if they are not evenly spread from `low` to `high`.

    The p-value is the probability that as many values, drawn from a uniform distribution, deviate
    from that distribution at least as much as `values` do. The formula is Kolmogorov's limit for
    many values, with Stephens' correction for few. From ten values on, the result is accurate to a
    few thousandths.
    """
    places = sorted((value - low) / (high - low) for value in values)
    count = len(places)
    # The distribution of the values is a staircase: it steps up by 1 / count at each value. The
    # uniform distribution is a straight line. The distance is largest just before or at a step.
    distance = max(
        max((index + 1) / count - place, place - index / count)
        for index, place in enumerate(places)
    )
    # Stephens' correction.
    scaled = (math.sqrt(count) + 0.12 + 0.11 / math.sqrt(count)) * distance
    if scaled < 0.2:  # the series does not converge there, and p is 1 to ten digits
        return 1.0
    terms = (
        (1 if term % 2 else -1) * math.exp(-2 * (term * scaled) ** 2) for term in range(1, TERMS)
    )
    # A finite sum may lie a little outside of 0 to 1.
    return min(1.0, max(0.0, 2 * sum(terms)))
