"""Tests that share a Ray, a Spark or a module's fixtures run in one process of `pytest -n`.

With `pytest -n` the plugin xdist runs the tests in several processes. Tests can be put into a
group, and all tests of a group run in the same process.
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
