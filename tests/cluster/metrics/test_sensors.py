"""Sensors: Kafka's rates, maxima and averages of recent values."""

import math

import pytest

from cluster.metrics.sensors import Meter, SampledSensor


def test_sensor_without_values_has_no_values() -> None:
    sensor = SampledSensor()
    assert (sensor.count, sensor.rate(1_000)) == (0, 0.0)
    assert math.isnan(sensor.max(1_000))
    assert math.isnan(sensor.average(1_000))


def test_first_values_are_averaged_over_a_whole_window() -> None:
    """Three values in the first second are 0.1 a second, not 3: no burst at the start."""
    sensor = SampledSensor()
    for now_ms in (0, 500, 1_000):
        sensor.record(1, now_ms)
    assert sensor.rate(1_000) == pytest.approx(3 / 31)
    assert sensor.rate(30_000) == pytest.approx(3 / 30)


def test_rate_covers_the_last_two_windows() -> None:
    sensor = SampledSensor()
    for now_ms in range(0, 90_000, 1_000):
        sensor.record(1, now_ms)
    assert sensor.count == 90
    assert sensor.rate(89_000) == pytest.approx(60 / 59)


def test_values_are_forgotten_after_two_windows_and_the_count_is_not() -> None:
    sensor = SampledSensor()
    sensor.record(250, 0)
    sensor.record(50, 10_000)
    assert (sensor.max(69_999), sensor.average(69_999)) == (250, 150)
    assert math.isnan(sensor.max(70_000))
    assert sensor.rate(70_000) == 0.0
    assert sensor.count == 300


def test_meter_without_marks_has_rates_of_zero() -> None:
    meter = Meter(1_000)
    assert set(meter.attributes("m", 1_000).values()) == {0}
    assert set(meter.attributes("m", 600_000).values()) == {0}


def test_rates_of_a_meter_change_only_at_its_ticks() -> None:
    """It ticks every 5 s from its beginning; its count and mean are always current."""
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
    # The first tick takes the rate of its 5 s unweighted.
    first = meter.attributes("m", 6_000)
    assert first["m.OneMinuteRate"] == first["m.FifteenMinuteRate"] == 0.6
    assert meter.attributes("m", 10_999)["m.OneMinuteRate"] == 0.6


@pytest.mark.parametrize(("name", "minutes"), [("One", 1), ("Five", 5), ("Fifteen", 15)])
def test_rates_of_a_meter_decay_over_their_minutes(name: str, minutes: int) -> None:
    """They fall to 1/e in that time, whether or not they were read."""
    asked, left_alone = Meter(0), Meter(0)
    for meter in (asked, left_alone):
        for _ in range(50):
            meter.mark(4_999)
    end_ms = 5_000 + minutes * 60_000
    for now_ms in range(5_000, end_ms, 5_000):
        asked.attributes("m", now_ms)
    rate = left_alone.attributes("m", end_ms)[f"m.{name}MinuteRate"]
    assert rate == pytest.approx(10 / math.e, abs=1e-5)
    assert asked.attributes("m", end_ms)[f"m.{name}MinuteRate"] == pytest.approx(rate)


def test_steady_marks_bring_every_rate_of_a_meter_to_their_own_rate() -> None:
    """After a quiet first tick the one-minute rate rises first."""
    meter = Meter(0)
    for now_ms in range(5_000, 65_000, 500):
        meter.mark(now_ms)
    said = meter.attributes("m", 65_000)
    assert said["m.OneMinuteRate"] == pytest.approx(2 * (1 - 1 / math.e), abs=1e-6)
    assert said["m.OneMinuteRate"] > said["m.FiveMinuteRate"] > said["m.FifteenMinuteRate"] > 0
