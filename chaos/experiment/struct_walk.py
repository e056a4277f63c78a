"""What can be known about an experiment's structs: their fields, defaults, docs and paths.

Much code must go over all settings of an experiment: the JSON Schema, the reference pages, `dump`,
the shrinker, the report. It uses `fields_of`, which gives for each field its key in the file, its
type, its default, and its meaning (the docstring below the field).

The second half of this module finds the place that a user means by a path such as
`groups.orders.config.session.timeout.ms` (`resolve_path`). There `kind`, `bare` and `expected` are
type annotations, and an Item is a value of the file with its line.
"""

import ast
import inspect
import re
import textwrap
import types
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from typing import Annotated, Any, TypeGuard, Union, get_args, get_origin

import msgspec
from msgspec.structs import FieldInfo

from chaos.experiment.problems import Problem, near_miss, one_of
from chaos.experiment.yaml_document import Item

Place = tuple[str | int, ...]
"""The path to a value in an experiment, such as ("faults", 0, "args", "topic").

It consists of names of fields in Python, keys of mappings, and indexes of tuples.
"""
_INDEX = re.compile(r"(?:\[([0-9]{1,6})\]|([0-9]{1,6}))(?=[.\[]|$)")
"""An index of a list at the beginning of a path: `[0]` or `0`, before another step or the end."""
_AFTER_WORD = re.compile(r"[.\[]")
"""The characters that may follow a word in a path."""


@dataclass(frozen=True, slots=True)
class StructField:
    """One field of the struct `owner`, as msgspec knows it."""

    owner: type[msgspec.Struct]
    info: FieldInfo

    @property
    def doc(self) -> str:
        """The meaning of the field: the docstring below it in the source."""
        return _field_docs(self.owner).get(self.name, "")

    @property
    def name(self) -> str:
        """The field's name in Python."""
        return self.info.name

    @property
    def key(self) -> str:
        """The field's name in the file."""
        return self.info.encode_name

    @property
    def annotation(self) -> object:
        """The type annotation in the source."""
        return self.info.type

    @property
    def required(self) -> bool:
        """True if the file must give a value."""
        return self.info.required

    @property
    def default(self) -> object:
        """The value if the file lacks the field; meaningless if the field is `required`."""
        info = self.info
        return info.default_factory() if info.default is msgspec.NODEFAULT else info.default

    def is_default(self, value: object) -> bool:
        """Return True if `value` equals the default, so that the file may leave the field out."""
        return not self.required and value == self.default

    @property
    def struct(self) -> type[msgspec.Struct] | None:
        """The struct in the field's type, such as X in `X | None` or `dict[str, X]`, if any."""
        return next(struct_types(self.annotation), None)


@cache
def fields_of(struct: type[msgspec.Struct]) -> tuple[StructField, ...]:
    """Return the fields of a struct in the order of its source."""
    return tuple(StructField(owner=struct, info=info) for info in msgspec.structs.fields(struct))


def struct_types(*annotations: object) -> Iterator[type[msgspec.Struct]]:
    """Yield the structs that type annotations contain: X for `dict[str, X] | None`.

    The structs in the fields of X are not yielded.
    """
    for annotation in annotations:
        if _is_struct(annotation):
            yield annotation
        else:
            yield from struct_types(*get_args(annotation))


def structs_in(value: object, place: Place = ()) -> Iterator[tuple[Place, msgspec.Struct]]:
    """Yield each struct in `value` with its place: outer structs first, in the file's order."""
    children: Iterable[tuple[str | int, object]] = ()
    if isinstance(value, msgspec.Struct):
        yield place, value
        children = ((field.name, getattr(value, field.name)) for field in fields_of(type(value)))
    elif isinstance(value, Mapping):
        children = value.items()
    elif isinstance(value, tuple):
        children = enumerate(value)
    for step, child in children:
        yield from structs_in(child, (*place, step))


def without_defaults(value: object) -> Any:  # noqa: ANN401 - YAML
    """Return a value for YAML. Structs become mappings without the fields at their defaults."""
    if isinstance(value, msgspec.Struct):
        values = [(field, getattr(value, field.name)) for field in fields_of(type(value))]
        return {
            field.key: without_defaults(child)
            for field, child in values
            if not field.is_default(child)
        }
    if isinstance(value, Mapping):
        return {key: without_defaults(child) for key, child in value.items()}
    if isinstance(value, list | tuple):
        return [without_defaults(child) for child in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)  # a person writes 100, not 100.0
    return value


