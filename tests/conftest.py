"""What every test may ask for: one local Ray a session, stopped at the end whatever happened."""

import signal
from collections.abc import Iterator

import pytest

if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
    # A shell starts what it puts in the background with SIGINT ignored, and children inherit that:
    # Ctrl-C would then reach none of the runs that the tests interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep in one process of `-n` what shares a Ray, a Spark or the fixtures of a module."""
    for item in items:
        shared = next((name for name in ("ray", "spark") if item.get_closest_marker(name)), None)
        item.add_marker(pytest.mark.xdist_group(shared or item.path.name))


@pytest.fixture(scope="session")
def local_ray() -> Iterator[None]:
    """A Ray of the session's own; a RayRuntime made in this process goes on with it."""
    from cluster.ray_nodes import LOCAL, connect_ray, disconnect_ray

    connect_ray(LOCAL)
    try:
        yield
    finally:
        disconnect_ray()
