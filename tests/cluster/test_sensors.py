"""Sensors: what Kafka's rates, maxima and averages say of the last one to two windows."""

import math

import pytest

from cluster.sensors import SampledSensor


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
