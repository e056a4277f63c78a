"""Kafka's two kinds of sensors: sampled sensors, and meters, which Kafka's older metrics use.

A sampled sensor keeps the values of two windows of 30 s (`metrics.num.samples`,
`metrics.sample.window.ms`): the present window and the one before. So its results are about the
last 30 to 60 s. The values of this time are called "recent" below. A meter has rates per second in
which older events count less. The caller passes the present time to each method, in milliseconds.

Source: Kafka `SampledStat`, `Rate`, `Max`, `Avg`, `CumulativeCount`; Yammer's `Meter`, `EWMA`.
"""

import math
from dataclasses import dataclass

WINDOW_MS = 30_000
"""metrics.sample.window.ms"""
NUM_SAMPLES = 2
"""metrics.num.samples"""
TICK_MS = 5_000
"""Interval at which a meter updates its rates with the events counted since the last update."""
METER_MINUTES = {"OneMinuteRate": 1, "FiveMinuteRate": 5, "FifteenMinuteRate": 15}
"""The rates of a meter, each with the minutes after which an event's weight has sunk to 1/e."""
DECIMALS = 6
"""Number of decimals to which rates are rounded."""


@dataclass(slots=True)
class _Sample:
    """The values of one window.

    The first value came at `start_ms`, the last value so far at `last_ms`.
    """

    start_ms: int
    last_ms: int
    count: int = 0
    total: float = 0.0
    largest: float = -math.inf


class SampledSensor:
    """Recent values, and their total since the beginning."""

    def __init__(self) -> None:
        self.count = 0
        """The sum of all values ever recorded, as in Kafka's CumulativeCount. For a sensor of
        events, each value is 1, so the sum is the number of events."""
        self._samples: list[_Sample] = []
        """The last windows, at most NUM_SAMPLES, the oldest first."""

    def record(self, value: float, now_ms: int) -> None:
        """Record a value."""
        self.count += round(value)  # the total is reported only for sensors of whole numbers
        if not self._samples or now_ms - self._samples[-1].start_ms >= WINDOW_MS:
            self._samples.append(_Sample(now_ms, now_ms))
            del self._samples[:-NUM_SAMPLES]  # keeps the last NUM_SAMPLES
        sample = self._samples[-1]
        sample.last_ms = now_ms
        sample.count += 1
        sample.total += value
        sample.largest = max(sample.largest, value)

    def rate(self, now_ms: int) -> float:
        """Return the recent total per second; 0 without recent values."""
        samples = self._recent_samples(now_ms)
        if not samples:
            return 0.0
        elapsed_ms = now_ms - samples[0].start_ms  # since the older of the two windows began
        # If there was no earlier window, 30 s are added as if there had been one. Otherwise a
        # single value, read 1 ms later, would be a rate of 1,000 per second.
        missing_windows = NUM_SAMPLES - 1 - elapsed_ms // WINDOW_MS
        elapsed_ms += max(0, missing_windows) * WINDOW_MS
        return sum(sample.total for sample in samples) * 1_000 / elapsed_ms

    def max(self, now_ms: int) -> float:
        """Return the largest recent value, or NaN if no value is recent."""
        return max((sample.largest for sample in self._recent_samples(now_ms)), default=math.nan)

    def average(self, now_ms: int) -> float:
        """Return the mean of the recent values, or NaN if no value is recent."""
        samples = self._recent_samples(now_ms)
        number = sum(sample.count for sample in samples)
        return sum(sample.total for sample in samples) / number if number else math.nan

    def _recent_samples(self, now_ms: int) -> list[_Sample]:
        """Return the windows whose last value came less than two windows' time ago."""
        return [s for s in self._samples if now_ms - s.last_ms < NUM_SAMPLES * WINDOW_MS]


class Meter:
    """Number of events since the meter's creation, and decaying rates per second."""

    def __init__(self, start_ms: int) -> None:
        self.count = 0
        """Number of events so far."""
        self._start_ms = start_ms
        self._ticks = 0
        """Number of ticks since `start_ms`."""
        self._unticked = 0
        """Number of events since the last tick."""
        self._rates = dict.fromkeys(METER_MINUTES, 0.0)

    def mark(self, now_ms: int) -> None:
        """Count an event."""
        self._tick(now_ms)
        self.count += 1
        self._unticked += 1

    def attributes(self, name: str, now_ms: int) -> dict[str, float]:
        """Return the meter's JMX attributes. A key is `name`, a dot and the attribute's name.

        Units: `Count` is the number of events so far, the rates are events per second.
        """
        self._tick(now_ms)
        elapsed_ms = now_ms - self._start_ms  # 0 at the moment of the meter's creation
        mean = self.count * 1_000 / elapsed_ms if elapsed_ms > 0 else 0.0
        rates = {"MeanRate": mean, **self._rates}
        rounded_rates = {f"{name}.{rate}": round(value, DECIMALS) for rate, value in rates.items()}
        return {f"{name}.Count": self.count, **rounded_rates}

    def _tick(self, now_ms: int) -> None:
        """Apply the ticks that are due.

        The first due tick counts all events since the last tick. All further due ticks are idle:
        they only let the rates decay. As in Yammer's meter, the first tick of all sets the rates to
        the rate of its own events.
        """
        due = (now_ms - self._start_ms) // TICK_MS
        if due <= self._ticks:
            return
        tick_rate = self._unticked * 1_000 / TICK_MS
        idle_ticks = due - self._ticks - 1
        for name, minutes in METER_MINUTES.items():
            decay = math.exp(-TICK_MS / (minutes * 60_000))
            before = self._rates[name]
            if self._ticks == 0:
                after_first_tick = tick_rate
            else:
                # The rate moves from its old value towards the rate of this tick.
                after_first_tick = before + (1 - decay) * (tick_rate - before)
            self._rates[name] = after_first_tick * decay**idle_ticks
        self._ticks = due
        self._unticked = 0
