"""Information about the structs of an experiment: their fields, defaults, docstrings and paths.

Several modules must go over all settings of an experiment: those that make the JSON Schema, the
reference pages, files and reports, and the shrinker. They call `fields_of`. It returns each field
of a struct, with its key in the file, its type, its default, and its meaning (the docstring below
the field).

The second half of this module finds the place that a user means by a path such as
`groups.orders.config.session.timeout.ms` (`resolve_path`). In its functions the arguments `kind`,
`bare` and `expected` are type annotations, such as `dict[str, GroupDefinition]`. An Item is a value
of the file together with its line.
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

A path consists of names of fields in Python, keys of mappings, and indexes of tuples.
"""
_INDEX = re.compile(r"(?:\[([0-9]{1,6})\]|([0-9]{1,6}))(?=[.\[]|$)")
"""Index of a list at the beginning of a path, `[0]` or `0`. A further step, or nothing, follows."""
_AFTER_WORD = re.compile(r"[.\[]")
"""Characters with which the next step of a path begins."""


@dataclass(frozen=True, slots=True)
class StructField:
    """One field of the struct `owner`. `info` is what msgspec knows about the field."""

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
        """The value that counts if the file lacks the field. A required field has none."""
        info = self.info
        return info.default_factory() if info.default is msgspec.NODEFAULT else info.default

    def is_default(self, value: object) -> bool:
        """Return True if `value` is equal to the default. The file may then leave the field out."""
        return not self.required and value == self.default

    @property
    def struct(self) -> type[msgspec.Struct] | None:
        """The struct in the field's type, such as X in `X | None` or `dict[str, X]`, or None."""
        return next(struct_types(self.annotation), None)


@cache
def fields_of(struct: type[msgspec.Struct]) -> tuple[StructField, ...]:
    """Return the fields of a struct in the order of its source."""
    return tuple(StructField(owner=struct, info=info) for info in msgspec.structs.fields(struct))


def struct_types(*annotations: object) -> Iterator[type[msgspec.Struct]]:
    """Yield the structs that type annotations contain, such as X for `dict[str, X] | None`.

    X may have fields with other structs. These are not yielded.
    """
    for annotation in annotations:
        if _is_struct(annotation):
            yield annotation
        else:
            yield from struct_types(*get_args(annotation))


def structs_in(value: object, place: Place = ()) -> Iterator[tuple[Place, msgspec.Struct]]:
    """Yield each struct in `value`, together with its place.

    The structs come in the order of the file. Each struct comes before the structs in its fields.
    """
    children: Iterable[tuple[str | int, object]] = ()  # (step, value); none for a scalar
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
    """Return a value in the form in which YAML can write it.

    A struct becomes a mapping without the fields that have their defaults.
    """
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
    """Return the steps to the place that the path `dotted` names, or a Problem of a wrong path.

    For example, the path `cluster.brokers` gives ["cluster", "brokers"].

    The document `root` may lack the place, because a file may leave out keys that have a default.
    But the struct `expected` must have the place. If the user has written only the end of a path,
    such as `brokers`, the Problem suggests the whole path, `cluster.brokers`.
    """
    result = _walk_path(dotted, root, expected)
    if not isinstance(result, Problem) or result.path != dotted:
        return result
    # A step of the path is wrong. So perhaps `dotted` is only the end of a path. Look for a valid
    # path that ends with `dotted`.
    for prefix, names in _named_places("", root, expected):
        longer = f"{prefix}.{dotted}"
        # A longer path is valid only if `dotted` begins with a key of the struct at `prefix`. This
        # is tested first, because a walk takes longer.
        if _longest_prefix(dotted, names) and not isinstance(
            _walk_path(longer, root, expected), Problem
        ):
            return replace(result, near_miss=longer)
    return result


