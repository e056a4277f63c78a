"""Checks a document against the experiment's structs, and reports every misfit at once.

msgspec stops at the first error and knows no lines; this walks the same type annotations beside
the document, so that the structs stay the only definition of what a file may hold. Also resolves
dotted paths (`groups.readers.config.session.timeout.ms`), where Kafka's names hold dots too.
"""

import re
import types
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal, TypeGuard, Union, get_args, get_origin

import msgspec
from msgspec import Meta
from msgspec.structs import FieldInfo, fields

from chaos.experiment.problems import Problem, near_miss, one_of
from chaos.experiment.yaml_document import Item

_INDEX = re.compile(r"(?:\[([0-9]{1,6})\]|([0-9]{1,6}))(?=[.\[]|$)")
_AFTER_WORD = re.compile(r"[.\[]")


def check_shape(item: Item, expected: object, file: str, path: str = "") -> Iterator[Problem]:
    """Yield a problem for each place of `item` that the type `expected` does not allow.

    Shape: `expected` is built of structs, `dict[str, X]`, `tuple[X, ...]`, unions with None and
    what msgspec converts by itself. Nothing is yielded if and only if msgspec.convert accepts it.
    """
    bare = _bare(expected)
    inner = _optional_of(bare)
    if inner is not None:
        if item.value is not None:
            yield from check_shape(item, inner, file, path)
    elif _is_struct(bare):
        yield from _check_struct(item, bare, file, path)
    elif get_origin(bare) is dict:
        yield from _check_dict(item, get_args(bare), file, path)
    elif get_origin(bare) is tuple:
        yield from _check_tuple(item, expected, file, path)
    elif isinstance(item.value, list) and (listed := _list_of(bare)) is not None:
        yield from _check_tuple(item, listed, file, path)
    else:
        yield from _check_leaf(item, expected, file, path)


def _check_struct(
    item: Item, struct: type[msgspec.Struct], file: str, path: str
) -> Iterator[Problem]:
    if not isinstance(item.value, dict):
        yield _misfit(item, file, path, "a mapping")
        return
    known = {info.encode_name: info for info in fields(struct)}
    misspelt: set[str] = set()
    for key, child in item.value.items():
        here = f"{path}.{key}" if path else key
        if key in known:
            yield from check_shape(child, known[key].type, file, here)
            continue
        missing = [name for name in known if name not in item.value]
        close = near_miss(key, missing) or near_miss(key, known)
        misspelt.add(close or "")
        yield Problem(
            file=file,
            line=item.line_of(key),
            path=here,
            message="unknown key"
            if ")" not in key
            else "unknown key: between braces, a value with a comma needs quotes",
            expected=one_of(known, key),
            near_miss=close,
        )
    for name, info in known.items():
        if info.required and name not in item.value and name not in misspelt:
            yield Problem(
                file=file,
                line=item.line,
                path=f"{path}.{name}" if path else name,
                message="is missing",
                expected=describe(info.type),
            )


def _check_dict(item: Item, args: tuple[object, ...], file: str, path: str) -> Iterator[Problem]:
    if not isinstance(item.value, dict):
        yield _misfit(item, file, path, "a mapping")
        return
    key_type, value_type = args
    for key, child in item.value.items():
        here = f"{path}.{key}"
        yield from _check_leaf(Item(value=key, line=item.line_of(key)), key_type, file, here)
        yield from check_shape(child, value_type, file, here)


def _check_tuple(item: Item, expected: object, file: str, path: str) -> Iterator[Problem]:
    if not isinstance(item.value, list):
        yield _misfit(item, file, path, "a list")
        return
    element_type = get_args(_bare(expected))[0]
    for index, child in enumerate(item.value):
        yield from check_shape(child, element_type, file, f"{path}[{index}]")
    for meta in _metas(expected):
        if meta.min_length is not None and len(item.value) < meta.min_length:
            yield _misfit(item, file, path, f"a list of at least {meta.min_length}")


def _check_leaf(item: Item, expected: object, file: str, path: str) -> Iterator[Problem]:
    try:
        msgspec.convert(item.plain(), expected)
    except (msgspec.ValidationError, TypeError):
        close = None
        bare = _bare(expected)
        if get_origin(bare) is Literal:
            close = near_miss(str(item.value), [str(choice) for choice in get_args(bare)])
        elif _is_duration(expected):
            close = _with_unit(item.value)
        yield Problem(
            file=file,
            line=item.line,
            path=path,
            message="is not allowed",
            expected=describe(expected),
            found=show(item),
            near_miss=close,
        )


def _misfit(item: Item, file: str, path: str, expected: str) -> Problem:
    return Problem(
        file=file,
        line=item.line,
        path=path,
        message="is not allowed",
        expected=expected,
        found=show(item),
    )


def show(item: Item) -> str:
    """Return a value as an error names it."""
    match item.value:
        case dict():
            return "a mapping" if item.value else "an empty mapping"
        case list():
            return "a list" if item.value else "an empty list"
        case None:
            return "nothing"
        case bool():
            return "true" if item.value else "false"
        case str():
            return f"`{item.value}`"
        case other:
            return f"{other} ({type(other).__name__})"


