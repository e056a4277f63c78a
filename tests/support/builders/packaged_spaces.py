"""The packaged spaces of explorations, each read once in a process: to check one takes seconds."""

from functools import cache

from chaos.exploration.space import Space, load_space


@cache
def packaged_space(name: str) -> Space:
    """Return the space with this name. Callers share the object and must not change it."""
    return load_space(name)