def resolve_path(dotted: str, root: Item, expected: object) -> list[str | int] | Problem:
    """Return the steps to the place that `dotted` names.

    For example, `cluster.brokers` -> ["cluster", "brokers"].

    The document `root` may not have the place yet, but the type `expected` must have it. Otherwise
    the result is a Problem. If the user wrote only the end of a path (`brokers`), the Problem asks
    whether he meant the whole path (`cluster.brokers`).
    """
    steps = _walk_path(dotted, root, expected)
    if not isinstance(steps, Problem) or steps.path != dotted:
        return steps
    # `dotted` may be only the end of a path. Look for a valid path that ends with it.
    for prefix, names in _named_places("", root, expected):
        longer = f"{prefix}.{dotted}"
        # Most places have no such key. This is tested first, because a walk takes longer.
        if _longest_prefix(dotted, names) and not isinstance(
            _walk_path(longer, root, expected), Problem
        ):
            return replace(steps, near_miss=longer)
    return steps


def _walk_path(dotted: str, root: Item, expected: object) -> list[str | int] | Problem:
    """Return the steps from `root` along `dotted`, or a Problem of the first step that is invalid.

    The walk follows types (`expected`), because a path may lead to a value that the file leaves
    out. It follows `root`, too, for the names in mappings and the lengths of lists. An index is
    written `faults[0]` or `faults.0`. At each struct and mapping the longest name that matches is
    taken, because Kafka's names contain dots.
    """
    steps: list[str | int] = []
    item: Item | None = root  # the value that the path has reached, None if the file has none
    kind: object = expected  # its type
    rest = dotted
    while rest:
        kind = _with_children(kind, item)
        walked = dotted[: len(dotted) - len(rest)].rstrip(".")  # the path up to `rest`
        children = item.value if item is not None else None
        if _is_struct(kind):  # the step is a field
            by_name = {field.key: field for field in fields_of(kind)}
            step = _longest_prefix(rest, by_name)
            if step is None:
                return _lost(walked, rest, by_name)
            kind = by_name[step].annotation
            item = children.get(step) if isinstance(children, dict) else None
        elif get_origin(kind) is dict:  # the step is a name, such as that of a group
            named = children if isinstance(children, dict) else {}
            step = _longest_prefix(rest, named)
            if step is None:
                # A new argument of a fault may be added, but no new group or topic.
                if kind != dict[str, Any]:
                    return _lost(walked, rest, named)
                step = rest.partition(".")[0]
            kind = get_args(kind)[1]
            item = named.get(step)
        elif get_origin(kind) is tuple:  # the step is an index
            listed = children if isinstance(children, list) else []
            # `index[1]` is the number of `[0]`, `index[2]` that of `0`; one of the two is None.
            index = _INDEX.match(rest)
            if index is None or int(index[1] or index[2]) >= len(listed):
                return _no_such_place(walked, rest, len(listed))
            place = int(index[1] or index[2])
            kind = get_args(kind)[0]
            item = listed[place]
            rest = rest[index.end() :].removeprefix(".")
            steps.append(place)
            continue
        else:  # a scalar has no places below it
            return _lost(walked, rest, ())
        steps.append(step)
        rest = rest[len(step) :].removeprefix(".")
    return steps


def _named_places(
    prefix: str, item: Item | None, expected: object
) -> Iterator[tuple[str, Iterable[str]]]:
    """Yield the path and the keys of every struct below `item`, even if the file lacks it."""
    kind = _with_children(expected, item)
    children = item.value if item is not None and isinstance(item.value, dict) else {}
    inner: list[tuple[str, object]] = []
    if _is_struct(kind):
        yield prefix, [field.key for field in fields_of(kind)]
        inner = [(field.key, field.annotation) for field in fields_of(kind)]
    elif get_origin(kind) is dict:
        inner = [(name, get_args(kind)[1]) for name in children]
    for name, annotation in inner:
        path = f"{prefix}.{name}" if prefix else name
        yield from _named_places(path, children.get(name), annotation)