def _walk_path(dotted: str, root: Item, expected: object) -> list[str | int] | Problem:
    """Return the steps from `root` along `dotted`, or a Problem of the first step that is invalid.

    The walk follows the types, beginning with `expected`, because a path may lead to a value that
    the file leaves out. It also follows the document, because only the document has the names in
    mappings and the lengths of lists.

    An index is written `faults[0]` or `faults.0`. The names of Kafka's settings contain dots. So
    several names may match the beginning of the rest of a path, and the longest of them is taken.
    """
    steps: list[str | int] = []
    item: Item | None = root  # the value that the walk has reached; None if the file lacks it
    kind: object = expected  # the type of this value
    rest = dotted  # the part of the path that is not walked yet
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
        elif get_origin(kind) is dict:  # the step is a name, such as the name of a group
            named = children if isinstance(children, dict) else {}
            step = _longest_prefix(rest, named)
            if step is None:
                # A path may add an argument to a fault (the type is `dict[str, Any]`), but no group
                # or topic.
                if kind != dict[str, Any]:
                    return _lost(walked, rest, named)
                step = rest.partition(".")[0]
            _, kind = get_args(kind)  # X of dict[str, X]
            item = named.get(step)
        elif get_origin(kind) is tuple:  # the step is an index
            listed = children if isinstance(children, list) else []
            # If the index is written as `[0]`, its number is `index[1]`. If it is written as `0`,
            # its number is `index[2]`. The other of the two is None.
            index = _INDEX.match(rest)
            if index is None or int(index[1] or index[2]) >= len(listed):
                return _no_such_place(walked, rest, len(listed))
            place = int(index[1] or index[2])
            kind = get_args(kind)[0]  # X of tuple[X, ...]
            item = listed[place]
            rest = rest[index.end() :].removeprefix(".")
            steps.append(place)
            continue
        else:  # a scalar has no places below it
            return _lost(walked, rest, ())
        steps.append(step)
        rest = rest[len(step) :].removeprefix(".")  # what follows after the step
    return steps


def _named_places(
    prefix: str, item: Item | None, expected: object
) -> Iterator[tuple[str, Iterable[str]]]:
    """Yield the path and the keys of every struct at or below `item`.

    Structs that the file leaves out are included.
    """
    kind = _with_children(expected, item)
    children = item.value if item is not None and isinstance(item.value, dict) else {}
    inner: list[tuple[str, object]] = []
    if _is_struct(kind):
        yield prefix, [field.key for field in fields_of(kind)]
        inner = [(field.key, field.annotation) for field in fields_of(kind)]
    elif get_origin(kind) is dict:
        _, value_type = get_args(kind)
        inner = [(name, value_type) for name in children]
    for name, annotation in inner:
        path = f"{prefix}.{name}" if prefix else name
        yield from _named_places(path, children.get(name), annotation)


def _with_children(kind: object, item: Item | None) -> object:
    """Return the part of the type `kind` that describes the children of `item`.

    1. `X | None` and `Annotated[X, ...]` become X.
    2. `Any` is the type of a fault's arguments. It becomes a mapping or a list, as `item` is.
    3. A union of a list and another type becomes the list if `item` is a list. Otherwise it becomes
       the other type.
    """
    bare = _optional_of(_bare(kind)) or _bare(kind)
    if bare is Any and item is not None and isinstance(item.value, dict | list):
        return dict[str, Any] if isinstance(item.value, dict) else tuple[Any, ...]
    if not _is_union(bare):
        return _bare(bare)
    has_list = item is not None and isinstance(item.value, list)
    # In the structs a list has the type `tuple[X, ...]`. So this is the first choice of the union
    # that is such a type, if `item` is a list, or else the first choice that is not.
    return next(
        (choice for choice in get_args(bare) if (get_origin(choice) is tuple) == has_list), bare
    )


def _lost(walked: str, rest: str, known: Iterable[str]) -> Problem:
    """Return the Problem of a path with a wrong step.

    - `walked`: the path before this step.
    - `rest`: the path from this step on.
    - `known`: the names that are possible at this step.
    """
    names = list(known)
    # If names may contain dots, it is not clear where the wrong word ends. Then the message shows
    # the whole rest of the path.
    word = rest if any("." in name for name in names) else _AFTER_WORD.split(rest, maxsplit=1)[0]
    word = word or rest  # if `rest` begins with a bracket, the word before it is empty
    close = near_miss(word, names)
    return Problem(
        file="--var",
        line=None,
        # The whole path: a dot comes between its two parts, unless `rest` begins with a bracket.
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
    """Return the longest of `names` with which the path `rest` begins; None if there is none.

    After the name, the path must end, or the next step must begin.
    """
    fitting = [name for name in names if rest == name or rest.startswith((f"{name}.", f"{name}["))]
    return max(fitting, key=len, default=None)


def _bare(expected: object) -> object:
    """Return X of `Annotated[X, ...]`, and any other type as it is."""
    return get_args(expected)[0] if get_origin(expected) is Annotated else expected


def _optional_of(bare: object) -> object:
    """Return X of the type `X | None`, in which X may be a union. Return None for other types."""
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
    """Return the docstring of each field, if the field has one. Inherited fields come first."""
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
    """Return the docstrings of a class's own fields.

    The docstring of a field is the string in the statement after the field. Python does not keep
    such strings, so they are read from the source code.
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
