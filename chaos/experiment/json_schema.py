"""The JSON Schema of experiment files, for editors that complete keys and underline errors.

The schema is made from the structs (`structs`, `protocol.config`, the faults' arguments), and the
docstrings of their fields become the descriptions. It accepts every file that `loader` accepts, but
also some that `loader` refuses: a schema cannot express errors that depend on several places of a
file, such as a group that is not defined.
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
# A duration is a whole number and a unit. The lookahead demands a digit other than 0.
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
"""Regular expressions for the placeholders in the syntax of targets, such as `broker(<id>)`."""


def experiment_schema() -> Schema:
    """Return the schema of a whole file: that of Experiment, with the other structs as `$defs`."""
    structs = {struct.__name__: struct for struct in _structs()}
    # The second item of the result has the definitions.
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
    """Return the schema in the form of the published file."""
    return msgspec.json.format(msgspec.json.encode(experiment_schema()), indent=2) + b"\n"


def target_pattern(syntax: str) -> str:
    """Return the regular expression of targets with a syntax such as `broker(<id>)`."""
    # A role without an argument may also be written with empty brackets.
    role, parenthesis, argument = syntax.removesuffix(")").partition("(")
    if not parenthesis:
        return role + r"\s*(\(\s*\))?"
    parts = [_PARTS_OF_TARGETS[part] for part in argument.split(", ")]
    return role + r"\s*\(\s*" + r"\s*,\s*".join(parts) + r"\s*\)"


def _structs() -> Iterator[type[msgspec.Struct]]:
    """Yield every struct of a file, including the faults' arguments, each once."""
    seen: dict[type[msgspec.Struct], None] = {}
    waiting: list[type[msgspec.Struct]] = [
        Experiment,
        *(kind.args_type for kind in FAULT_KINDS.values()),
    ]
    while waiting:
        struct = waiting.pop()
        # A fault without arguments needs no definition: `_rules` allows only an empty mapping.
        if struct not in seen and struct is not NoArgs:
            seen[struct] = None
            waiting += struct_types(*(field.annotation for field in fields_of(struct)))
    return iter(seen)


def _describe(definition: Schema, struct: type[msgspec.Struct]) -> None:
    """Add the descriptions of a struct and its fields, and remove empty entries."""
    definition.pop("title", None)
    definition["description"] = summary_of(struct)
    definition["additionalProperties"] = False
    if not definition["required"]:
        del definition["required"]
    for field in fields_of(struct):
        entry = definition["properties"][field.key]
        # msgspec puts the description of the type here: "a whole number and its unit: us, ms, ...".
        type_text = entry.pop("description", None)
        if field.doc and type_text is not None:
            entry["description"] = f"{field.doc} Written as {type_text}."
        elif field.doc or type_text is not None:
            entry["description"] = field.doc or type_text
        if entry.get("default", ()) is None or isinstance(entry.get("default"), dict):
            # An editor does not need the default null, nor a mapping whose keys have defaults of
            # their own. `()` stands for "no default".
            del entry["default"]


def _restrict(defs: dict[str, Schema]) -> None:
    """Add rules that the types do not express, but that need only one place of the file."""
    checks = {name: checker.promise for name, checker in CHECKERS.items()}
    defs["Experiment"]["properties"]["checks"] |= {"items": _one_of(checks), "uniqueItems": True}
    defs["GroupDefinition"]["properties"]["topics"]["uniqueItems"] = True
    consumer = defs[ConsumerConfig.__name__]["properties"]
    consumer["partition.assignment.strategy"]["minItems"] = 1
    # The patterns end with `(?!\n)$`, because in Python `$` alone also matches before a line break
    # at the end.
    consumer["bootstrap.servers"]["items"]["pattern"] = r"^broker-[0-9]+(:|(?!\n)$)"
    # The alternatives are a text and null; the pattern is for the text.
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
    """Add each fault's allowed targets, duration and arguments."""
    definition = defs[FaultDefinition.__name__]
    properties = definition["properties"]
    # `_one_of` lists the names of faults, so the words for the type after " Written as " are cut.
    properties["fault"] = {
        "description": properties["fault"]["description"].partition(" Written as ")[0],
        **_one_of({kind.name: kind.doc for kind in FAULT_KINDS.values()}),
    }
    # `every` is a duration or null. A duration of zero is not allowed here.
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


# `_if` and `_with` take only the properties of a mapping (name -> schema), not a whole schema.
_OFTEN: Schema = {"repeat": {"type": "integer", "minimum": 2}}
"""Properties of a fault that the plan injects more than once."""


def _rules(kind: FaultKind) -> Schema:
    """Return the schema of the keys beside `fault` for one kind of fault."""
    target = {"$ref": f"#/$defs/{_name_of_targets(kind)}"}
    if kind.has_ends:
        ends = {"anyOf": [target, {"type": "array", "items": target, "minItems": 1}]}
        rules = _with({"from": ends, "to": ends}) | {"description": kind.doc}
        rules["properties"]["target"] = _NULL
    else:
        no_targets = {"anyOf": [_NULL, {"type": "array", "maxItems": 0}]}
        rules = _with({"target": target}) | {"description": kind.doc}
        rules["properties"] |= {"from": no_targets, "to": no_targets}
    if kind.args_type is NoArgs:
        rules["properties"]["args"] = {"maxProperties": 0}  # only an empty mapping
    else:
        rules["properties"]["args"] = {"$ref": f"#/$defs/{kind.args_type.__name__}"}
        if any(field.required for field in fields_of(kind.args_type)):
            rules["required"].append("args")
    if kind.momentary or kind.is_gradual:
        rules["properties"]["duration"] = _NULL
    else:
        # A repeated fault needs a duration. Otherwise the first injection lasts until the end.
        rules |= _if(_OFTEN, _with({"duration": {"type": "string"}}))
    return rules


def _name_of_targets(kind: FaultKind) -> str:
    """Return the name of the definition of a fault's targets.

    Faults with the same targets share one definition, named after the first of them.
    """
    first = next(known for known in FAULT_KINDS.values() if known.targets == kind.targets)
    return f"targets_of_{first.name}"


def _targets_of(kind: FaultKind) -> Schema:
    """Return the schema of one target that a fault of this kind accepts."""
    kinds = [TARGET_KINDS[name] for name in kind.targets]
    patterns = "|".join(target_pattern(target.syntax) for target in kinds)
    return {
        "type": "string",
        "pattern": rf"^\s*({patterns})\s*$",
        "description": "; ".join(f"`{target.syntax}`: {target.doc}" for target in kinds),
        "examples": [target.syntax for target in kinds],
    }


def _one_of(known: dict[str, str]) -> Schema:
    """Return the schema of a choice between words, each with its meaning."""
    return {"anyOf": [{"const": name, "description": doc} for name, doc in known.items()]}


def _if(condition: Schema, rules: Schema) -> Schema:
    """Return the schema that demands `rules` if all properties of `condition` exist and fit."""
    return {"if": _with(condition), "then": rules}


def _with(properties: Schema) -> Schema:
    """Return the schema of a mapping in which all of `properties` exist and fit."""
    return {"properties": dict(properties), "required": list(properties)}
