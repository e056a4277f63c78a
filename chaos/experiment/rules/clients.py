"""Whether the settings of one client fit each other: a consumer's, or a producer's.

Source: BEHAVIOUR 8.2; Kafka's CommonClientConfigs.warnDisablingExponentialBackoff and
KafkaProducer.configureDeliveryTimeout.
"""

from collections.abc import Iterator

from chaos.experiment.problems import Problem
from chaos.experiment.rules.semantic_checks import problem
from chaos.experiment.structs import GroupDefinition, ProducerDefinition
from protocol.config import BrokerConfig, ConsumerConfig, ProducerConfig

_DEFAULT_DELIVERY_MS = ProducerConfig().delivery_timeout_ms


def producer_errors(producer: ProducerDefinition, path: str) -> Iterator[Problem]:
    """Yield the settings with which a producer does not start."""
    config = producer.config
    least_ms = config.linger_ms + config.request_timeout_ms
    if config.delivery_timeout_ms < least_ms:
        yield problem(
            f"{path}.config.delivery.timeout.ms",
            "Kafka's producer refuses to start"
            if config.delivery_timeout_ms != _DEFAULT_DELIVERY_MS
            else "the default is too short for it",
            expected=f"at least linger.ms + request.timeout.ms ({least_ms})",
            found=str(config.delivery_timeout_ms),
        )


def producer_warnings(producer: ProducerDefinition, path: str) -> Iterator[Problem]:
    """Yield what is unwise about a producer."""
    config = producer.config
    if config.acks != "all":
        yield problem(
            f"{path}.config.acks",
            "records are acknowledged before their followers have them: a failover loses some, "
            "and min.insync.replicas does not count",
            expected="`all`",
            found=f"`{config.acks}`",
        )
    yield from _backoff_warnings(config, f"{path}.config")


def consumer_warnings(
    config: ConsumerConfig, group: GroupDefinition, broker: BrokerConfig, path: str
) -> Iterator[Problem]:
    """Yield what is unwise about the settings of members; `path` is their section's."""
    session_ms, heartbeat_ms = config.session_timeout_ms, config.heartbeat_interval_ms
    if session_ms > heartbeat_ms > session_ms / 3:
        yield problem(
            f"{path}.heartbeat.interval.ms",
            "over a third of the session timeout: two lost heartbeats evict a member",
            expected=f"at most {session_ms // 3}",
            found=str(heartbeat_ms),
        )
    yield from _poll_warnings(config, group, path)
    commit_ms = broker.offsets_commit_timeout_ms
    if group.commits and config.request_timeout_ms <= commit_ms:
        yield problem(
            f"{path}.request.timeout.ms",
            "a commit that is not replicated is given up by the member before its coordinator "
            "answers REQUEST_TIMED_OUT",
            expected=f"more than offsets.commit.timeout.ms ({commit_ms})",
            found=str(config.request_timeout_ms),
        )
    if config.fetch_max_wait_ms >= config.request_timeout_ms:
        yield problem(
            f"{path}.fetch.max.wait.ms",
            "a fetch that waits for records times out, and its connection is closed",
            expected=f"less than request.timeout.ms ({config.request_timeout_ms})",
            found=str(config.fetch_max_wait_ms),
        )
    if config.default_api_timeout_ms < config.request_timeout_ms:
        yield problem(
            f"{path}.default.api.timeout.ms",
            "a call is given up before its first request is",
            expected=f"at least request.timeout.ms ({config.request_timeout_ms})",
            found=str(config.default_api_timeout_ms),
        )
    yield from _backoff_warnings(config, path)


def _poll_warnings(config: ConsumerConfig, group: GroupDefinition, path: str) -> Iterator[Problem]:
    """Yield what is unwise about max.poll.interval.ms, which is the rebalance timeout, too."""
    poll_ms = config.max_poll_interval_ms
    if poll_ms < config.session_timeout_ms:
        yield problem(
            f"{path}.max.poll.interval.ms",
            "it is the rebalance timeout as well: a rebalance drops members whose session still "
            "lives",
            expected=f"at least session.timeout.ms ({config.session_timeout_ms})",
            found=str(poll_ms),
        )
    if config.heartbeat_interval_ms >= poll_ms:
        yield problem(
            f"{path}.heartbeat.interval.ms",
            "a rebalance is over before members hear of it with their next heartbeat: they are out "
            "of the group, and its next rebalance drops others",
            expected=f"less than max.poll.interval.ms ({poll_ms}), the rebalance timeout",
            found=str(config.heartbeat_interval_ms),
        )
    longest_ms = group.poll_timeout_ms + config.max_poll_records * group.process_us // 1_000
    if longest_ms >= poll_ms:
        yield problem(
            f"{path}.max.poll.interval.ms",
            "members leave the group when a poll returns as many records as it may: "
            f"max.poll.records ({config.max_poll_records}) x process_us ({group.process_us})",
            expected=f"more than {longest_ms}",
            found=str(poll_ms),
        )


def _backoff_warnings(config: ConsumerConfig | ProducerConfig, path: str) -> Iterator[Problem]:
    """Yield delays that begin above their own bound: they never grow."""
    pairs = [
        ("retry.backoff", config.retry_backoff_ms, config.retry_backoff_max_ms),
        ("reconnect.backoff", config.reconnect_backoff_ms, config.reconnect_backoff_max_ms),
    ]
    if isinstance(config, ConsumerConfig):
        pairs.append(
            (
                "socket.connection.setup.timeout",
                config.socket_connection_setup_timeout_ms,
                config.socket_connection_setup_timeout_max_ms,
            )
        )
    for name, first_ms, longest_ms in pairs:
        if first_ms > longest_ms:
            yield problem(
                f"{path}.{name}.ms",
                "it never grows: Kafka takes the bound for every attempt",
                expected=f"at most {name}.max.ms ({longest_ms})",
                found=str(first_ms),
            )
