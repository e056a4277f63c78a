"""Kafka's sensors: rates, maxima and averages over its windows of samples.

A sensor keeps two samples of 30 s (`metrics.num.samples`, `metrics.sample.window.ms`): what it says
covers between 30 and 60 s. Times are handed in; units: milliseconds of one clock.
Source: Kafka `SampledStat`, `Rate`, `Max`, `Avg`, `CumulativeCount`.
"""

import math
from dataclasses import dataclass

WINDOW_MS = 30_000
NUM_SAMPLES = 2


@dataclass(slots=True)
class _Sample:
    """What was recorded since `start_ms`, for a window."""

    start_ms: int
    last_ms: int
    count: int = 0
    total: float = 0.0
    largest: float = -math.inf


class SampledSensor:
    """What was recorded of late, and how much since the beginning."""

    def __init__(self) -> None:
        self.count = 0
        """Everything ever recorded: Kafka's CumulativeSum."""
        self._samples: list[_Sample] = []

    def record(self, value: float, now_ms: int) -> None:
        """Record a value."""
        self.count += round(value)
        if not self._samples or now_ms - self._samples[-1].start_ms >= WINDOW_MS:
            self._samples.append(_Sample(now_ms, now_ms))
            del self._samples[:-NUM_SAMPLES]
        sample = self._samples[-1]
        sample.last_ms = now_ms
        sample.count += 1
        sample.total += value
        sample.largest = max(sample.largest, value)

    def rate(self, now_ms: int) -> float:
        """Return what was recorded in a second; 0 if nothing was of late."""
        live = self._live(now_ms)
        if not live:
            return 0.0
        elapsed_ms = now_ms - live[0].start_ms
        # At least all windows but the current one count as gone by: a first value is no burst.
        missing = NUM_SAMPLES - 1 - elapsed_ms // WINDOW_MS
        elapsed_ms += max(0, missing) * WINDOW_MS
        return sum(sample.total for sample in live) * 1_000 / elapsed_ms

    def max(self, now_ms: int) -> float:
        """Return the largest value of late, NaN if there is none."""
        return max((sample.largest for sample in self._live(now_ms)), default=math.nan)

    def average(self, now_ms: int) -> float:
        """Return the mean of the values of late, NaN if there is none."""
        live = self._live(now_ms)
        number = sum(sample.count for sample in live)
        return sum(sample.total for sample in live) / number if number else math.nan

    def _live(self, now_ms: int) -> list[_Sample]:
        return [s for s in self._samples if now_ms - s.last_ms < NUM_SAMPLES * WINDOW_MS]
