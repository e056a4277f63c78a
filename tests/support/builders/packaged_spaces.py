"""The packaged spaces of explorations, each read once in a process.

A space is a file from which an exploration draws schedules of faults. The check of a space, which
is a part of reading it, takes seconds.
"""

from functools import cache

from chaos.exploration.space import Space, load_space


@cache
def packaged_space(name: str) -> Space:
    """Return the space with this name. Callers share the object and must not change it."""
    return load_space(name)
