"""The JSON Schema of experiment files: what editors complete, explain and underline.

Made from the structs alone (`structs`, `protocol.config`, the faults' arguments), with their
fields' strings as descriptions. It refuses nothing that `loader` takes; what depends on
several places of a file (a group that is not defined, more replicas than brokers) only `loader`
knows.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from chaos.checkers.registry import CHECKERS
from chaos.experiment.struct_walk import fields_of, struct_types, summary_of
from chaos.experiment.structs import Duration, Experiment, FaultDefinition
from chaos.faults.base import FaultKind, NoArgs
from chaos.faults.links import API_NAMES, ERROR_NAMES
from chaos.faults.registry import FAULT_KINDS
from chaos.targets.registry import TARGET_KINDS
from cluster.host.connection_purposes import PURPOSES
from protocol.config import ConsumerConfig

Schema = dict[str, Any]  # Any: JSON, as msgspec makes it

DIALECT = "https://json-schema.org/draft/2020-12/schema"
TITLE = "coordlab experiment"
FILE_NAME = "experiment.schema.json"
_NULL: Schema = {"type": "null"}
_DURATION = msgspec.json.schema(Duration)
_NOT_ZERO = {"pattern": r"^(?=0*[1-9])" + _DURATION["pattern"].removeprefix("^")}
_PARTS_OF_TARGETS = {
    "<topic-partition>": r"[A-Za-z0-9._-]+-[0-9]+",
    "<group>": r"[A-Za-z0-9._-]+",
    "<index>": r"[0-9]+",
    "<id>": r"[0-9]+",
    "<number>": r"[0-9]+",
    "<target>": r"[A-Za-z-]+\s*(\([^()]*\))?",
    "<client id>": r"[^()]+",
}
"""How what stands in a target's syntax is written."""


def experiment_schema() -> Schema:
    """Return the schema of a whole file."""
    structs = {struct.__name__: struct for struct in _structs()}
    defs: dict[str, Schema] = msgspec.json.schema_components(
        tuple(structs.values()), ref_template="#/$defs/{name}"
    )[1]
    for name, definition in defs.items():
        _describe(definition, structs[name])
    _restrict(defs)
    root = defs.pop(Experiment.__name__)
    return {
        "$schema": DIALECT,
        **root,
        "title": TITLE,
        "$defs": dict(sorted(defs.items())),
    }


def encoded_schema() -> bytes:
    """Return the schema as the published file has it."""
    return msgspec.json.format(msgspec.json.encode(experiment_schema()), indent=2) + b"\n"


def target_pattern(syntax: str) -> str:
    """Return what a target of this syntax looks like: `broker(<id>)`, `any-broker`."""
    role, parenthesis, argument = syntax.removesuffix(")").partition("(")
    if not parenthesis:
        return role + r"\s*(\(\s*\))?"
    parts = [_PARTS_OF_TARGETS[part] for part in argument.split(", ")]
    return role + r"\s*\(\s*" + r"\s*,\s*".join(parts) + r"\s*\)"


def _structs() -> Iterator[type[msgspec.Struct]]:
    """Yield every struct of a file, the faults' arguments included, each once."""
    seen: dict[type[msgspec.Struct], None] = {}
    waiting: list[type[msgspec.Struct]] = [
        Experiment,
        *(kind.args_type for kind in FAULT_KINDS.values()),
    ]
    while waiting:
        found = waiting.pop()
        if found not in seen and found is not NoArgs:
            seen[found] = None
            waiting += struct_types(*(field.annotation for field in fields_of(found)))
    return iter(seen)


def _describe(definition: Schema, struct: type[msgspec.Struct]) -> None:
    """Write what a struct and its fields mean, and leave out what says nothing."""
    definition.pop("title", None)
    definition["description"] = summary_of(struct)
    definition["additionalProperties"] = False
    if not definition["required"]:
        del definition["required"]
    for field in fields_of(struct):
        entry = definition["properties"][field.key]
        shape = entry.pop("description", None)
        if field.doc and shape is not None:
            entry["description"] = f"{field.doc} Written as {shape}."
        elif field.doc or shape is not None:
            entry["description"] = field.doc or shape
        if entry.get("default", ()) is None or isinstance(entry.get("default"), dict):
            del entry["default"]  # nothing, or the defaults of what is below


