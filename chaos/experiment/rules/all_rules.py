"""Semantic checks of an experiment: rules that compare several places of the file.

For example, a group must not read a topic that the file does not define. The list of the group's
topics is right, and so are the definitions of the topics, but the two do not fit together.

An error means that the experiment can never run, or that it has no meaning. A warning means that
Kafka accepts a setting which is probably a mistake. Section 8 of docs/kafka/BEHAVIOUR.md lists the
rules of Kafka's settings.
"""

from collections.abc import Iterator

from chaos.checkers.registry import CHECKERS
from chaos.experiment.problems import Problem
from chaos.experiment.rules.clients import producer_errors
from chaos.experiment.rules.cluster import (
    broker_errors,
    cluster_warnings,
    machine_errors,
    topic_warnings,
)
from chaos.experiment.rules.faults import fault_errors, fault_warnings
from chaos.experiment.rules.groups import group_errors, group_warnings
from chaos.experiment.rules.limits import WARNINGS, broken_limits
from chaos.experiment.rules.semantic_checks import (
    check_known,
    check_once,
    problem,
    too_long,
)
from chaos.experiment.structs import (
    KAFKAS_TOPICS,
    Experiment,
    RunDefinition,
    internal_topics,
    microseconds,
)
from protocol.ids import TRANSACTION_STATE

MIN_SILENCE_US = 2_000_000
"""Minimum of the setting `machine_silent_after`.

During a run each machine is asked for a sign of life once a second. So even a healthy machine is
silent for nearly a second between two answers. The minimum is twice this time.
"""


def errors(experiment: Experiment) -> Iterator[Problem]:
    """Yield all reasons for which the experiment cannot be run."""
    yield from _topic_errors(experiment)
    yield from broker_errors(experiment.cluster.config)
    yield from machine_errors(experiment)
    for group_id, group in experiment.groups.items():
        yield from group_errors(experiment, group, f"groups.{group_id}")
    for index, producer in enumerate(experiment.producers):
        yield from check_known(
            "topic", producer.topic, experiment.topics, f"producers[{index}].topic"
        )
        yield from producer_errors(producer, f"producers[{index}]")
    # Each entry of `offsets_log` writes commit records of a group before the run (a preload).
    for index, preload in enumerate(experiment.offsets_log):
        yield from check_known(
            "group", preload.group, experiment.groups, f"offsets_log[{index}].group"
        )
    for index, fault in enumerate(experiment.faults):
        yield from fault_errors(experiment, fault, f"faults[{index}]")
    yield from check_once("check", experiment.checks, CHECKERS, "checks")
    for field in ("steady_state_timeout", "after_faults", "liveness_timeout"):
        yield from too_long(getattr(experiment.run, field), f"run.{field}")
    yield from _silence_errors(experiment.run)


def warnings(experiment: Experiment) -> Iterator[Problem]:
    """Yield warnings about settings that are allowed but unwise."""
    yield from cluster_warnings(experiment)
    for name, topic in experiment.topics.items():
        yield from topic_warnings(experiment, name, topic, f"topics.{name}")
    for group_id, group in experiment.groups.items():
        yield from group_warnings(experiment, group, f"groups.{group_id}")
    for index, producer in enumerate(experiment.producers):
        yield from broken_limits(WARNINGS, producer.config, f"producers[{index}].config")
    for index, fault in enumerate(experiment.faults):
        yield from fault_warnings(experiment, fault, f"faults[{index}]")
    if not experiment.faults:
        yield problem("faults", "the plan is empty: a run in which nothing breaks")


def _silence_errors(run: RunDefinition) -> Iterator[Problem]:
    """Yield errors of the times after which a machine on Ray counts as silent or as lost."""
    silent_us, lost_us = map(microseconds, (run.machine_silent_after, run.machine_lost_after))
    if silent_us < MIN_SILENCE_US:
        yield problem(
            "run.machine_silent_after",
            "each machine is asked once in a second: one that answers would be taken for silent",
            expected=f"at least {MIN_SILENCE_US // 1_000_000}s",
            found=f"`{run.machine_silent_after}`",
        )
    if lost_us <= silent_us:
        yield problem(
            "run.machine_lost_after",
            "a machine is silent before it is lost",
            expected=f"more than machine_silent_after (`{run.machine_silent_after}`)",
            found=f"`{run.machine_lost_after}`",
        )


def _topic_errors(experiment: Experiment) -> Iterator[Problem]:
    """Yield errors of the replication of Kafka's own topics and of the file's topics."""
    brokers = experiment.cluster.brokers
    config = experiment.cluster.config
    offsets_factor_key = "offsets.topic.replication.factor"
    yield from _replication_errors(
        config.offsets_topic_replication_factor,
        config.min_insync_replicas,
        brokers,
        f"cluster.config.{offsets_factor_key}",
        "cluster.config.min.insync.replicas",
    )
    if TRANSACTION_STATE in internal_topics(experiment):
        prefix = "cluster.config.transaction.state.log"
        yield from _replication_errors(
            config.transaction_state_log_replication_factor,
            config.transaction_state_log_min_isr,
            brokers,
            f"{prefix}.replication.factor",
            f"{prefix}.min.isr",
        )
    for name, topic in experiment.topics.items():
        # After this error the next check of the topic is made, too, so that a user sees all errors
        # of the topic together.
        if name in KAFKAS_TOPICS:
            yield problem(
                f"topics.{name}",
                "is Kafka's own topic",
                expected=f"`offsets.topic.num.partitions` and `{offsets_factor_key}` in "
                "cluster.config",
            )
        own_min_insync = topic.config.min_insync_replicas  # None: the brokers' value counts
        yield from _replication_errors(
            topic.replication_factor,
            config.min_insync_replicas if own_min_insync is None else own_min_insync,
            brokers,
            f"topics.{name}.replication.factor",
            f"topics.{name}.config.min.insync.replicas",
        )


def _replication_errors(
    factor: int, min_insync: int, brokers: int, factor_path: str, min_path: str
) -> Iterator[Problem]:
    """Check the number of a topic's replicas, and the number that a write needs.

    Yield an error if the topic has more replicas than there are brokers, or if a write needs more
    in-sync replicas than the topic has.

    - `factor`: the number of replicas.
    - `min_insync`: the number of in-sync replicas that a write with acks=all needs.
    - `factor_path`, `min_path`: the places of these two settings in the file.
    """
    if factor > brokers:
        yield problem(
            factor_path,
            "more replicas than brokers",
            expected=f"at most {brokers} (cluster.brokers)",
            found=str(factor),
        )
    elif min_insync > factor:
        yield problem(
            min_path,
            "no write with acks=all could ever succeed",
            expected=f"at most {factor}, the replication factor",
            found=str(min_insync),
        )
