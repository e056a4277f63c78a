"""Versions of Kafka: their order, and the version of the records that each one writes."""

import re

import pytest

from protocol.errors import SimulationError
from protocol.metadata_version import (
    LATEST_METADATA_VERSION,
    VERSION_PATTERN,
    ValueVersions,
    has_static_members,
    metadata_version,
    value_versions,
)

# Versions from the oldest to the newest.
NAMES = ("0.8.2", "0.9.0", "0.10.0", "0.10.1-IV0", "1.1", "2.1-IV0", "2.1-IV1", "2.3", "3.9")


def test_versions_are_ordered_by_release_and_then_by_internal_version() -> None:
    """`0.10.1` is newer than `0.9.0`, although it is smaller as a text."""
    versions = [metadata_version(name) for name in NAMES]
    assert versions == sorted(versions)
    assert len(set(versions)) == len(NAMES)


def test_release_without_internal_version_is_its_last() -> None:
    """Operators write a release without an internal version, which is a suffix such as -IV2.

    The last internal version of 2.1 is 2.1-IV2. The last one of 3.9 is LATEST_METADATA_VERSION.
    """
    assert metadata_version("2.1") == metadata_version("2.1-IV2")
    assert metadata_version("3.9") == metadata_version(LATEST_METADATA_VERSION)


@pytest.mark.parametrize("name", ["", "2", "2.1-IV3", "2.1-IV", "2.1-IVx", "0.9.0-IV0", "4.0"])
def test_version_that_kafka_does_not_have_is_refused(name: str) -> None:
    """The pattern of the setting refuses each of these names.

    The parser, `metadata_version`, refuses each name except `2.1-IV`, which it would read as `2.1`.
    This does no harm, since the pattern is applied first.
    """
    assert re.search(VERSION_PATTERN, name) is None
    if name != "2.1-IV":
        with pytest.raises(SimulationError, match="no version"):
            metadata_version(name)


@pytest.mark.parametrize("name", [*NAMES, LATEST_METADATA_VERSION, "3.7-IV4"])
def test_version_that_kafka_has_is_matched_by_the_pattern(name: str) -> None:
    """The setting accepts each of these versions."""
    assert re.search(VERSION_PATTERN, name) is not None


@pytest.mark.parametrize(
    ("name", "group", "offset"),
    [
        ("0.9.0", 0, 1),
        ("0.10.0", 0, 1),
        ("0.10.1-IV0", 1, 1),
        ("2.0", 1, 1),
        ("2.1-IV0", 2, 2),
        ("2.1-IV1", 2, 3),
        ("2.2", 2, 3),
        ("2.3-IV0", 3, 3),
        ("3.9", 3, 3),
    ],
)
def test_values_are_written_in_the_version_that_the_broker_version_selects(
    name: str, group: int, offset: int
) -> None:
    """`group` is the version of a group's record, and `offset` is that of a commit's record."""
    assert value_versions(metadata_version(name)) == ValueVersions(group=group, offset=offset)


def test_static_members_are_supported_from_2_3_on() -> None:
    """Kafka has static members, which keep their identity over a restart, since 2.3 (KIP-345)."""
    assert not has_static_members(metadata_version("2.2"))
    assert has_static_members(metadata_version("2.3-IV0"))
