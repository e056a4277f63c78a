"""Every setting of a run's experiment beside its default, as its report lists them.

Three kinds, told apart by their sections. Those that end in `.config` hold Kafka's settings, and
the defaults are Kafka's. Those that begin with `lab` hold what Kafka has nothing like: how its
network and disks are played, how long a stage may take. All others say what the experiment is made
of; `cluster.guards`, where it switches checks of Kafka's off, is one of them.

Works on the plain data that a manifest holds, so that runs of other versions are read too: what
this version does not know has no default, and what that version did not know yet is left out.
"""

from collections.abc import Iterator, Mapping
from typing import Any, get_origin

import msgspec

from chaos.experiment.struct_walk import fields_of
from chaos.experiment.structs import Experiment, LateMembersDefinition
from pipeline.report.facts import SettingFact

KAFKA = ".config"
"""How the sections of Kafka's own settings end."""
LAB = "lab"
"""The section, or the beginning of the sections, of the lab's own settings."""
TOP_SECTION = "experiment"
"""Section of settings at the top level of the file."""
FROM_STEADY = "after the steady state"
NOT_SET = "not set"
_NO_SETTINGS = frozenset({"version", "name", "question", "expect", "faults", "links"})
"""Top-level keys that are no settings; the facts of faults show the plan."""
_MISSING = object()
_LAB_SECTIONS = frozenset({"cluster.links", "cluster.storage", "run"})
_LAB_SETTINGS = frozenset({"isolate", "checks"})


def settings_of(config: Mapping[str, Any]) -> tuple[SettingFact, ...]:
    """Return the settings of an experiment's plain data, in the file's order.

    Of late members only those are returned in which they differ from their group's.
    Shape: a section is a path into the file, e.g. `cluster.config` or `groups.readers.config`; the
    lab's own have `lab` before it: `lab.cluster.links`, `lab.run`.
    """
    kept = {key: value for key, value in config.items() if key not in _NO_SETTINGS}
    return tuple(_settings(_without_idle_worlds(kept), Experiment, ""))


def _without_idle_worlds(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return what sets something: ZooKeeper only for groups that live on it, and their ensemble."""
    groups = config.get("groups")
    if not isinstance(groups, Mapping):
        return dict(config)
    on_zookeeper = [name for name, group in groups.items() if _is_on_zookeeper(group)]
    kept = {**config}
    kept["groups"] = {
        name: _drop(group, "config") if name in on_zookeeper else _drop(group, "zookeeper")
        for name, group in groups.items()
    }
    if not on_zookeeper:
        kept["groups"] = {
            name: _drop(group, "coordination") for name, group in kept["groups"].items()
        }
        kept["cluster"] = _drop(config.get("cluster"), "zookeeper")
    return kept


def _is_on_zookeeper(group: object) -> bool:
    return isinstance(group, Mapping) and group.get("coordination") == "zookeeper"


def _drop(section: object, name: str) -> object:
    """Return a section of the file without one of its keys."""
    if not isinstance(section, Mapping):
        return section
    return {key: value for key, value in section.items() if key != name}


def _settings(
    values: Mapping[str, Any], struct: type[msgspec.Struct] | None, section: str
) -> Iterator[SettingFact]:
    """Yield the plain values of one section first, then the sections below it."""
    known = {} if struct is None else {field.key: field for field in fields_of(struct)}
    below: list[tuple[Mapping[str, Any], type[msgspec.Struct] | None, str]] = []
    for name, value in values.items():
        field = known.get(name)
        inner = None if field is None else field.struct
        path = f"{section}.{name}" if section else name
        if isinstance(value, Mapping):
            if field is not None and get_origin(field.annotation) is dict:
                below += [(each, inner, f"{path}.{key}") for key, each in value.items()]
            else:
                below.append((value, inner, path))
        elif isinstance(value, list | tuple) and any(isinstance(each, Mapping) for each in value):
            below += [(each, inner, f"{path}[{index}]") for index, each in enumerate(value)]
        elif not (inner is not None and value in ((), [], None)):  # no late member is no setting
            yield SettingFact(
                section=_section(section, name),
                name=name,
                value=_counted(struct, name, setting_text(value)),
                default=None
                if field is None or field.required
                else setting_text(msgspec.to_builtins(field.default)),
            )
    for nested, inner, path in below:
        own = _without(nested, values.get("config")) if inner is LateMembersDefinition else nested
        yield from _settings(own, inner, path)


def _section(section: str, name: str) -> str:
    """Return where a setting is listed: the lab's own apart from what the experiment is made of."""
    if section in _LAB_SECTIONS or name in _LAB_SETTINGS:
        return f"{LAB}.{section}" if section else LAB
    return section or TOP_SECTION


def _counted(struct: type[msgspec.Struct] | None, name: str, value: str) -> str:
    """Return a value with what it is counted from, where that is not the start of the run."""
    return f"{value} {FROM_STEADY}" if struct is LateMembersDefinition and name == "at" else value


def _without(late: Mapping[str, Any], group: object) -> Mapping[str, Any]:
    """Return what a file says of late members, without the settings that are their group's."""
    config = late.get("config")
    if not isinstance(config, Mapping) or not isinstance(group, Mapping):
        return late
    own = {name: value for name, value in config.items() if group.get(name, _MISSING) != value}
    return {**late, "config": own}


def setting_text(value: object) -> str:
    """Return a value as people write it in the file."""
    if value is None:
        return NOT_SET
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ", ".join(setting_text(each) for each in value) or "none"
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)
