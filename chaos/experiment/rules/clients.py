"""Rules for the settings of one client, a consumer or a producer.

An error means that Kafka's client would not start. A warning means that a setting is probably a
mistake.

Source: docs/kafka/BEHAVIOUR.md, section 8.2; Kafka's KafkaProducer.configureDeliveryTimeout and
ProducerConfig.
"""

from collections.abc import Iterator

from chaos.experiment.problems import Problem
from chaos.experiment.rules.limits import WARNINGS, broken_limits
from chaos.experiment.rules.semantic_checks import problem
from chaos.experiment.structs import GroupDefinition, ProducerDefinition
from cluster.spec import longest_between_polls_us
from protocol.config import BrokerConfig, ConsumerConfig, ProducerConfig

# Kafka's default of `delivery.timeout.ms`.
_DEFAULT_DELIVERY_MS = ProducerConfig().delivery_timeout_ms


def producer_errors(producer: ProducerDefinition, path: str) -> Iterator[Problem]:
    """Yield the settings with which a producer does not start."""
    config = producer.config
    if config.enable_idempotence and config.acks != "all":
        yield problem(
            f"{path}.config.acks",
            "Kafka's producer refuses to start: enable.idempotence needs every in-sync replica",
            expected="all",
            found=config.acks,
        )
    least_ms = config.linger_ms + config.request_timeout_ms
    if config.delivery_timeout_ms < least_ms:
        # If the user has set a value below `least_ms`, Kafka refuses the value. If the value is the
        # default, Kafka silently uses a longer one. Here the user must set a longer value in both
        # cases.
        yield problem(
            f"{path}.config.delivery.timeout.ms",
            "Kafka's producer refuses to start"
            if config.delivery_timeout_ms != _DEFAULT_DELIVERY_MS
            else "the default is too short for it",
            expected=f"at least linger.ms + request.timeout.ms ({least_ms})",
            found=str(config.delivery_timeout_ms),
        )


def consumer_warnings(
    config: ConsumerConfig, group: GroupDefinition, broker: BrokerConfig, path: str
) -> Iterator[Problem]:
    """Yield warnings about a section with the settings of members. `path` is its place."""
    yield from broken_limits(WARNINGS, config, path)
    session_ms, heartbeat_ms = config.session_timeout_ms, config.heartbeat_interval_ms
    # The interval should be at most a third of the session timeout. An interval that is not even
    # below the session timeout is an error instead, which the table `limits.ERRORS` has.
    if session_ms > heartbeat_ms > session_ms / 3:
        yield problem(
            f"{path}.heartbeat.interval.ms",
            "over a third of the session timeout: two lost heartbeats evict a member",
            expected=f"at most {session_ms // 3}",
            found=str(heartbeat_ms),
        )
    poll_ms = config.max_poll_interval_ms
    _, record_us = group.process_bounds_us  # the longest time in which a record is processed
    longest_us = longest_between_polls_us(
        config, poll_timeout_ms=group.poll_timeout_ms, record_us=record_us
    )
    longest_ms = longest_us // 1_000
    if longest_ms >= poll_ms:
        yield problem(
            f"{path}.max.poll.interval.ms",
            "members leave the group when a poll returns as many records as it may: "
            f"max.poll.records ({config.max_poll_records}) x process_us ({record_us})",
            expected=f"more than {longest_ms}",
            found=str(poll_ms),
        )

    commit_ms = broker.offsets_commit_timeout_ms
    if group.commits and config.request_timeout_ms <= commit_ms:
        yield problem(
            f"{path}.request.timeout.ms",
            "a commit that is not replicated is given up by the member before its coordinator "
            "answers REQUEST_TIMED_OUT",
            expected=f"more than offsets.commit.timeout.ms ({commit_ms})",
            found=str(config.request_timeout_ms),
        )
