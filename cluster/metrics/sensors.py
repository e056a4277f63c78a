"""Kafka's two kinds of sensors: over windows of samples, and meters of older metrics.

A sampled sensor keeps two samples of 30 s (`metrics.num.samples`, `metrics.sample.window.ms`): what
it says covers between 30 and 60 s. A meter's rates fade with the age of what they count. Times are
handed in; units: milliseconds of one clock.
Source: Kafka `SampledStat`, `Rate`, `Max`, `Avg`, `CumulativeCount`; Yammer's `Meter`, `EWMA`.
"""

import math
from dataclasses import dataclass

WINDOW_MS = 30_000
NUM_SAMPLES = 2
TICK_MS = 5_000
"""How often a meter takes what it counted into its rates."""
METER_MINUTES = {"OneMinuteRate": 1, "FiveMinuteRate": 5, "FifteenMinuteRate": 15}
"""The rates of a meter that fade: after so many minutes the e-th part of one is left."""
DECIMALS = 6
"""To how many decimals a rate is told."""


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


class Meter:
    """How many events there were since the meter was made, and how many a second of late."""

    def __init__(self, start_ms: int) -> None:
        self.count = 0
        """Events ever marked."""
        self._start_ms = start_ms
        self._ticks = 0
        """Ticks gone by since `start_ms`."""
        self._unticked = 0
        """Events marked since the last tick."""
        self._rates = dict.fromkeys(METER_MINUTES, 0.0)

    def mark(self, now_ms: int) -> None:
        """Count an event."""
        self._tick(now_ms)
        self.count += 1
        self._unticked += 1

    def attributes(self, name: str, now_ms: int) -> dict[str, float]:
        """Return what JMX shows of the meter, each attribute after its name and a point.

        Units: `Count` in events since the start, every rate in events a second.
        """
        self._tick(now_ms)
        elapsed_ms = now_ms - self._start_ms
        mean = self.count * 1_000 / elapsed_ms if elapsed_ms > 0 else 0.0
        rates = {"MeanRate": mean, **self._rates}
        told = {f"{name}.{rate}": round(value, DECIMALS) for rate, value in rates.items()}
        return {f"{name}.Count": self.count, **told}

    def _tick(self, now_ms: int) -> None:
        """Make up for the ticks that fell due. The very first one sets the rates as they are."""
        due = (now_ms - self._start_ms) // TICK_MS
        if due <= self._ticks:
            return
        rate = self._unticked * 1_000 / TICK_MS
        idle = due - self._ticks - 1
        for name, minutes in METER_MINUTES.items():
            kept = math.exp(-TICK_MS / (minutes * 60_000))
            before = self._rates[name]
            first = rate if self._ticks == 0 else before + (1 - kept) * (rate - before)
            self._rates[name] = first * kept**idle
        self._ticks = due
        self._unticked = 0
