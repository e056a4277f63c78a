"""What the names of members and rows have in common, which a lane need not say in every row."""

from collections.abc import Iterable

ROLE = "consumer-"
"""What the name of every member begins with in the trace."""


def common_prefix(members: Iterable[str]) -> str:
    """Return what the labels of members leave out: `consumer-orders-` of `…readers-0`, `…-1`.

    The role goes, and of the words that all names share, all but the last one. Empty if some name
    is no member's, or has nothing but the role and a number.
    """
    names = sorted(set(members))
    if not names or not all(name.startswith(ROLE) for name in names):
        return ""
    words = [name.removeprefix(ROLE).split("-")[:-1] for name in names]
    if not all(words):
        return ""
    shared = 0
    for place in zip(*words, strict=False):
        if len(set(place)) > 1:
            break
        shared += 1
    return ROLE + "".join(f"{word}-" for word in words[0][: max(0, shared - 1)])


def group_prefix(groups: Iterable[str]) -> str:
    """Return what labels `group · broker` leave out: the group, if there is only one."""
    found = set(groups)
    return f"{found.pop()} \u00b7 " if len(found) == 1 else ""


def said_of(prefix: str) -> str:
    """Return how a reader is told that members' names stand without `prefix`."""
    return f" Members are named without {prefix} in front." if prefix else ""
