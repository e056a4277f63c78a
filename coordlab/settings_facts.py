"""Lists every setting of a run with its default, for the report.

The report shows the settings in sections, for example:

    cluster.config           min.insync.replicas    1      default 1
    groups.readers.config    session.timeout.ms     10000  default 45000
    lab.cluster.links        latency_ms             2      default 1

The sections are those of the experiment file. A section whose name ends in `.config` has settings
of Kafka. A section whose name begins with `lab` has settings that Kafka does not have.

The manifest of a run has the settings of the run as dicts and lists. The run may have been made by
another version of coordlab. So these dicts and lists need not fit the classes of the present
version. A setting that the present version does not know is listed without a default.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, get_origin

import msgspec

from chaos.experiment.struct_walk import fields_of
from chaos.experiment.structs import Experiment, LateMembersDefinition
from pipeline.report.facts import SettingFact

KAFKA = ".config"
"""The ending of the names of sections with Kafka's settings."""
LAB = "lab"
"""The beginning of the names of sections with settings that Kafka does not have."""
TOP_SECTION = "experiment"
"""The report's name of the section with the settings at the top level of the file."""
FROM_STEADY = "after the steady state"
"""These words are appended to the time at which late members join a group.

(Late members join while the run goes on.) The time counts from the steady state: the moment at
which the cluster is up and its groups are Stable.
"""
NOT_SET = "not set"
"""The text of a setting that has no value."""
_KEYS_SHOWN_ELSEWHERE = frozenset({"version", "name", "question", "expect", "faults", "links"})
"""Keys at the top level that are not listed, because the report shows them in other places."""
_NO_VALUE = object()
"""Stands for the value of a missing setting. None would not do, because a setting may be None."""
_LAB_SECTIONS = frozenset({"cluster.links", "cluster.storage", "run"})
"""Sections with settings that Kafka does not have."""
_LAB_SETTINGS = frozenset({"isolate", "checks"})
"""Settings of other sections that Kafka does not have either."""


class _Section(NamedTuple):
    """A section of the experiment, as it is in a run's manifest.

    - `values`: the section as plain data.
    - `struct`: the class of the section, which knows the defaults; None if this version of coordlab
      has no such class.
    - `path`: the place of the section in the file, such as `groups.readers`; "" for the whole file.
    """

    values: Mapping[str, Any]
    struct: type[msgspec.Struct] | None
    path: str


def settings_of(config: Mapping[str, Any]) -> tuple[SettingFact, ...]:
    """Return the settings of an experiment, in the order of the file.

    `config`: the experiment as plain data, as the manifest has it.
    """
    settings = {key: value for key, value in config.items() if key not in _KEYS_SHOWN_ELSEWHERE}
    whole_file = _Section(_without_unused_settings(settings), Experiment, "")
    return tuple(_settings_in_section(whole_file))


def _without_unused_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return `config` without settings that have no effect in this experiment.

    The members of a group agree by means of a coordinator, or by means of ZooKeeper, as in old
    versions of Kafka. Settings of ZooKeeper have no effect on a group with a coordinator. Settings
    of consumers with a coordinator have no effect on a group on ZooKeeper.
    """
    groups = config.get("groups")
    if not isinstance(groups, Mapping):
        return dict(config)
    on_zookeeper = [name for name, group in groups.items() if _is_on_zookeeper(group)]
    used = {**config}
    used["groups"] = {}
    for name, group in groups.items():
        unused_key = "config" if name in on_zookeeper else "zookeeper"
        used["groups"][name] = _without_key(group, unused_key)
    if not on_zookeeper:
        # No group uses ZooKeeper, so the report need not mention it at all.
        used["groups"] = {
            name: _without_key(group, "coordination") for name, group in used["groups"].items()
        }
        used["cluster"] = _without_key(config.get("cluster"), "zookeeper")
    return used


def _is_on_zookeeper(group: object) -> bool:
    return isinstance(group, Mapping) and group.get("coordination") == "zookeeper"


def _without_key(section: object, name: str) -> object:
    """Return a section of the file without one of its keys.

    A value that is no section is returned as it is.
    """
    if not isinstance(section, Mapping):
        return section
    return {key: value for key, value in section.items() if key != name}


def _settings_in_section(section: _Section) -> Iterator[SettingFact]:
    """Yield the settings of one section, and then the settings of the sections inside it."""
    struct = section.struct
    fields = {} if struct is None else {field.key: field for field in fields_of(struct)}
    # The inner sections come last, so that this section's own settings stand together.
    inner_sections: list[_Section] = []
    for name, value in section.values.items():
        field = fields.get(name)
        inner_struct = None if field is None else field.struct
        path = f"{section.path}.{name}" if section.path else name
        if isinstance(value, Mapping):
            # `value` is a section, or a dict of sections: `groups` has a section for each group.
            if field is not None and get_origin(field.annotation) is dict:
                inner_sections += [
                    _Section(values, inner_struct, f"{path}.{key}") for key, values in value.items()
                ]
            else:
                inner_sections.append(_Section(value, inner_struct, path))
        elif isinstance(value, list | tuple) and any(isinstance(item, Mapping) for item in value):
            # `value` is a list of sections, which get the paths `name[0]`, `name[1]` and so on.
            inner_sections += [
                _Section(values, inner_struct, f"{path}[{index}]")
                for index, values in enumerate(value)
            ]
        elif inner_struct is None or value not in ((), [], None):
            # `value` is the value of a setting. Some keys are not for settings, but for sections.
            # If such a key has no sections, its value is None or an empty list, and the condition
            # leaves the key out.
            default = None
            if field is not None and not field.required:
                default = setting_text(msgspec.to_builtins(field.default))
            yield SettingFact(
                section=_section_in_report(section.path, name),
                name=name,
                value=_with_time_origin(struct, name, setting_text(value)),
                default=default,
            )
    for inner_section in inner_sections:
        shown = inner_section
        if inner_section.struct is LateMembersDefinition:
            # The late members' section is inside the section of the group that they join.
            group_config = section.values.get("config")
            shown = shown._replace(values=_without_repeats(shown.values, group_config))
        yield from _settings_in_section(shown)


def _section_in_report(path: str, name: str) -> str:
    """Return the section of the report in which a setting is listed.

    `path`, `name`: the section of the file that has the setting, and its key.
    """
    if path in _LAB_SECTIONS or name in _LAB_SETTINGS:
        return f"{LAB}.{path}" if path else LAB
    return path or TOP_SECTION


def _with_time_origin(struct: type[msgspec.Struct] | None, name: str, value: str) -> str:
    """Return the text of a value. If it is the time of late members, append FROM_STEADY."""
    is_time_of_joining = struct is LateMembersDefinition and name == "at"
    return f"{value} {FROM_STEADY}" if is_time_of_joining else value


def _without_repeats(late: Mapping[str, Any], group_config: object) -> Mapping[str, Any]:
    """Return the section of late members without settings that have the same value in the group.

    `group_config`: the settings of the group that the late members join; None if there are none.
    """
    config = late.get("config")
    if not isinstance(config, Mapping) or not isinstance(group_config, Mapping):
        return late
    different = {
        name: value for name, value in config.items() if group_config.get(name, _NO_VALUE) != value
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
