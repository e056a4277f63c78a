"""Rates, maxima and averages of recent values, computed as in Kafka's metrics.

Kafka has metrics of two kinds, and so have the nodes of the test lab:

- The newer metrics, such as `offset-commit-rate`, use a SampledSensor. A SampledSensor looks at the
  last 60 s, which are two windows of 30 s.
- The older metrics, which use the library Yammer, use a Meter. A Meter has three rates: over one
  minute, over five minutes and over fifteen minutes. The rates change only every 5 s, at a tick.
  A tick mixes the old rate with the rate of the last 5 s, so old events count less and less.

Sensors and meters have no clock, so each call passes the time in milliseconds:

    sensor.record(250, 0)            # the value 250 at 0 s
    meter = Meter(1_000)             # the meter begins at 1 s
    meter.mark(3_000)                # something happened at 3 s
    meter.attributes("m", 5_000)     # the values at 5 s: {"m.Count": 1, "m.MeanRate": 0.25, ...}
"""

import math

import pytest

from cluster.metrics.sensors import Meter, SampledSensor


def test_sensor_without_values_has_no_values() -> None:
    """As in Kafka, the maximum and the average of no values are NaN. The rate and count are 0."""
    sensor = SampledSensor()
    assert sensor.count == 0
    assert sensor.rate(1_000) == 0.0
    assert math.isnan(sensor.max(1_000))
    assert math.isnan(sensor.average(1_000))


def test_first_values_are_averaged_over_a_whole_window() -> None:
    """Three values in the first second are a rate of about 0.1 per second, and not of 3.

    In the first 30 s, Kafka acts as if an empty window of 30 s had passed before the sensor began.
    So the rate at 1 s is 3 / (30 + 1). At 30 s the first real window is over. From then on no time
    is added, so the rate at 30 s is 3 / 30.
    """
    sensor = SampledSensor()
    for now_ms in (0, 500, 1_000):
        sensor.record(1, now_ms)
    assert sensor.rate(1_000) == pytest.approx(3 / 31)
    assert sensor.rate(30_000) == pytest.approx(3 / 30)


def test_rate_covers_the_last_two_windows() -> None:
    """There is one value each second, from 0 s to 89 s. At 89 s the third window has begun.

    The rate covers the second window, from 30 s to 60 s, and the third window, from 60 s to now.
    The second window has lasted 30 s, and has the 30 values from 30 s to 59 s. The third window has
    lasted 29 s, and also has 30 values, from 60 s to 89 s. So the rate is 60 values in 59 s.
    """
    sensor = SampledSensor()
    for now_ms in range(0, 90_000, 1_000):
        sensor.record(1, now_ms)
    assert sensor.count == 90
    assert sensor.rate(89_000) == pytest.approx(60 / 59)


def test_values_are_forgotten_after_two_windows_and_the_count_is_not() -> None:
    """Both values are in one window, whose last value is at 10 s. At 70 s the window is dropped.

    The `count` of a sensor is the sum of all its values, as in Kafka. It forgets no value.
    """
    sensor = SampledSensor()
    sensor.record(250, 0)
    sensor.record(50, 10_000)
    assert sensor.max(69_999) == 250
    assert sensor.average(69_999) == 150
    assert math.isnan(sensor.max(70_000))
    assert sensor.rate(70_000) == 0.0
    assert sensor.count == 250 + 50  # the sum of the values, not their number


def test_meter_without_marks_has_rates_of_zero() -> None:
    """The rates are 0, and not NaN, at the beginning and also after ten minutes."""
    meter = Meter(1_000)
    assert set(meter.attributes("m", 1_000).values()) == {0}
    assert set(meter.attributes("m", 600_000).values()) == {0}


def test_rates_of_a_meter_change_only_at_its_ticks() -> None:
    """The meter begins at 1 s, so its first tick is at 6 s.

    The count and the mean rate do not wait for a tick. Just before the first tick, the mean rate is
    three marks in 4.999 s. The tick sets the other three rates to 3 / 5 = 0.6. These rates stay at
    0.6 up to the next tick, at 11 s.
    """
    meter = Meter(1_000)
    for now_ms in (1_000, 3_000, 5_999):
        meter.mark(now_ms)
    assert meter.attributes("m", 5_999) == {
        "m.Count": 3,
        "m.MeanRate": pytest.approx(3 / 4.999, abs=1e-6),
        "m.OneMinuteRate": 0,
        "m.FiveMinuteRate": 0,
        "m.FifteenMinuteRate": 0,
    }
    # There is no old rate to mix with at the first tick, so the rate of its 5 s is taken as it is.
    at_first_tick = meter.attributes("m", 6_000)
    assert at_first_tick["m.OneMinuteRate"] == 0.6
    assert at_first_tick["m.FifteenMinuteRate"] == 0.6
    assert meter.attributes("m", 10_999)["m.OneMinuteRate"] == 0.6


@pytest.mark.parametrize(("name", "minutes"), [("One", 1), ("Five", 5), ("Fifteen", 15)])
def test_rates_of_a_meter_decay_over_their_minutes(name: str, minutes: int) -> None:
    """Without new marks, a rate over N minutes falls to 1/e of its value in N minutes.

    Each meter has 50 marks in the first 5 s, which are 10 per second, and then none. One meter is
    read at every tick, and the other meter only once, at the end. Both must end at the same rate.
    """
    read_often = Meter(0)
    read_once = Meter(0)
    for meter in (read_often, read_once):
        for _ in range(50):
            meter.mark(4_999)
    end_ms = 5_000 + minutes * 60_000
    for now_ms in range(5_000, end_ms, 5_000):
        read_often.attributes("m", now_ms)
    rate = read_once.attributes("m", end_ms)[f"m.{name}MinuteRate"]
    assert rate == pytest.approx(10 / math.e, abs=1e-5)
    assert read_often.attributes("m", end_ms)[f"m.{name}MinuteRate"] == pytest.approx(rate)


def test_steady_marks_raise_the_one_minute_rate_of_a_meter_first() -> None:
    """A rate over a shorter time follows a change faster.

    There are no marks before the first tick, at 5 s, and then two marks per second for a minute.
    In this minute the one-minute rate comes up from 0 to 2 * (1 - 1/e), about 63% of the real rate.
    The rates over longer times are lower.
    """
    meter = Meter(0)
    for now_ms in range(5_000, 65_000, 500):
        meter.mark(now_ms)
    rates = meter.attributes("m", 65_000)
    one_minute = rates["m.OneMinuteRate"]
    assert one_minute == pytest.approx(2 * (1 - 1 / math.e), abs=1e-6)
    assert one_minute > rates["m.FiveMinuteRate"] > rates["m.FifteenMinuteRate"] > 0
