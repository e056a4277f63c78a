"""Kafka's timeouts, near which durations of faults are drawn.

A fault that ends a little before a timeout has other effects than a fault that ends a little after
the timeout. Many bugs show only in faults whose duration is near a timeout.
"""

from chaos.experiment.structs import Experiment
from protocol.config import BrokerConfig, ConsumerConfig, ZooKeeperConsumerConfig

# Names of the fields that have a timeout, first in BrokerConfig and then in ConsumerConfig.
_BROKER = (
    "broker_session_timeout_ms",
    "broker_heartbeat_interval_ms",
    "controller_quorum_fetch_timeout_ms",
    "offsets_commit_timeout_ms",
    "replica_lag_time_max_ms",
    "replica_socket_timeout_ms",
    "replica_fetch_backoff_ms",
    "group_initial_rebalance_delay_ms",
)
_CONSUMER = (
    "session_timeout_ms",
    "heartbeat_interval_ms",
    "request_timeout_ms",
    "default_api_timeout_ms",
    "max_poll_interval_ms",
    "reconnect_backoff_max_ms",
)
_Owner = type[BrokerConfig] | type[ConsumerConfig] | type[ZooKeeperConsumerConfig]
TIMEOUTS: dict[str, tuple[_Owner, str]] = {
    **{field.replace("_", "."): (BrokerConfig, field) for field in _BROKER},
    **{field.replace("_", "."): (ConsumerConfig, field) for field in _CONSUMER},
    "zookeeper.session.timeout.ms": (ZooKeeperConsumerConfig, "zookeeper_session_timeout_ms"),
    "rebalance.backoff.ms": (ZooKeeperConsumerConfig, "backoff_ms"),
}
"""Each timeout by its name in Kafka, with the class of settings and the field that have its value.

For example, "session.timeout.ms" -> (ConsumerConfig, "session_timeout_ms").
"""


def timeout_ms(name: str, experiment: Experiment, group_id: str) -> int:
    """Return the experiment's value of a timeout.

    Each group has its own values of the consumers' timeouts. `group_id` names the group whose value
    is returned.
    """
    owner, field = TIMEOUTS[name]
    config: BrokerConfig | ConsumerConfig | ZooKeeperConsumerConfig = experiment.cluster.config
    if owner is ConsumerConfig:
        config = experiment.groups[group_id].config
    elif owner is ZooKeeperConsumerConfig:
        config = experiment.groups[group_id].zookeeper
    length: int = getattr(config, field)
    return length