def _with_children(kind: object, item: Item | None) -> object:
    """Return the part of the type `kind` that describes the children of `item`.

    1. Optional and Annotated are removed.
    2. `Any` (the arguments of faults) becomes a mapping or a list, whichever `item` is.
    3. Of a union, the list is returned if `item` is a list, and otherwise the other type.
    """
    bare = _optional_of(_bare(kind)) or _bare(kind)
    if bare is Any and item is not None and isinstance(item.value, dict | list):
        return dict[str, Any] if isinstance(item.value, dict) else tuple[Any, ...]
    if not _is_union(bare):
        return _bare(bare)
    has_list = item is not None and isinstance(item.value, list)
    return next(
        (choice for choice in get_args(bare) if (get_origin(choice) is tuple) == has_list), bare
    )


def _lost(walked: str, rest: str, known: Iterable[str]) -> Problem:
    """Return the Problem of a path whose step after `walked` is none of the `known` names."""
    names = list(known)
    # If names may contain dots, the end of the wrong word is unclear. So the whole rest is named.
    word = rest if any("." in name for name in names) else _AFTER_WORD.split(rest, maxsplit=1)[0]
    word = word or rest  # `rest` may begin with a bracket; then the word is empty
    close = near_miss(word, names)
    return Problem(
        file="--var",
        line=None,
        path=walked + ("." if walked and not rest.startswith("[") else "") + rest,
        message=f"unknown key `{word}`" if names else f"nothing can stand under `{walked}`",
        expected=one_of(names, word) if names else None,
        near_miss=close,
    )


def _no_such_place(walked: str, rest: str, length: int) -> Problem:
    """Return the Problem of a path with an index that a list does not have."""
    last = f" to `{walked}[{length - 1}]`" if length > 1 else ""
    return Problem(
        file="--var",
        line=None,
        path=walked + ("" if rest.startswith("[") else ".") + rest,
        message="there is no such place in the list",
        expected=f"`{walked}[0]`{last}" if length else f"a list for `{walked}`, which has nothing",
    )


def _longest_prefix(rest: str, names: Iterable[str]) -> str | None:
    """Return the longest name with which `rest` begins, as whole steps; None if there is none."""
    fitting = [name for name in names if rest == name or rest.startswith((f"{name}.", f"{name}["))]
    return max(fitting, key=len, default=None)


def _bare(expected: object) -> object:
    """Return X of `Annotated[X, ...]`, and any other type as it is."""
    return get_args(expected)[0] if get_origin(expected) is Annotated else expected


def _optional_of(bare: object) -> object:
    """Return X of `X | None` (X may itself be a union), or None for any other type."""
    if not _is_union(bare) or types.NoneType not in get_args(bare):
        return None
    others = tuple(choice for choice in get_args(bare) if choice is not types.NoneType)
    return others[0] if len(others) == 1 else Union[others]  # noqa: UP007 - made, not written


def _is_union(bare: object) -> bool:
    return get_origin(bare) in {Union, types.UnionType}


def _is_struct(bare: object) -> TypeGuard[type[msgspec.Struct]]:
    return isinstance(bare, type) and issubclass(bare, msgspec.Struct)


@cache
def _field_docs(struct: type[msgspec.Struct]) -> dict[str, str]:
    """Return the docstring of each field that has one, inherited fields first."""
    docs: dict[str, str] = {}
    for ancestor in reversed(struct.__mro__):
        if ancestor is not msgspec.Struct and issubclass(ancestor, msgspec.Struct):
            docs.update(_docs_in_source(ancestor))
    return docs


def summary_of(struct: type) -> str:
    """Return the first paragraph of a class's docstring as one line."""
    first, _, _ = (inspect.getdoc(struct) or "").partition("\n\n")
    return " ".join(first.split())


def _docs_in_source(struct: type) -> dict[str, str]:
    """Return the docstrings of fields, from the source of a class: Python does not keep them.

    A field's docstring is the string in the statement after the field.
    """
    body = ast.parse(textwrap.dedent(inspect.getsource(struct))).body[0]
    statements = body.body if isinstance(body, ast.ClassDef) else []
    return {
        field.target.id: " ".join(doc.value.value.split())
        for field, doc in pairwise(statements)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(doc, ast.Expr)
        and isinstance(doc.value, ast.Constant)
        and isinstance(doc.value.value, str)
    }
