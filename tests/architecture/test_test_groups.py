"""Tests that share a Ray, a Spark or a module's fixtures run in one process of `pytest -n`."""

import pytest


def test_group_is_known_to_xdist_where_tests_run_side_by_side(
    request: pytest.FixtureRequest,
) -> None:
    """Versions of pytest and xdist that do not fit lose the groups without a word."""
    if not hasattr(request.config, "workerinput"):
        pytest.skip("not one of several processes: pytest -n 2 --dist loadgroup")
    assert request.node.nodeid.endswith("@test_test_groups.py")
