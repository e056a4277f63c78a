"""Tests that share a Ray, a Spark or a module's fixtures run in one process of `pytest -n`.

Such tests are a group of xdist, the plugin that runs tests in several processes. A group stays in
one of these processes.
"""

import pytest


def test_groups_reach_xdist(
    request: pytest.FixtureRequest,
) -> None:
    """With incompatible versions of pytest and xdist the groups are lost without a message."""
    if not hasattr(request.config, "workerinput"):
        pytest.skip("not one of several processes: pytest -n 2 --dist loadgroup")
    # xdist appends the name of a test's group to its id.
    assert request.node.nodeid.endswith("@test_test_groups.py")
