"""Limits of settings, as tables of rules such as `heartbeat.interval.ms` < `session.timeout.ms`.

Most rules have this simple form. They compare a setting with a value, or with another setting of
the same section, for example of the section with the settings of a consumer. These rules are in the
tables ERRORS and WARNINGS, and `broken_limits` checks them. All other rules are code in the other
modules of this folder.
"""

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Any

import msgspec

from chaos.experiment.problems import Problem
from chaos.experiment.rules.semantic_checks import problem
from chaos.experiment.schema_errors import show
from chaos.experiment.struct_walk import fields_of
from chaos.experiment.structs import MAX_PARTITIONS
from protocol.config import BrokerConfig, ConsumerConfig, ProducerConfig


class Relation(Enum):
    """The relation that a setting must have to its limit.

    The texts are words for messages, as in "expected at most 3".
    """

    AT_MOST = "at most"
    LESS_THAN = "less than"
    AT_LEAST = "at least"
    MORE_THAN = "more than"
    IS = "is"

    def holds(self, value: object, limit: object) -> bool:
        """Return True if `value` has this relation to `limit`."""
        return bool(_COMPARISONS[self](value, limit))


# The comparison of a value with its limit, for each relation.
_COMPARISONS: Mapping[Relation, Callable[[Any, Any], object]] = {
    Relation.AT_MOST: operator.le,
    Relation.LESS_THAN: operator.lt,
    Relation.AT_LEAST: operator.ge,
    Relation.MORE_THAN: operator.gt,
    Relation.IS: operator.eq,
}


@dataclass(frozen=True, slots=True)
class Limit:
    """One rule: `setting` must have `relation` to `limit`.

    - `limit`: the name of another setting, or a value.
    - `because`: the consequence if the rule is broken. It becomes the message of the problem.
    - `note`: a remark on the limit, which is added to `expected` in the problem.
    """

    setting: str
    relation: Relation
    limit: str | int
    because: str
    note: str = ""


Limits = Mapping[type[msgspec.Struct], tuple[Limit, ...]]
"""The limits of each section of settings, by the section's struct in `protocol.config`."""


@cache
def _names_by_key(section: type[msgspec.Struct]) -> dict[str, str]:
    """Return the names in Python of a section's fields, by their names in the file.

    For example, the entry for `session.timeout.ms` is `session_timeout_ms`.
    """
    return {field.key: field.name for field in fields_of(section)}


def broken_limits(limits: Limits, section: msgspec.Struct, path: str) -> Iterator[Problem]:
    """Yield a problem for each limit that a section of settings breaks.

    `path` is the place of the section in the file.
    """
    names = _names_by_key(type(section))
    for rule in limits[type(section)]:
        value = getattr(section, names[rule.setting])
        # If a limit is a text, it usually is the name of another setting. A text that is no such
        # name is a value, such as `all` for `acks`.
        limiting_setting = names.get(rule.limit) if isinstance(rule.limit, str) else None
        limit: Any = rule.limit if limiting_setting is None else getattr(section, limiting_setting)
        if rule.relation.holds(value, limit):
            continue
        # IS compares values of any type, such as true. The other relations compare numbers.
        if rule.relation is Relation.IS:
            expected, found = show(limit), show(value)
        else:
            # For example: "less than session.timeout.ms (45000)"
            bound = str(limit) if limiting_setting is None else f"{rule.limit} ({limit})"
            expected, found = f"{rule.relation.value} {bound}{rule.note}", str(value)
        yield problem(f"{path}.{rule.setting}", rule.because, expected=expected, found=found)


_NEVER_GROWS = "it never grows: Kafka takes the bound for every attempt"
"""Consequence if the first backoff is longer than the longest backoff.

A backoff is the wait before an attempt is repeated. Normally it grows from attempt to attempt.

Source: CommonClientConfigs.warnDisablingExponentialBackoff.
"""
_BACKOFFS = (
    Limit("retry.backoff.ms", Relation.AT_MOST, "retry.backoff.max.ms", _NEVER_GROWS),
    Limit("reconnect.backoff.ms", Relation.AT_MOST, "reconnect.backoff.max.ms", _NEVER_GROWS),
)
_BROKER_REFUSES = "Kafka's broker refuses to start"
"""Source: KafkaConfig.validateValues."""

ERRORS: Limits = {
    BrokerConfig: (
        Limit("offsets.topic.num.partitions", Relation.AT_MOST, MAX_PARTITIONS, "is not allowed"),
        Limit(
            "replica.fetch.wait.max.ms",
            Relation.AT_MOST,
            "replica.lag.time.max.ms",
            _BROKER_REFUSES,
        ),
        Limit(
            "replica.fetch.wait.max.ms",
            Relation.AT_MOST,
            "replica.socket.timeout.ms",
            _BROKER_REFUSES,
        ),
    ),
    ConsumerConfig: (
        Limit(
            "heartbeat.interval.ms",
            Relation.LESS_THAN,
            "session.timeout.ms",
            "Kafka's consumer refuses to start",
        ),
    ),
}
"""Limits that Kafka enforces. If such a limit is broken, the broker or client does not start."""
WARNINGS: Limits = {
    BrokerConfig: (
        Limit(
            "unclean.leader.election.enable",
            Relation.IS,
            False,
            "a replica that is not in sync may be elected: acknowledged commits and records are "
            "lost with it",
        ),
    ),
    ConsumerConfig: (
        Limit(
            "max.poll.interval.ms",
            Relation.AT_LEAST,
            "session.timeout.ms",
            "it is the rebalance timeout as well: a rebalance drops members whose session "
            "still lives",
        ),
        Limit(
            "heartbeat.interval.ms",
            Relation.LESS_THAN,
            "max.poll.interval.ms",
            "a rebalance is over before members hear of it with their next heartbeat: they are out "
            "of the group, and its next rebalance drops others",
            note=", the rebalance timeout",
        ),
        Limit(
            "fetch.max.wait.ms",
            Relation.LESS_THAN,
            "request.timeout.ms",
            "a fetch that waits for records times out, and its connection is closed",
        ),
        Limit(
            "default.api.timeout.ms",
            Relation.AT_LEAST,
            "request.timeout.ms",
            "a call is given up before its first request is",
        ),
        *_BACKOFFS,
        Limit(
            "socket.connection.setup.timeout.ms",
            Relation.AT_MOST,
            "socket.connection.setup.timeout.max.ms",
            _NEVER_GROWS,
        ),
    ),
    ProducerConfig: (
        Limit(
            "acks",
            Relation.IS,
            "all",
            "records are acknowledged before their followers have them: a failover loses some, and "
            "min.insync.replicas does not count",
        ),
        *_BACKOFFS,
    ),
}
"""Limits that Kafka does not enforce. It is unwise to break them."""
