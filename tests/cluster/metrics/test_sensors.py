"""Sensors: what Kafka's rates, maxima and averages say of late."""

import math

import pytest

from cluster.metrics.sensors import Meter, SampledSensor


def test_sensor_that_recorded_nothing_has_no_values() -> None:
    sensor = SampledSensor()
    assert (sensor.count, sensor.rate(1_000)) == (0, 0.0)
    assert math.isnan(sensor.max(1_000))
    assert math.isnan(sensor.average(1_000))


def test_first_values_count_as_if_a_window_had_gone_by() -> None:
    """Three in a first second are a tenth a second, not three: no burst at the start."""
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


def test_meter_that_marked_nothing_has_rates_of_zero() -> None:
    meter = Meter(1_000)
    assert set(meter.attributes("m", 1_000).values()) == {0}
    assert set(meter.attributes("m", 600_000).values()) == {0}


def test_rates_of_a_meter_change_with_its_ticks_alone() -> None:
    """Every 5 s from its beginning; its count and mean are always up to date."""
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
    # The first tick takes the rate of its 5 s as it is, without weighing it.
    first = meter.attributes("m", 6_000)
    assert first["m.OneMinuteRate"] == first["m.FifteenMinuteRate"] == 0.6
    assert meter.attributes("m", 10_999)["m.OneMinuteRate"] == 0.6


@pytest.mark.parametrize(("name", "minutes"), [("One", 1), ("Five", 5), ("Fifteen", 15)])
def test_rates_of_a_meter_fade_over_their_minutes(name: str, minutes: int) -> None:
    """To the e-th part, in as many ticks, whether or not it was looked at meanwhile."""
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


def test_steady_marks_bring_every_rate_of_a_meter_to_theirs() -> None:
    """A busy minute after a quiet first tick shows in the one minute's rate first."""
    meter = Meter(0)
    for now_ms in range(5_000, 65_000, 500):
        meter.mark(now_ms)
    said = meter.attributes("m", 65_000)
    assert said["m.OneMinuteRate"] == pytest.approx(2 * (1 - 1 / math.e), abs=1e-6)
    assert said["m.OneMinuteRate"] > said["m.FiveMinuteRate"] > said["m.FifteenMinuteRate"] > 0