def _restrict(defs: dict[str, Schema]) -> None:
    """Add what types cannot say and no other place of a file decides."""
    checks = {name: checker.promise for name, checker in CHECKERS.items()}
    defs["Experiment"]["properties"]["checks"] |= {"items": _one_of(checks), "uniqueItems": True}
    defs["GroupDefinition"]["properties"]["topics"]["uniqueItems"] = True
    consumer = defs[ConsumerConfig.__name__]["properties"]
    consumer["partition.assignment.strategy"]["minItems"] = 1
    consumer["bootstrap.servers"]["items"]["pattern"] = r"^broker-[0-9]+(:|(?!\n)$)"
    for choice in consumer["group.instance.id"]["anyOf"]:
        if choice["type"] == "string":
            choice["pattern"] = r"^([A-Za-z0-9._-]|\{index\})+(?!\n)$"
    for definition in defs.values():
        properties = definition["properties"]
        if "purposes" in properties:
            properties["purposes"]["items"] = _one_of(PURPOSES)
        if "apis" in properties:
            properties["apis"]["items"] = {"enum": list(API_NAMES)}
        if "errors" in properties:
            properties["errors"]["items"] = {"enum": list(ERROR_NAMES)}
    _restrict_faults(defs)


def _restrict_faults(defs: dict[str, Schema]) -> None:
    """Say of each fault whom it can hit, whether it lasts, and what it takes."""
    definition = defs[FaultDefinition.__name__]
    properties = definition["properties"]
    properties["fault"] = {
        "description": properties["fault"]["description"].partition(" Written as ")[0],
        **_one_of({kind.name: kind.doc for kind in FAULT_KINDS.values()}),
    }
    for choice in properties["every"]["anyOf"]:
        if choice["type"] == "string":
            choice.update(_NOT_ZERO)
    definition["allOf"] = [
        _if({"every": {"type": "string"}}, _with({"repeat": {"type": "integer"}})),
        _if(_OFTEN, _with({"every": {"type": "string"}})),
        *(_if({"fault": {"const": kind.name}}, _rules(kind)) for kind in FAULT_KINDS.values()),
    ]
    for kind in FAULT_KINDS.values():
        defs[_name_of_targets(kind)] = _targets_of(kind)


_OFTEN: Schema = {"repeat": {"type": "integer", "minimum": 2}}


def _rules(kind: FaultKind) -> Schema:
    target = {"$ref": f"#/$defs/{_name_of_targets(kind)}"}
    if kind.has_ends:
        ends = {"anyOf": [target, {"type": "array", "items": target, "minItems": 1}]}
        rules = _with({"from": ends, "to": ends}) | {"description": kind.doc}
        rules["properties"]["target"] = _NULL
    else:
        nobody = {"anyOf": [_NULL, {"type": "array", "maxItems": 0}]}
        rules = _with({"target": target}) | {"description": kind.doc}
        rules["properties"] |= {"from": nobody, "to": nobody}
    if kind.args_type is NoArgs:
        rules["properties"]["args"] = {"maxProperties": 0}
    else:
        rules["properties"]["args"] = {"$ref": f"#/$defs/{kind.args_type.__name__}"}
        if any(field.required for field in fields_of(kind.args_type)):
            rules["required"].append("args")
    if kind.momentary or kind.is_gradual:
        rules["properties"]["duration"] = _NULL
    else:
        rules |= _if(_OFTEN, _with({"duration": {"type": "string"}}))
    return rules


def _name_of_targets(kind: FaultKind) -> str:
    """Name the targets of a fault by the first fault that has the same."""
    first = next(each for each in FAULT_KINDS.values() if each.targets == kind.targets)
    return f"targets_of_{first.name}"


def _targets_of(kind: FaultKind) -> Schema:
    kinds = [TARGET_KINDS[name] for name in kind.targets]
    patterns = "|".join(target_pattern(target.syntax) for target in kinds)
    said = "; ".join(f"`{target.syntax}`: {target.doc}" for target in kinds)
    return {
        "type": "string",
        "pattern": rf"^\s*({patterns})\s*$",
        "description": said,
        "examples": [target.syntax for target in kinds],
    }


def _one_of(known: dict[str, str]) -> Schema:
    """Return the schema of one of a few words, each with what it means."""
    return {"anyOf": [{"const": name, "description": doc} for name, doc in known.items()]}


def _if(condition: Schema, rules: Schema) -> Schema:
    """Return the schema that asks for `rules` where properties are there and as `condition`."""
    return {"if": _with(condition), "then": rules}


def _with(properties: Schema) -> Schema:
    return {"properties": dict(properties), "required": list(properties)}
