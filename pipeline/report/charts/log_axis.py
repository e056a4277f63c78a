"""A logarithmic axis of time that begins at 0, for values as different as 20 us and 8 s.

0 has no logarithm. So the axis is linear from 0 to its unit, and logarithmic above the unit (Vega's
scale `symlog`). The unit is the power of ten at or below the smallest positive value. For example,
the unit is 100 us if the smallest value is 350 us.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import altair as alt

_MAX_US = 10**12
"""Highest value that can have a tick: 11.6 days."""


@dataclass(frozen=True, slots=True)
class LogAxis:
    """A time axis that begins at 0: linear below `unit_us`, logarithmic above."""

    unit_us: int
    end_us: int

    @classmethod
    def of(cls, values: Iterable[int], *, bound_us: int) -> "LogAxis":
        """Return an axis that contains all values and `bound_us`, the error of the clocks."""
        positive = [value for value in values if value > 0]
        longest = max([*positive, bound_us, 1_000])  # at least 1 ms: an axis needs a length
        shortest = min(positive, default=longest)
        room_behind_longest = longest // 4
        return cls(unit_us=_decade(shortest), end_us=longest + room_behind_longest)

    @property
    def ticks(self) -> list[int]:
        """The labelled positions: 0, and every power of ten from the unit on."""
        ticks, tick = [0], self.unit_us
        while tick <= min(self.end_us, _MAX_US):
            ticks.append(tick)
            tick *= 10
        return ticks

    def place(self, value_us: int) -> float:
        """Return the position of a value on the axis: 0 is the beginning, 1 the end."""
        # log1p(x) is log(1 + x). It is 0 for x = 0, and nearly linear up to x = 1. For a value of
        # `unit_us`, x is 1.
        return math.log1p(max(0, value_us) / self.unit_us) / math.log1p(self.end_us / self.unit_us)

    def value(self, place: float) -> float:
        """Return the value at a position: the inverse of `place`."""
        return self.unit_us * math.expm1(place * math.log1p(self.end_us / self.unit_us))

    def x(self, field: str) -> alt.X:
        """Return the encoding of a field in microseconds."""
        return alt.X(
            field,
            type="quantitative",
            title=None,
            scale=alt.Scale(
                type="symlog",
                constant=self.unit_us,
                domain=[0, self.end_us],
                nice=False,
                clamp=True,
            ),
            axis=alt.Axis(
                values=self.ticks,
                # With a smaller number, Vega would leave every other tick out.
                tickCount=len(self.ticks) + 1,
                labelExpr=_TICK_LABEL,
                labelOverlap="greedy",
                labelSeparation=10,
                labelBound=True,
                labelFlush=True,
                orient="bottom",
            ),
        )


_TICK_LABEL = (
    "datum.value == 0 ? '0' : datum.value < 1000 ? datum.value + ' us'"
    " : datum.value < 1000000 ? datum.value / 1000 + ' ms' : datum.value / 1000000 + ' s'"
)
"""A Vega expression for the text at a tick, from its value in microseconds."""


def _decade(value: int) -> int:
    """Return the power of ten at or below a positive number: 100 for 350."""
    return int(10 ** (len(str(value)) - 1))
