"""The spaces that are part of the package, for tests.

A space is a file that says which faults and settings a search may choose from. To read a space
takes seconds, so each space is read only once in a process.
"""

from functools import cache

from chaos.exploration.space import Space, load_space


@cache
def packaged_space(name: str) -> Space:
    """Return the space with this name. Callers share the object and must not change it."""
    return load_space(name)
