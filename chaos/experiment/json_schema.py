"""The JSON Schema of experiment files, for editors that complete keys and underline errors.

The schema is made from the structs of a file, which are in `structs` and `protocol.config`, and
from the structs of the faults' arguments. The docstrings of their fields become the descriptions.

The schema accepts every file that `loader` accepts. It also accepts some files that `loader`
refuses, because a schema cannot express errors that depend on several places of a file. An example
is a fault that hits a group which the file does not define.
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
# The schema of a duration that is not zero. A duration is a whole number and a unit. The lookahead
# in the pattern demands a digit other than 0.
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
    """Return the schema of a whole file: the schema of Experiment.

    The schemas of all other structs are in its `$defs`.
    """
    structs = {struct.__name__: struct for struct in _structs()}
    # The second value of the result has the schemas of all structs, by their names.
    defs: dict[str, Schema]
    _, defs = msgspec.json.schema_components(tuple(structs.values()), ref_template="#/$defs/{name}")
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
    """Return the bytes of the published file with the schema."""
    return msgspec.json.format(msgspec.json.encode(experiment_schema()), indent=2) + b"\n"


def target_pattern(syntax: str) -> str:
    """Return the regular expression of targets with a syntax such as `broker(<id>)`."""
    role, parenthesis, argument = syntax.removesuffix(")").partition("(")
    if not parenthesis:
        # A role without an argument may also be written with empty parentheses.
        return role + r"\s*(\(\s*\))?"
    parts = [_PARTS_OF_TARGETS[part] for part in argument.split(", ")]
    return role + r"\s*\(\s*" + r"\s*,\s*".join(parts) + r"\s*\)"


def _structs() -> Iterator[type[msgspec.Struct]]:
    """Yield every struct of a file once, including the structs of the faults' arguments."""
    seen: dict[type[msgspec.Struct], None] = {}
    waiting: list[type[msgspec.Struct]] = [
        Experiment,
        *(kind.args_type for kind in FAULT_KINDS.values()),
    ]
    while waiting:
        struct = waiting.pop()
        # NoArgs is the struct of faults without arguments. It needs no definition, because `_rules`
        # allows only an empty mapping for these faults.
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
        # Some types have a description of their own, such as "a whole number and its unit: us,
        # ms, ...". msgspec has put it here.
        type_text = entry.pop("description", None)
        if field.doc and type_text is not None:
            entry["description"] = f"{field.doc} Written as {type_text}."
        elif field.doc or type_text is not None:
            entry["description"] = field.doc or type_text
        if entry.get("default", ()) is None or isinstance(entry.get("default"), dict):
            # An editor does not need a default that is null, or that is a mapping, because the keys
            # of the mapping have defaults of their own. If the entry has no default, `get` returns
            # (), which is neither of them.
            del entry["default"]


def _restrict(defs: dict[str, Schema]) -> None:
    """Add rules about single places of the file that the types of the structs do not express."""
    checks = {name: checker.promise for name, checker in CHECKERS.items()}
    defs["Experiment"]["properties"]["checks"] |= {"items": _one_of(checks), "uniqueItems": True}
    defs["GroupDefinition"]["properties"]["topics"]["uniqueItems"] = True
    consumer = defs[ConsumerConfig.__name__]["properties"]
    consumer["partition.assignment.strategy"]["minItems"] = 1
    # An address is `broker-<id>`, perhaps with a port. This and the next pattern end with
    # `(?!\n)$`, because in Python `$` alone would also match before a line break at the end.
    consumer["bootstrap.servers"]["items"]["pattern"] = r"^broker-[0-9]+(:|(?!\n)$)"
    # `group.instance.id` may be a text or null. The pattern is for the text.
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
    # `_one_of` lists the names of all faults. So the description of the type, which `_describe` has
    # added after " Written as ", is not necessary.
    properties["fault"] = {
        "description": properties["fault"]["description"].partition(" Written as ")[0],
        **_one_of({kind.name: kind.doc for kind in FAULT_KINDS.values()}),
    }
    # `every` is a duration or null. The duration must not be zero.
    for choice in properties["every"]["anyOf"]:
        if choice["type"] == "string":
            choice.update(_NOT_ZERO)
    # 1. A fault with `every` needs `repeat`.
    # 2. A fault that is injected more than once needs `every`.
    # 3. The other rules depend on the kind of fault.
    definition["allOf"] = [
        _if({"every": {"type": "string"}}, _with({"repeat": {"type": "integer"}})),
        _if(_OFTEN, _with({"every": {"type": "string"}})),
        *(_if({"fault": {"const": kind.name}}, _rules(kind)) for kind in FAULT_KINDS.values()),
    ]
    for kind in FAULT_KINDS.values():
        defs[_name_of_targets(kind)] = _targets_of(kind)


_OFTEN: Schema = {"repeat": {"type": "integer", "minimum": 2}}
"""Properties of a fault that the plan injects more than once.

This is not a whole schema, but only the properties of a mapping, each with its schema. `_if` and
`_with` take such properties.
"""


def _rules(kind: FaultKind) -> Schema:
    """Return the schema of the keys beside `fault` for one kind of fault."""
    target = {"$ref": f"#/$defs/{_name_of_targets(kind)}"}
    if kind.has_ends:
        ends = {"anyOf": [target, {"type": "array", "items": target, "minItems": 1}]}
        rules = _with({"from": ends, "to": ends}) | {"description": kind.doc}
        rules["properties"]["target"] = _NULL  # a fault of links has no `target`
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
        rules["properties"]["duration"] = _NULL  # the fault ends by itself
    else:
        # If a fault is injected more than once, it needs a duration. Otherwise its first injection
        # would last until the end of the run.
        rules |= _if(_OFTEN, _with({"duration": {"type": "string"}}))
    return rules


def _name_of_targets(kind: FaultKind) -> str:
    """Return the name of the definition of a fault's targets.

    If several faults have the same targets, they share one definition, which is named after the
    first of these faults.
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
    """Return the schema that demands `rules` if a condition is true.

    The condition is true if all properties of `condition` exist and fit their schemas.
    """
    return {"if": _with(condition), "then": rules}


def _with(properties: Schema) -> Schema:
    """Return the schema of a mapping in which all of `properties` exist and fit their schemas."""
    return {"properties": dict(properties), "required": list(properties)}
