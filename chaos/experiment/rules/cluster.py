"""Rules for the settings of brokers and topics.

Some of these rules also depend on the plan's faults. For example, `min.insync.replicas: 3` with
three replicas is allowed. But if the plan kills a broker, all commits fail while this broker is
away. So there is a warning.

Source: docs/kafka/BEHAVIOUR.md, section 8.1; Kafka's KafkaConfig.validateValues for settings that a
broker refuses.
"""

from collections.abc import Iterator

from chaos.experiment.problems import Problem, near_miss, one_of
from chaos.experiment.rules.limits import ERRORS, WARNINGS, broken_limits
from chaos.experiment.rules.semantic_checks import problem
from chaos.experiment.structs import (
    Experiment,
    FaultDefinition,
    TopicDefinition,
    microseconds,
    placing_order,
)
from chaos.faults.base import BROKER_TARGETS, CONTROLLER_TARGETS
from chaos.faults.registry import FAULT_KINDS
from chaos.run.plan import ends_of
from chaos.targets.registry import split_target
from cluster.storage.compression import is_supported, supported_codecs
from protocol.config import BrokerConfig

_CONFIG = "cluster.config"  # path of the brokers' settings in the file
_ACKS_ALL = "all"


def broker_errors(config: BrokerConfig) -> Iterator[Problem]:
    """Yield the settings with which a broker does not start."""
    codec = config.offsets_topic_compression_codec
    if not is_supported(codec):
        supported = ", ".join(
            f"{known.value} ({known.name.lower()})" for known in supported_codecs()
        )
        yield problem(
            f"{_CONFIG}.offsets.topic.compression.codec",
            "there is no library for this codec here",
            expected=f"one of {supported}",
            found=str(codec),
        )
    yield from broken_limits(ERRORS, config, _CONFIG)


def machine_errors(experiment: Experiment) -> Iterator[Problem]:
    """Yield the errors of the names in `cluster.machines`.

    Each name must be the name of a node, and must not occur twice.
    """
    machines = experiment.cluster.machines
    if isinstance(machines, int):
        return  # only a number of machines is given, and no names
    nodes = placing_order(experiment)
    known: dict[str, str] = {}  # node -> path of its first occurrence
    for index, names in enumerate(machines):
        for place, name in enumerate(names):
            path = f"cluster.machines[{index}][{place}]"
            if name not in nodes:
                yield problem(
                    path,
                    f"there is no node `{name}`",
                    expected=one_of(nodes, name),
                    near_miss=near_miss(name, nodes),
                )
            elif name in known:
                yield problem(
                    path, f"`{name}` has a machine already: {known[name]}", expected="no such name"
                )
            known.setdefault(name, path)


def cluster_warnings(experiment: Experiment) -> Iterator[Problem]:
    """Yield warnings about brokers, `__consumer_offsets` and the stages of the run."""
    config = experiment.cluster.config
    # With a single replica, min.insync.replicas can only be 1. So only the replication factor gets
    # a warning then.
    if config.offsets_topic_replication_factor == 1:
        yield problem(
            f"{_CONFIG}.offsets.topic.replication.factor",
            "with one replica the groups of a lost broker are lost with it",
            expected="3",
            found="1",
        )
    else:
        yield from _min_insync_warnings(experiment)
    yield from broken_limits(WARNINGS, config, _CONFIG)
    if config.broker_heartbeat_interval_ms * 2 > config.broker_session_timeout_ms:
        yield problem(
            f"{_CONFIG}.broker.heartbeat.interval.ms",
            "one lost heartbeat is enough to fence a broker",
            expected="at most half of broker.session.timeout.ms",
            found=str(config.broker_heartbeat_interval_ms),
        )
    yield from _stage_warnings(experiment)


def topic_warnings(
    experiment: Experiment, name: str, topic: TopicDefinition, path: str
) -> Iterator[Problem]:
    """Yield warnings about one topic."""
    own_min_insync = topic.config.min_insync_replicas  # None: the brokers' value counts
    min_insync = (
        experiment.cluster.config.min_insync_replicas if own_min_insync is None else own_min_insync
    )
    # min.insync.replicas counts only for writes with acks=all.
    written = any(
        producer.topic == name and producer.config.acks == _ACKS_ALL
        for producer in experiment.producers
    )
    # About the brokers' value `cluster_warnings` warns. So here only a topic with its own value is
    # checked.
    if (
        own_min_insync is not None
        and written
        and _needs_every_replica(topic.replication_factor, min_insync)
    ):
        fault = _first_broker_fault(experiment)
        if fault is not None:
            yield problem(
                f"{path}.config.min.insync.replicas",
                f"every replica is required: while `{fault}` keeps one broker away, every write "
                "fails with NOT_ENOUGH_REPLICAS",
                expected=f"at most {topic.replication_factor - 1}",
                found=str(min_insync),
            )
    if topic.config.cleanup_policy == "compact":
        yield problem(
            f"{path}.config.cleanup.policy",
            "the lab counts on every record of a topic and compacts none of them",
            expected="delete",
            found="compact",
        )
    if topic.config.unclean_leader_election_enable:
        yield problem(
            f"{path}.config.unclean.leader.election.enable",
            "a replica that is not in sync may be elected: acknowledged records are lost with it",
            expected="false",
            found="true",
        )


