"""Common parts of semantic checks: functions that make problems.

A semantic check compares several places of an experiment file. It knows only the path of a wrong
setting, such as `faults[0].target`. So its problems have no file and no line. The loader adds both
(`loader.placed`).
"""

from collections.abc import Iterable, Iterator, Sequence

from chaos.experiment.problems import Problem, near_miss, one_of
from chaos.experiment.structs import microseconds

FILE = ""
"""Placeholder of the file's name, which the loader replaces (`loader.placed`)."""
LONGEST_US = 24 * 3_600 * 1_000_000
"""Longest time in a file: one day. A longer time is probably a mistake in the unit."""


def problem(
    path: str,
    message: str,
    *,
    expected: str | None = None,
    found: str | None = None,
    near_miss: str | None = None,
) -> Problem:
    """Return the problem of the setting at `path`."""
    return Problem(
        file=FILE,
        line=None,
        path=path,
        message=message,
        expected=expected,
        found=found,
        near_miss=near_miss,
    )


def check_known(what: str, name: str, known: Iterable[str], path: str) -> Iterator[Problem]:
    """Yield a problem if `name` is not in `known`."""
    names = list(known)
    if name not in names:
        yield problem(
            path,
            f"unknown {what} `{name}`",
            expected=one_of(names) if names else f"a {what}, but the file defines none",
            near_miss=near_miss(name, names),
        )


def check_once(
    what: str, names: Sequence[str], known: Iterable[str], path: str
) -> Iterator[Problem]:
    """Yield a problem for each name that is not in `known`, and for each repeated name."""
    known = tuple(known)
    for index, name in enumerate(names):
        yield from check_known(what, name, known, f"{path}[{index}]")
        if name in names[:index]:
            yield problem(f"{path}[{index}]", f"names the {what} `{name}` a second time")


def too_long(duration: str, path: str) -> Iterator[Problem]:
    """Yield a problem if `duration` is longer than LONGEST_US."""
    if microseconds(duration) > LONGEST_US:
        yield problem(path, "is not allowed", expected="at most `24h`", found=f"`{duration}`")