def describe(expected: object) -> str:
    """Return what a type annotation allows, in words."""
    bare = _bare(expected)
    inner = _optional_of(bare)
    if inner is not None:
        return f"{describe(inner)}, or nothing"
    for meta in _metas(expected):
        if meta.description is not None:
            examples = " or ".join(f"`{example}`" for example in meta.examples or ())
            return f"{meta.description}{f', such as {examples}' if examples else ''}"
    if get_origin(bare) is Literal:
        return one_of(_yaml_word(choice) for choice in get_args(bare))
    if _is_struct(bare) or get_origin(bare) is dict:
        return "a mapping"
    if get_origin(bare) is tuple:
        return "a list"
    if _is_union(bare):
        return " or ".join(describe(choice) for choice in get_args(bare))
    words: dict[object, str] = {
        int: "a whole number",
        float: "a number",
        str: "text",
        bool: "true or false",
    }
    bounds = " and ".join(
        f"{sign} {bound}"
        for meta in _metas(expected)
        for sign, bound in ((">=", meta.ge), (">", meta.gt), ("<=", meta.le), ("<", meta.lt))
        if bound is not None
    )
    only = [meta.ge for meta in _metas(expected) if meta.ge is not None and meta.ge == meta.le]
    if only:
        return str(only[0])
    return f"{words.get(bare, str(bare))} {bounds}".rstrip()


def resolve_path(dotted: str, root: Item, expected: object) -> list[str | int] | Problem:
    """Return the steps from `root` to the place that `dotted` names, which may not exist yet.

    Shape: list indexes are written `faults[0]` or `faults.0`; at each struct and mapping the
    longest name that fits is taken, because Kafka's names hold dots. A Problem (without file) says
    where the path leaves the experiment.
    """
    steps: list[str | int] = []
    item: Item | None = root
    kind: object = expected
    rest = dotted
    while rest:
        kind = _with_children(kind, item)
        walked = dotted[: len(dotted) - len(rest)].rstrip(".")
        children = item.value if item is not None else None
        if _is_struct(kind):
            by_name: dict[str, FieldInfo] = {info.encode_name: info for info in fields(kind)}
            step = _longest_prefix(rest, by_name)
            if step is None:
                return _lost(walked, rest, by_name)
            kind = by_name[step].type
            item = children.get(step) if isinstance(children, dict) else None
        elif get_origin(kind) is dict:
            named = children if isinstance(children, dict) else {}
            step = _longest_prefix(rest, named)
            if step is None:
                if kind != dict[str, Any]:
                    return _lost(walked, rest, named)
                step = rest.partition(".")[0]
            kind = get_args(kind)[1]
            item = named.get(step)
        elif get_origin(kind) is tuple:
            listed = children if isinstance(children, list) else []
            index = _INDEX.match(rest)
            if index is None or int(index[1] or index[2]) >= len(listed):
                return _no_such_place(walked, rest, len(listed))
            place = int(index[1] or index[2])
            kind = get_args(kind)[0]
            item = listed[place]
            rest = rest[index.end() :].removeprefix(".")
            steps.append(place)
            continue
        else:
            return _lost(walked, rest, ())
        steps.append(step)
        rest = rest[len(step) :].removeprefix(".")
    return steps


def _with_children(kind: object, item: Item | None) -> object:
    """Return the type below optional and annotated ones; of several, or any, what `item` has."""
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
    names = list(known)
    word = rest if any("." in name for name in names) else _AFTER_WORD.split(rest, maxsplit=1)[0]
    word = word or rest
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
    """Return what is wrong with a path that leads beyond a list, or beside it."""
    last = f" to `{walked}[{length - 1}]`" if length > 1 else ""
    return Problem(
        file="--var",
        line=None,
        path=walked + ("" if rest.startswith("[") else ".") + rest,
        message="there is no such place in the list",
        expected=f"`{walked}[0]`{last}" if length else f"a list for `{walked}`, which has nothing",
    )


def _longest_prefix(rest: str, names: Iterable[str]) -> str | None:
    fitting = [name for name in names if rest == name or rest.startswith((f"{name}.", f"{name}["))]
    return max(fitting, key=len, default=None)


def _bare(expected: object) -> object:
    return get_args(expected)[0] if get_origin(expected) is Annotated else expected


def _metas(expected: object) -> list[Meta]:
    if get_origin(expected) is not Annotated:
        return []
    return [meta for meta in get_args(expected)[1:] if isinstance(meta, Meta)]


def _optional_of(bare: object) -> object:
    """Return X of `X | None`, X perhaps a union itself, or None for any other type."""
    if not _is_union(bare) or types.NoneType not in get_args(bare):
        return None
    others = tuple(choice for choice in get_args(bare) if choice is not types.NoneType)
    return others[0] if len(others) == 1 else Union[others]  # noqa: UP007 - made, not written


def _is_union(bare: object) -> bool:
    return get_origin(bare) in {Union, types.UnionType}


def _list_of(bare: object) -> object:
    """Return the `tuple[X, ...]` of `Y | tuple[X, ...]`, or None for any other type."""
    choices = get_args(bare) if _is_union(bare) else ()
    return next((choice for choice in choices if get_origin(choice) is tuple), None)


def _is_struct(bare: object) -> TypeGuard[type[msgspec.Struct]]:
    return isinstance(bare, type) and issubclass(bare, msgspec.Struct)


def _is_duration(expected: object) -> bool:
    return any("5s" in (meta.examples or ()) for meta in _metas(expected))


def _with_unit(value: object) -> str | None:
    """Return the duration that a bare number was probably meant to be, in seconds."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        return None
    if isinstance(value, int) or value.is_integer():
        return f"{int(value)}s"
    ms = value * 1_000
    return f"{int(ms)}ms" if ms.is_integer() else None


def _yaml_word(choice: object) -> str:
    return str(choice).lower() if isinstance(choice, bool) else str(choice)
