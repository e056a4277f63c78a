"""Values of `inter.broker.protocol.version`, and the record versions that brokers write for each.

The setting is the name of a Kafka version. A release may have several internal versions: 2.1 has
`2.1-IV0`, `2.1-IV1` and `2.1-IV2`. The name of the release alone stands for the release's last
internal version. Brokers write the records of groups and offsets in a format that all brokers of
the version in the setting can read.

Source: Kafka 3.9 `MetadataVersion`.
"""

from typing import NamedTuple

from protocol.errors import SimulationError

_INTERNAL_VERSIONS: dict[str, int] = {
    "0.8.0": 0,
    "0.8.1": 0,
    "0.8.2": 0,
    "0.9.0": 0,
    "0.10.0": 2,
    "0.10.1": 3,
    "0.10.2": 1,
    "0.11.0": 3,
    "1.0": 1,
    "1.1": 1,
    "2.0": 2,
    "2.1": 3,
    "2.2": 2,
    "2.3": 2,
    "2.4": 2,
    "2.5": 1,
    "2.6": 1,
    "2.7": 3,
    "2.8": 2,
    "3.0": 2,
    "3.1": 1,
    "3.2": 1,
    "3.3": 4,
    "3.4": 1,
    "3.5": 3,
    "3.6": 3,
    "3.7": 5,
    "3.8": 1,
    "3.9": 1,
}
"""Number of internal versions of each release, with the oldest release first. The releases up to
0.9 have no internal versions."""
LATEST_METADATA_VERSION = "3.9-IV0"
"""The default of the setting in Kafka 3.9."""


class MetadataVersion(NamedTuple):
    """A version as two numbers, which Python compares in the order of the versions.

    For example, 0.8.0 is (0, 0), and 0.8.1 is (1, 0).
    """

    release: int
    """Number of older releases in `_INTERNAL_VERSIONS`."""
    internal: int
    """The number behind `-IV`; 0 for a release without internal versions."""


def metadata_version(name: str) -> MetadataVersion:
    """Return the version named `name`, such as `2.1` or `2.1-IV0`.

    Raises: SimulationError if Kafka has no such version. A name from an experiment file does not
        cause this error, because it has been checked against VERSION_PATTERN before.
    """
    release, _, internal = name.partition("-IV")
    count = _INTERNAL_VERSIONS.get(release)
    # If there is a number behind `-IV`, it must belong to an internal version of the release.
    if count is None or (internal and not (internal.isdecimal() and int(internal) < count)):
        raise SimulationError(f"Kafka has no version {name}")
    # The release alone stands for its last internal version, or for number 0 if it has none. The
    # table has the oldest release first, so the index of a release is the number of older releases.
    return MetadataVersion(
        tuple(_INTERNAL_VERSIONS).index(release), int(internal) if internal else max(count - 1, 0)
    )


def _pattern() -> str:
    """Return a regular expression for all names, such as `3.9` or `3.9-IV0`."""
    # One digit, such as [0-3], is enough because no release has more than ten internal versions.
    names = "|".join(
        release.replace(".", r"\.") + (f"(-IV[0-{count - 1}])?" if count else "")
        for release, count in _INTERNAL_VERSIONS.items()
    )
    # `$` also matches before a newline at the end of a string. `(?!\n)` excludes such a newline.
    return rf"^({names})(?!\n)$"


VERSION_PATTERN = _pattern()
"""A regular expression for the names of all versions."""

# The versions with which the format of group and offset records has changed.
_0_10_1_IV0 = metadata_version("0.10.1-IV0")
_2_1_IV0 = metadata_version("2.1-IV0")
_2_1_IV1 = metadata_version("2.1-IV1")
_2_3_IV0 = metadata_version("2.3-IV0")


class ValueVersions(NamedTuple):
    """Versions of the values that are written to `__consumer_offsets`."""

    group: int = 3
    offset: int = 3
    """Version of an offset. This field does not apply if the client has said how long the offset is
    kept. Such an offset is always written in version 1."""


def value_versions(version: MetadataVersion) -> ValueVersions:
    """Return the versions of the values that brokers write if the setting is `version`.

    Source: Kafka `MetadataVersion.groupMetadataValueVersion`, `offsetCommitValueVersion`;
    docs/kafka/BEHAVIOUR.md 5.1.
    """
    if version < _2_1_IV0:
        return ValueVersions(group=0 if version < _0_10_1_IV0 else 1, offset=1)
    return ValueVersions(
        group=2 if version < _2_3_IV0 else 3, offset=2 if version < _2_1_IV1 else 3
    )


def has_static_members(version: MetadataVersion) -> bool:
    """Return True if brokers with the setting `version` support static members (KIP-345)."""
    return version >= _2_3_IV0
