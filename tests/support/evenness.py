"""Test of uniformity: Kolmogorov's and Smirnov's."""

import math
from collections.abc import Sequence

TERMS = 100
"""Terms of Kolmogorov's infinite series that are added up."""


def p_of_uniform(values: Sequence[float], low: float, high: float) -> float:
    """Return the probability that uniform values deviate at least as much as these.

    Source: Kolmogorov's limit with Stephens' correction for few values, which is accurate to a few
    thousandths from ten values on.
    """
    places = sorted((value - low) / (high - low) for value in values)
    count = len(places)
    apart = max(
        max((index + 1) / count - place, place - index / count)
        for index, place in enumerate(places)
    )
    scaled = (math.sqrt(count) + 0.12 + 0.11 / math.sqrt(count)) * apart
    if scaled < 0.2:  # the series does not converge there, and p is 1 to ten digits
        return 1.0
    terms = ((1 if k % 2 else -1) * math.exp(-2 * (k * scaled) ** 2) for k in range(1, TERMS))
    return min(1.0, max(0.0, 2 * sum(terms)))
