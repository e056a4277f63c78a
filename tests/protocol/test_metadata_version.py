"""Versions of Kafka: their order, and the versions of the records that they write.

A version is a release, such as 2.1, perhaps with an internal version: 2.1-IV0, 2.1-IV1, 2.1-IV2.
"""

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
    """Operators write only the release, which stands for the release's last internal version.

    The last internal version of 2.1 is 2.1-IV2. The last internal version of 3.9 is
    LATEST_METADATA_VERSION.
    """
    assert metadata_version("2.1") == metadata_version("2.1-IV2")
    assert metadata_version("3.9") == metadata_version(LATEST_METADATA_VERSION)


@pytest.mark.parametrize("name", ["", "2", "2.1-IV3", "2.1-IV", "2.1-IVx", "0.9.0-IV0", "4.0"])
def test_version_that_kafka_does_not_have_is_refused(name: str) -> None:
    """The setting has a pattern, which refuses each of these names.

    The parser `metadata_version` refuses these names, too, except `2.1-IV`, which it reads as
    `2.1`. This does no harm, because the pattern is applied first.
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
    ("name", "version_of_groups", "version_of_offsets"),
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
def test_each_version_of_kafka_writes_groups_and_offsets_in_its_own_version(
    name: str, version_of_groups: int, version_of_offsets: int
) -> None:
    """A group and a committed offset are stored as records, whose values have versions."""
    assert value_versions(metadata_version(name)) == ValueVersions(
        group=version_of_groups, offset=version_of_offsets
    )


def test_static_members_are_supported_from_2_3_on() -> None:
    """Kafka has had static members, with a group.instance.id, since 2.3 (KIP-345)."""
    assert not has_static_members(metadata_version("2.2"))
    assert has_static_members(metadata_version("2.3-IV0"))
