"""Every setting of a run's experiment with its default, as the report lists them.

The settings are listed in sections. The name of a section tells its kind:

- A section whose name ends in `.config` has Kafka's settings, with Kafka's defaults.
- A section whose name begins with `lab` has settings that Kafka does not have, such as the latency
  of the virtual network or the longest time of a stage.
- All other sections are parts of the experiment, such as a group. `cluster.guards` is one of them;
  it switches off rules of Kafka.

The functions work on the plain data (dicts, lists, numbers, texts) in a run's manifest, so they can
also read runs of other versions of coordlab. A setting that only the run's version knows is listed
without a default. A setting that only this version knows is not listed.

Each section of the file has a class, a msgspec struct; the fields of the struct have the defaults.
"""

from collections.abc import Iterator, Mapping
from typing import Any, get_origin

import msgspec

from chaos.experiment.struct_walk import fields_of
from chaos.experiment.structs import Experiment, LateMembersDefinition
from pipeline.report.facts import SettingFact

KAFKA = ".config"
"""Ending of the sections with Kafka's settings."""
LAB = "lab"
"""Name, or beginning of the name, of the sections with settings that Kafka does not have."""
TOP_SECTION = "experiment"
"""Section of settings at the top level of the file."""
FROM_STEADY = "after the steady state"
"""Words that are appended to the time at which late members (members that join a group during the
run) join. That time counts from the steady state, the moment at which the whole cluster is up and
its groups are Stable."""
NOT_SET = "not set"
_NO_SETTINGS = frozenset({"version", "name", "question", "expect", "faults", "links"})
"""Keys at the top level that are not settings. The report shows them elsewhere."""
_MISSING = object()
"""Stands for the value of a setting that the group lacks. It equals no value, not even None, which
is the value of some settings."""
_LAB_SECTIONS = frozenset({"cluster.links", "cluster.storage", "run"})
"""Sections whose settings Kafka does not have."""
_LAB_SETTINGS = frozenset({"isolate", "checks"})
"""Settings in other sections that Kafka does not have."""


def settings_of(config: Mapping[str, Any]) -> tuple[SettingFact, ...]:
    """Return the settings of an experiment, in the file's order. `config`: the plain data.

    The definition of late members can replace settings of their group. A setting of late members
    is returned only if it differs from the group's setting. The name of a section is a path in the
    file, such as `groups.readers.config`. For settings that Kafka does not have, `lab` stands
    before the path, as in `lab.cluster.links`.
    """
    settings = {key: value for key, value in config.items() if key not in _NO_SETTINGS}
    return tuple(_settings(_without_unused(settings), Experiment, ""))


def _without_unused(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return `config` without settings that have no effect.

    A group has either a coordinator, as in today's Kafka, or is "on ZooKeeper": its members use
    ZooKeeper's servers instead, as in old versions of Kafka. A group on ZooKeeper does not use its
    `config`, and a group with a coordinator does not use its `zookeeper`. The settings of
    ZooKeeper's servers matter only if some group is on ZooKeeper.
    """
    groups = config.get("groups")
    if not isinstance(groups, Mapping):
        return dict(config)
    on_zookeeper = [name for name, group in groups.items() if _is_on_zookeeper(group)]
    used = {**config}
    used["groups"] = {
        name: _drop(group, "config") if name in on_zookeeper else _drop(group, "zookeeper")
        for name, group in groups.items()
    }
    if not on_zookeeper:
        # All groups have a coordinator, which is the default, so `coordination` is left out.
        used["groups"] = {
            name: _drop(group, "coordination") for name, group in used["groups"].items()
        }
        used["cluster"] = _drop(config.get("cluster"), "zookeeper")
    return used


def _is_on_zookeeper(group: object) -> bool:
    """Return whether the members of a group use ZooKeeper's servers instead of a coordinator."""
    return isinstance(group, Mapping) and group.get("coordination") == "zookeeper"


def _drop(section: object, name: str) -> object:
    """Return a section of the file without one of its keys."""
    if not isinstance(section, Mapping):
        return section
    return {key: value for key, value in section.items() if key != name}


def _settings(
    values: Mapping[str, Any], struct: type[msgspec.Struct] | None, section: str
) -> Iterator[SettingFact]:
    """Yield the settings of one section: first its own values, then those of sections below it.

    - `values`: the section's plain data.
    - `struct`: the section's struct, which knows the defaults; None if this version has none.
    - `section`: the section's path in the file; "" for the whole file.
    """
    fields = {} if struct is None else {field.key: field for field in fields_of(struct)}
    # The values, the struct and the path of each section below this one. These sections come after
    # the section's own values, so that the settings of one section follow each other in the report.
    below: list[tuple[Mapping[str, Any], type[msgspec.Struct] | None, str]] = []
    for name, value in values.items():
        field = fields.get(name)
        inner = None if field is None else field.struct
        path = f"{section}.{name}" if section else name
        if isinstance(value, Mapping):
            # The value is either one section, or a dict of sections, such as `groups`, which has a
            # section for the name of each group.
            if field is not None and get_origin(field.annotation) is dict:
                below += [(nested, inner, f"{path}.{key}") for key, nested in value.items()]
            else:
                below.append((value, inner, path))
        elif isinstance(value, list | tuple) and any(isinstance(item, Mapping) for item in value):
            # A list of sections, which get numbers in their paths.
            below += [(item, inner, f"{path}[{index}]") for index, item in enumerate(value)]
        elif inner is None or value not in ((), [], None):
            # The value is a plain value. A key for sections (`inner` is their struct) has no plain
            # value: if it has no section, its value is None or an empty list, and is left out.
            default = None
            if field is not None and not field.required:
                default = setting_text(msgspec.to_builtins(field.default))
            yield SettingFact(
                section=_listed_in(section, name),
                name=name,
                value=_with_from_steady(struct, name, setting_text(value)),
                default=default,
            )
    for nested, inner, path in below:
        is_late = inner is LateMembersDefinition
        # The section of late members is inside the section of their group. So here `values` is the
        # section of the group, and `values["config"]` has the settings of the group.
        section_values = _without_repeats(nested, values.get("config")) if is_late else nested
        yield from _settings(section_values, inner, path)


def _listed_in(section: str, name: str) -> str:
    """Return the name of the section under which the report lists a setting."""
    if section in _LAB_SECTIONS or name in _LAB_SETTINGS:
        return f"{LAB}.{section}" if section else LAB
    return section or TOP_SECTION


def _with_from_steady(struct: type[msgspec.Struct] | None, name: str, value: str) -> str:
    """Return a value, with FROM_STEADY after it if it is the time at which late members join."""
    return f"{value} {FROM_STEADY}" if struct is LateMembersDefinition and name == "at" else value


def _without_repeats(late: Mapping[str, Any], group_config: object) -> Mapping[str, Any]:
    """Return the definition of late members without the settings that equal those of their group.

    `group_config`: the settings of the group; None if the file has none.
    """
    config = late.get("config")
    if not isinstance(config, Mapping) or not isinstance(group_config, Mapping):
        return late
    different = {
        name: value for name, value in config.items() if group_config.get(name, _MISSING) != value
    }
    return {**late, "config": different}


def setting_text(value: object) -> str:
    """Return a value as it is written in an experiment file."""
    if value is None:
        return NOT_SET
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ", ".join(setting_text(item) for item in value) or "none"
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)