def _min_insync_warnings(experiment: Experiment) -> Iterator[Problem]:
    """Yield a warning if a fault makes min.insync.replicas of `__consumer_offsets` unwise.

    The value is too high if all writes fail while one broker is away. It is too low if an
    acknowledged commit may be on only one replica, because the commit is lost with this replica.
    """
    config = experiment.cluster.config
    factor, min_insync = config.offsets_topic_replication_factor, config.min_insync_replicas
    fault = _first_broker_fault(experiment)
    if fault is None:
        return  # no broker is ever absent
    if _needs_every_replica(factor, min_insync):
        yield problem(
            f"{_CONFIG}.min.insync.replicas",
            f"every replica is required: while `{fault}` keeps one broker away, commits and "
            "rebalances fail with COORDINATOR_NOT_AVAILABLE",
            expected=f"at most {factor - 1}, one less than offsets.topic.replication.factor",
            found=str(min_insync),
        )
    elif min_insync == 1:
        yield problem(
            f"{_CONFIG}.min.insync.replicas",
            f"an acknowledged commit may stand on one broker alone, and be lost with it in "
            f"`{fault}`",
            expected="2",
            found="1",
        )


def _needs_every_replica(factor: int, min_insync: int) -> bool:
    return factor > 1 and min_insync == factor


def _stage_warnings(experiment: Experiment) -> Iterator[Problem]:
    """Yield warnings about stages of the run that are too short for what should happen in them."""
    config, run = experiment.cluster.config, experiment.run
    delay_ms = config.group_initial_rebalance_delay_ms
    has_members = any(group.members for group in experiment.groups.values())
    if has_members and microseconds(run.steady_state_timeout) <= delay_ms * 1_000:
        yield problem(
            "run.steady_state_timeout",
            "no group can be stable so soon: its first rebalance waits for members",
            expected=f"more than group.initial.rebalance.delay.ms ({delay_ms} ms)",
            found=f"`{run.steady_state_timeout}`",
        )
    session_ms = config.broker_session_timeout_ms
    fault = _fault_until_the_end(experiment)
    if fault is not None and microseconds(run.after_faults) < session_ms * 1_000:
        yield problem(
            "run.after_faults",
            f"`{fault}` lasts until everything is healed, which is before the controller can have "
            "noticed it",
            expected=f"more than broker.session.timeout.ms ({session_ms} ms)",
            found=f"`{run.after_faults}`",
        )


def _fault_until_the_end(experiment: Experiment) -> str | None:
    """Return the name of the plan's latest fault, if it silences a broker until the healing.

    A fault without a duration lasts until all faults are healed. This is done when the time
    `after_faults` has passed after the latest fault. So of all such faults the latest is the
    shortest. If the controller notices the latest fault, it notices all others, too.
    """
    latest = max(experiment.faults, key=lambda fault: microseconds(fault.at), default=None)
    if latest is None or latest.duration is not None or latest.fault not in _SILENCING_FAULTS:
        return None
    return latest.fault if _is_aimed_at_a_broker(latest) else None


_SILENCING_FAULTS = frozenset({"crash", "power_loss", "pause"})
"""Faults in which a broker falls silent. The controller notices this by its session timeout."""


def _first_broker_fault(experiment: Experiment) -> str | None:
    """Return the first fault of the plan that keeps a broker from replicating for a while."""
    for fault in experiment.faults:
        kind = FAULT_KINDS.get(fault.fault)
        lasts = kind is not None and not kind.momentary
        if lasts and fault.fault not in _REPLICATING_FAULTS and _is_aimed_at_a_broker(fault):
            return fault.fault
    return None


_REPLICATING_FAULTS = frozenset({"slow"})
"""Faults of links during which followers still copy records, but more slowly."""


def _is_aimed_at_a_broker(fault: FaultDefinition) -> bool:
    """Return True if a fault hits a broker, or links between a broker and other servers.

    Links to clients do not count. So a fault of links counts only if there are servers at both
    ends, and a broker at one of them.
    """
    if fault.target is not None:
        return any(role in _BROKERS for role in _roles((fault.target,)))
    roles_of_ends = [_roles(ends_of(end)) for end in (fault.from_, fault.to)]
    # There must be a broker at one of the ends, and a server at each end.
    return any(role in _BROKERS for roles in roles_of_ends for role in roles) and all(
        any(role in _SERVERS for role in roles) for roles in roles_of_ends
    )


_BROKERS = frozenset({*BROKER_TARGETS, "brokers"})
_SERVERS = frozenset({*_BROKERS, *CONTROLLER_TARGETS})
"""Roles of targets that are servers. The role `brokers` stands for all brokers."""


def _roles(targets: tuple[str, ...]) -> list[str]:
    """Return the role of each target. A malformed target is left out."""
    return [parts[0] for target in targets if (parts := split_target(target)) is not None]
