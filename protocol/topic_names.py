"""Rules for names of topics. Source: Kafka `org.apache.kafka.common.internals.Topic`."""

import re

MAX_NAME_LENGTH = 249
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def topic_name_problem(name: str) -> str | None:
    """Return Kafka's error message for an illegal topic name, None for a legal name."""
    if not name:
        return "Topic name is invalid: the empty string is not allowed"
    if name in (".", ".."):
        return f"Topic name is invalid: '{name}' is not allowed"
    if len(name) > MAX_NAME_LENGTH:
        return (
            "Topic name is invalid: the length of "
            f"'{name}' is longer than the max allowed length {MAX_NAME_LENGTH}"
        )
    if _LEGAL.fullmatch(name) is None:
        return (
            f"Topic name is invalid: '{name}' contains one or more characters other than "
            "ASCII alphanumerics, '.', '_' and '-'"
        )
    return None


def collides(name: str, other: str) -> bool:
    """Return True if two names differ at most in '.' and '_'.

    In the names of metrics, Kafka writes '_' in place of '.', so the metrics of such topics would
    collide.
    """
    return name.replace(".", "_") == other.replace(".", "_")
