"""The settings of brokers and clients have Kafka's names, defaults and bounds."""

import msgspec
import pytest

from protocol.config import KAFKA_VERSION, BrokerConfig, ConsumerConfig, ProducerConfig

NEVER = 9_223_372_036_854_775_807
"""Java's largest long. As an interval it means "never"."""
DEFAULTS = {
    "group.min.session.timeout.ms": 6_000,
    "group.initial.rebalance.delay.ms": 3_000,
    "offsets.topic.num.partitions": 50,
    "offsets.commit.timeout.ms": 5_000,
    "replica.lag.time.max.ms": 30_000,
    "broker.session.timeout.ms": 9_000,
    "broker.heartbeat.interval.ms": 2_000,
    "min.insync.replicas": 1,
    "unclean.leader.election.enable": False,
    "log.flush.interval.messages": NEVER,
    "log.flush.interval.ms": None,
    "log.flush.scheduler.interval.ms": NEVER,
}


@pytest.mark.parametrize(("name", "value"), DEFAULTS.items())
def test_broker_setting_has_kafkas_name_and_default(name: str, value: object) -> None:
    """The defaults are copied from docs/kafka/BEHAVIOUR.md 8.1."""
    assert msgspec.to_builtins(BrokerConfig())[name] == value


def test_defaults_are_those_of_kafka_3_9() -> None:
    """Later defaults differ: Kafka 4.0 has linger.ms 5 (KIP-1030) and a coordinator in Java."""
    assert KAFKA_VERSION == "3.9.1"
    assert ProducerConfig().linger_ms == 0
    assert BrokerConfig().group_coordinator_new_enable is False


def test_consumer_settings_are_read_under_kafkas_names() -> None:
    """An experiment has the settings of its consumers under Kafka's names."""
    config = msgspec.convert({"session.timeout.ms": 10_000}, ConsumerConfig)
    assert config.session_timeout_ms == 10_000
    assert config.heartbeat_interval_ms == 3_000


def test_setting_out_of_bounds_or_misspelt_is_refused() -> None:
    """If a setting were ignored, the run would not be a run of this experiment."""
    with pytest.raises(msgspec.ValidationError, match=r"session\.timeout\.ms"):
        msgspec.convert({"session.timeout.ms": 0}, ConsumerConfig)
    with pytest.raises(msgspec.ValidationError, match=r"sesion\.timeout\.ms"):
        msgspec.convert({"sesion.timeout.ms": 10_000}, ConsumerConfig)
