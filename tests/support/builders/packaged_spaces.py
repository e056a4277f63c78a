"""The packaged spaces of explorations, each read once a process: its check takes seconds."""

from functools import cache

from chaos.exploration.space import Space, load_space


@cache
def packaged_space(name: str) -> Space:
    """Return the space with this name; it is shared, and nothing of it may be changed."""
    return load_space(name)
