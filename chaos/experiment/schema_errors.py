"""Finds all errors in the shape of a document: unknown keys, and values of a wrong type.

A user should see all errors of a file together, but msgspec stops at the first error. So if msgspec
refuses a document, the library jsonschema looks for all errors. It uses the JSON Schema that
msgspec makes of the structs. Each error of jsonschema becomes a Problem, with plain words and the
line in the file.

In a JSON Schema an `anyOf` lists alternative schemas, and an `enum` lists allowed values. In this
module each of these schemas and values is called a choice.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeGuard

import msgspec

from chaos.experiment.problems import Problem, in_order, near_miss, one_of
from chaos.experiment.yaml_document import Item

_Schema = Mapping[str, Any]  # Any: JSON
_Untyped = Any  # values of jsonschema, which has no types
_UNKNOWN, _MISSING, _KEY = "unknown key", "missing key", "propertyNames"
"""Kinds of errors about a key. The path of such an error ends with the key.

- `_UNKNOWN`: the struct does not have the key.
- `_MISSING`: the document lacks the key.
- `_KEY`: the key is not an allowed name. This kind has jsonschema's own name, and so have all kinds
  of errors that are not about a key.
"""


def shape_problems(
    item: Item, struct: type[msgspec.Struct], file: str, path: str = ""
) -> list[Problem]:
    """Return a problem for each place of `item` that `struct` does not allow, in order of lines.

    The list is empty if and only if `msgspec.convert` accepts the document. `path` is the place of
    `item` in the file.
    """
    document = item.plain()
    try:
        msgspec.convert(document, struct)
    except (msgspec.ValidationError, TypeError) as refused:
        by_path: dict[str, Problem] = {}
        for error in _validator(struct).iter_errors(document):
            problem = _problem_of(error, item, file, path)
            by_path.setdefault(problem.path, problem)  # one problem for a place is enough
        # jsonschema may accept a document that msgspec refuses. Then the problem has msgspec's own
        # message.
        unplaced = Problem(file=file, line=item.line, path=path, message=str(refused))
        return in_order(by_path.values()) or [unplaced]
    return []


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeError:
    """One place of a document that its struct does not allow.

    - `steps`: keys and indexes that lead to the place.
    - `is_unknown`: the last step is a key that the struct does not have.
    - `meant`: for an unknown key, the known key that was probably meant.
    - `choices`: the allowed values, if they can be listed.
    """

    steps: tuple[str | int, ...]
    is_unknown: bool = False
    meant: str | None = None
    choices: tuple[object, ...] = ()


def shape_errors(document: object, struct: type[msgspec.Struct]) -> list[ShapeError]:
    """Return the places of a plain document that `struct` does not allow."""
    try:
        msgspec.convert(document, struct)
    except (msgspec.ValidationError, TypeError):
        return [_shape_error(error) for error in _validator(struct).iter_errors(document)]
    return []


def _shape_error(error: _Untyped) -> ShapeError:
    # If a key is unknown, the path ends with this key (see `_check_keys`).
    steps = tuple(error.absolute_path)
    # In jsonschema `error.validator` is the name of the broken rule: the kind of the error.
    if error.validator != _UNKNOWN:
        return ShapeError(steps=steps, choices=tuple(error.schema.get("enum", ())))
    meant = _meant(steps[-1], error.schema["properties"], error.instance)
    return ShapeError(steps=steps, is_unknown=True, meant=meant)


def describe(schema: _Schema) -> str:
    """Return words for the values that a schema allows, such as "a whole number >= 1"."""
    if "anyOf" in schema:
        choices = [describe(choice) for choice in schema["anyOf"] if choice != _NULL]
        return " or ".join(choices) + (", or nothing" if _NULL in schema["anyOf"] else "")
    kind = str(schema.get("type"))
    if "$ref" in schema or kind == "object":
        return "a mapping"
    if kind == "array":
        least = schema.get("minItems")
        return f"a list of at least {least}" if least else "a list"
    if "description" in schema:
        description = str(schema["description"])
        examples = " or ".join(f"`{example}`" for example in schema.get("examples", ()))
        return f"{description}, such as {examples}" if examples else description
    if "enum" in schema:
        return one_of(_yaml_word(choice) for choice in schema["enum"])
    # If both bounds are equal, only one number is allowed, as for the version of the format.
    if "minimum" in schema and schema["minimum"] == schema.get("maximum"):
        return str(schema["minimum"])
    bounds = " and ".join(f"{sign} {schema[key]}" for sign, key in _BOUNDS if key in schema)
    return f"{_TYPES.get(kind, kind)} {bounds}".rstrip()


def show(value: object) -> str:
    """Return the words with which a message shows a value."""
    match value:
        case dict():
            return "a mapping" if value else "an empty mapping"
        case list():
            return "a list" if value else "an empty list"
        case None:
            return "nothing"
        case bool():
            return "true" if value else "false"
        case str():
            return f"`{value}`"
        case other:
            return f"{other} ({type(other).__name__})"


_NULL = {"type": "null"}
# Kind of value in JSON Schema -> words for people.
_TYPES = {
    "integer": "a whole number",
    "number": "a number",
    "string": "text",
    "boolean": "true or false",
}
# Sign of a bound -> keyword of JSON Schema that has the bound.
_BOUNDS = (
    (">=", "minimum"),
    (">", "exclusiveMinimum"),
    ("<=", "maximum"),
    ("<", "exclusiveMaximum"),
)


@cache
def _validator(struct: type[msgspec.Struct]) -> _Untyped:
    """Return the validator of documents of `struct`.

    It differs from the usual validator of jsonschema in two points:

    - Its types are as strict as those of msgspec: 1.0 is not an integer, and NaN is not a number.
    - Errors of keys and of choices have more exact places. The checks for this are `_check_keys`,
      `_check_names` and `_check_choices`.
    """
    # Importing jsonschema takes a tenth of a second, and only files with errors need it.
    from jsonschema import Draft202012Validator, validators  # noqa: PLC0415

    # NaN is recognised by its text, because `math.isnan` raises an exception for very large
    # integers.
    types = Draft202012Validator.TYPE_CHECKER.redefine_many(
        {
            "integer": lambda _, value: _is_number(value) and isinstance(value, int),
            "number": lambda _, value: _is_number(value) and str(value) != "nan",
        }
    )
    keywords = {
        "additionalProperties": _check_keys,
        "required": lambda *_: (),  # `_check_keys` reports missing keys, too
        "propertyNames": _check_names,
        "anyOf": _check_choices,
    }
    strict = validators.extend(Draft202012Validator, keywords, type_checker=types)
    return strict(msgspec.json.schema(struct))


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _check_keys(
    validator: _Untyped, others: _Untyped, mapping: object, schema: _Schema
) -> Iterator[_Untyped]:
    """Yield errors for unknown and for missing keys of a struct.

    jsonschema calls each check for one keyword of a schema, and passes the value of the keyword.
    The keyword of this check is `additionalProperties`, and its value is `others`. For a struct
    `others` is False. A mapping such as `topics` may have any names as keys. For such a mapping
    `others` is the schema of its values, and the check yields the errors of these values.

    If a key is misspelt, there is only one error. The correct key is not reported as missing, too.
    """
    from jsonschema import ValidationError  # noqa: PLC0415 - it is slow

    if not isinstance(mapping, dict):
        return
    if others is not False:  # a mapping such as `topics`
        for key, value in mapping.items():
            # `descend` yields the errors of a part of the document by another schema.
            yield from validator.descend(value, others, path=key)
        return
    # The errors below do not say to which mapping they belong. jsonschema adds this: it sets the
    # attributes `instance` and `schema` of an error, if they are missing.
    known: Mapping[str, _Schema] = schema["properties"]
    misspelt = set()
    for key in mapping:
        if key not in known:
            yield ValidationError("", validator=_UNKNOWN, path=(key,), validator_value=mapping)
            misspelt.add(_meant(key, known, mapping))
    for key in schema["required"]:
        if key not in mapping and key not in misspelt:
            yield ValidationError("", validator=_MISSING, path=(key,), schema=known[key])


def _check_names(
    validator: _Untyped, names: _Schema, mapping: object, _: _Schema
) -> Iterator[_Untyped]:
    """Yield an error for each key whose name is not allowed. Its path ends with the key."""
    for key in mapping if isinstance(mapping, dict) else ():
        for error in validator.descend(key, names):
            error.validator = _KEY
            error.relative_path.appendleft(key)  # `descend` does not add the key itself
            yield error


def _check_choices(
    validator: _Untyped, choices: Sequence[_Schema], value: object, schema: _Schema
) -> Iterator[_Untyped]:
    """Check that `value` fits one of several schemas; yield errors if it fits none.

    If only one of the schemas has the type of the value, this schema was probably meant, and the
    errors are those of this schema. For example, if a struct or a number is allowed, a mapping was
    meant to be the struct. Otherwise there is one error about all schemas.
    """
    from jsonschema import ValidationError  # noqa: PLC0415 - it is slow

    # `evolve` returns a validator of the same kind for another schema.
    if any(validator.evolve(schema=choice).is_valid(value) for choice in choices):
        return
    attempts = [choice for choice in choices if choice != _NULL]
    if len(attempts) > 1:
        # Keep the choices with the type of the value. A choice without a type is a reference to a
        # struct, whose type is "object". If the value is neither a mapping nor a list, `kind` is
        # "", which is the type of no choice.
        kind = "object" if isinstance(value, dict) else "array" if isinstance(value, list) else ""
        attempts = [choice for choice in attempts if choice.get("type", "object") == kind]
    if len(attempts) == 1:
        yield from validator.descend(value, attempts[0])
    else:
        yield ValidationError("", schema=schema)


def _problem_of(error: _Untyped, root: Item, file: str, path: str) -> Problem:
    """Return the Problem of an error of jsonschema, with its line."""
    steps = list(error.absolute_path)
    is_of_key = error.validator in {_UNKNOWN, _MISSING, _KEY}
    # If the error is about a key, `holder` is the mapping around the key. Otherwise `holder` is the
    # wrong value itself.
    holder = _item_at(root, steps[:-1] if is_of_key else steps)
    # For example, the steps ["faults", 0, "at"] become the path `faults[0].at`.
    for step in steps:
        path += f"[{step}]" if isinstance(step, int) else f".{step}" if path else step
    if error.validator == _UNKNOWN:
        key, known = steps[-1], error.schema["properties"]
        # YAML splits `{target: member(readers, 0)}` at its comma, so `0)` becomes a key. The
        # message explains this if a key has a parenthesis.
        needs_quotes = ": between braces, a value with a comma needs quotes"
        return Problem(
            file=file,
            line=holder.line_of(key),
            path=path,
            message=f"unknown key{needs_quotes if ')' in key else ''}",
            expected=one_of(known, key),
            near_miss=_meant(key, known, error.instance),
        )
    if error.validator == _MISSING:
        return Problem(
            file=file,
            line=holder.line,
            path=path,
            message="is missing",
            expected=describe(error.schema),
        )
    return Problem(
        file=file,
        line=holder.line_of(steps[-1]) if is_of_key else holder.line,
        path=path,
        message="is not allowed",
        expected=describe(error.schema),
        found=show(error.instance),
        near_miss=_near_value(error.instance, error.schema),
    )


def _item_at(item: Item, steps: Sequence[str | int]) -> Item:
    for step in steps:
        item = item.child(step) if isinstance(step, str) else item.children()[step]
    return item


def _meant(key: str, known: Mapping[str, _Schema], mapping: Mapping[str, object]) -> str | None:
    """Return the known key that resembles `key`; None if there is no such key.

    Known keys that the mapping lacks are preferred.
    """
    missing = [name for name in known if name not in mapping]
    return near_miss(key, missing) or near_miss(key, known)


def _near_value(value: object, schema: _Schema) -> str | None:
    """Return the value that the user probably meant; None if there is no guess.

    This may be an allowed word that is similar to a wrong word. If a number stands in place of a
    duration, the number is taken for seconds.
    """
    if "enum" in schema:
        return near_miss(str(value), [str(choice) for choice in schema["enum"]])
    if "5s" not in schema.get("examples", ()):  # it is not the schema of a duration
        return None
    if not _is_number(value) or value < 0:
        return None
    # For example, 5 becomes `5s`, and 0.5 becomes `500ms`.
    if isinstance(value, int) or value.is_integer():
        return f"{int(value)}s"
    ms = value * 1_000
    return f"{int(ms)}ms" if ms.is_integer() else None


def _yaml_word(choice: object) -> str:
    return str(choice).lower() if isinstance(choice, bool) else str(choice)
