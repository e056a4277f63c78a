"""What every test may ask for: one local Ray a session, stopped at the end whatever happened."""

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session")
def local_ray() -> Iterator[None]:
    """A Ray of the session's own; a RayRuntime made in this process goes on with it."""
    from cluster.ray_nodes import LOCAL, connect_ray, disconnect_ray

    connect_ray(LOCAL)
    try:
        yield
    finally:
        disconnect_ray()
