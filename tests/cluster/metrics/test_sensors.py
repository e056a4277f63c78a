"""Sensors: rates, maxima and averages of recent values, as Kafka computes them.

- A SampledSensor keeps the values of two windows of 30 s each, as in Kafka's own metrics.
- A Meter computes like a meter of the library Yammer, which Kafka's older metrics use. Its rates
  change only at its ticks, every 5 s. Each tick mixes the old rate with the rate of the last 5 s,
  so old marks count less and less.
- Times are arguments, in milliseconds: `Meter(1_000)` begins at 1 s.
- `attributes("m", now_ms)` has the values of a meter under the names that JMX shows.
"""

import math

import pytest

from cluster.metrics.sensors import Meter, SampledSensor


def test_sensor_without_values_has_no_values() -> None:
    """As in Kafka, without values a maximum and an average are NaN, a rate and a count are 0."""
    sensor = SampledSensor()
    assert (sensor.count, sensor.rate(1_000)) == (0, 0.0)
    assert math.isnan(sensor.max(1_000))
    assert math.isnan(sensor.average(1_000))


def test_first_values_are_averaged_over_a_whole_window() -> None:
    """Three values in the first second give a rate of about 0.1 per second, and not of 3.

    The rate is for at least one whole window of 30 s, although only 1 s has passed. Kafka adds the
    time of the present window, so the rate at 1 s is 3 / (30 + 1).
    """
    sensor = SampledSensor()
    for now_ms in (0, 500, 1_000):
        sensor.record(1, now_ms)
    assert sensor.rate(1_000) == pytest.approx(3 / 31)
    assert sensor.rate(30_000) == pytest.approx(3 / 30)


def test_rate_covers_the_last_two_windows() -> None:
    """Of 90 values, one each second, the rate counts the 60 of the last two windows.

    At 89 s the second of these windows has lasted for 29 s: 60 / (30 + 29).
    """
    sensor = SampledSensor()
    for now_ms in range(0, 90_000, 1_000):
        sensor.record(1, now_ms)
    assert sensor.count == 90
    assert sensor.rate(89_000) == pytest.approx(60 / 59)


def test_values_are_forgotten_after_two_windows_and_the_count_is_not() -> None:
    """Both values are in one window, which is dropped 60 s after its last value: at 70 s."""
    sensor = SampledSensor()
    sensor.record(250, 0)
    sensor.record(50, 10_000)
    assert (sensor.max(69_999), sensor.average(69_999)) == (250, 150)
    assert math.isnan(sensor.max(70_000))
    assert sensor.rate(70_000) == 0.0
    assert sensor.count == 300  # a count is the sum of all values


def test_meter_without_marks_has_rates_of_zero() -> None:
    """The rates are 0 and not NaN, however long the meter exists."""
    meter = Meter(1_000)
    assert set(meter.attributes("m", 1_000).values()) == {0}
    assert set(meter.attributes("m", 600_000).values()) == {0}


def test_rates_of_a_meter_change_only_at_its_ticks() -> None:
    """The meter begins at 1 s, and its first tick is at 6 s. Its count and mean are always current.

    The mean rate is three marks in 4.999 s. The first tick sets the other rates to 3 / 5 = 0.6.
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
    # The first tick takes the rate of its 5 s as it is; later ticks take averages.
    first = meter.attributes("m", 6_000)
    assert first["m.OneMinuteRate"] == first["m.FifteenMinuteRate"] == 0.6
    assert meter.attributes("m", 10_999)["m.OneMinuteRate"] == 0.6


@pytest.mark.parametrize(("name", "minutes"), [("One", 1), ("Five", 5), ("Fifteen", 15)])
def test_rates_of_a_meter_decay_over_their_minutes(name: str, minutes: int) -> None:
    """A rate over `minutes` falls to 1/e in that time, even if the meter was not read meanwhile.

    50 marks in the first 5 s are 10 per second. Then there are no marks.
    """
    read_often, read_once = Meter(0), Meter(0)
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

    After a quiet first tick there are two marks per second, for a minute. By then the one-minute
    rate has risen to 1 - 1/e of its final value, 2. The rates over longer times are lower.
    """
    meter = Meter(0)
    for now_ms in range(5_000, 65_000, 500):
        meter.mark(now_ms)
    rates = meter.attributes("m", 65_000)
    assert rates["m.OneMinuteRate"] == pytest.approx(2 * (1 - 1 / math.e), abs=1e-6)
    assert rates["m.OneMinuteRate"] > rates["m.FiveMinuteRate"] > rates["m.FifteenMinuteRate"] > 0
