"""Random experiments for property tests: anything that the types allow, sensible or not.

An experiment is a msgspec Struct with many nested Structs. This module builds a Hypothesis strategy
for experiments from the types of the fields. So a new field needs no change here. A type may give
bounds to its numbers, texts and tuples (msgspec's `Meta`), which the strategy respects.
"""

import types
from functools import partial
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec
from hypothesis import strategies as st
from msgspec import Meta

from chaos.experiment.structs import Experiment

MAX_SIZE = 3
"""The largest size of lists and dicts. Larger lists and dicts would only make the tests slow."""
_YAML = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(max_size=12),
    lambda inner: (
        st.lists(inner, max_size=MAX_SIZE)
        | st.dictionaries(st.text(max_size=6), inner, max_size=MAX_SIZE)
    ),
    max_leaves=4,
)
"""A strategy for any value that a YAML file may contain, as the arguments of a fault may be."""


def experiments() -> st.SearchStrategy[Experiment]:
    """Return a strategy for experiments. Fields with a default often keep their default."""
    return values_of(Experiment)


def values_of(kind: object, metas: tuple[Meta, ...] = ()) -> st.SearchStrategy[Any]:
    """Return a strategy for the values of a field's type.

    `metas` has the bounds of the type: `Annotated[int, Meta(ge=1)]` -> `(Meta(ge=1),)`.
    """
    origin, args = get_origin(kind), get_args(kind)
    strategy: st.SearchStrategy[Any] | None = None
    if origin is Annotated:
        strategy = values_of(args[0], tuple(meta for meta in args[1:] if isinstance(meta, Meta)))
    elif origin in {Union, types.UnionType}:
        strategy = st.one_of([values_of(member) for member in args])
    elif origin is Literal:
        strategy = st.sampled_from(args)
    elif origin is tuple:
        min_size = max([meta.min_length or 0 for meta in metas], default=0)
        max_size = min([meta.max_length or MAX_SIZE for meta in metas], default=MAX_SIZE)
        strategy = st.lists(values_of(args[0]), min_size=min_size, max_size=max_size).map(tuple)
    elif origin is dict:
        strategy = st.dictionaries(values_of(args[0]), values_of(args[1]), max_size=MAX_SIZE)
    elif isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        strategy = _structs(kind)
    return strategy if strategy is not None else _leaves(kind, metas)


def _structs(struct: type[msgspec.Struct]) -> st.SearchStrategy[Any]:
    """Return a strategy for the values of a Struct."""
    # Hypothesis leaves optional fields out of some examples. These fields keep their defaults.
    strategies = {info.name: values_of(info.type) for info in msgspec.structs.fields(struct)}
    required = [info.name for info in msgspec.structs.fields(struct) if info.required]
    return st.fixed_dictionaries(
        {name: strategies[name] for name in required},
        optional={name: strategies[name] for name in strategies if name not in required},
    ).map(partial(_make_struct, struct))


def _make_struct(struct: type[msgspec.Struct], fields: dict[str, Any]) -> msgspec.Struct:
    """Return a Struct with the fields that a strategy has drawn."""
    return struct(**fields)


def _leaves(kind: object, metas: tuple[Meta, ...]) -> st.SearchStrategy[Any]:
    """Return a strategy for a number, a text, a bool or None.

    For any other type, return a strategy for the values of a YAML file.
    """

    def bound(name: str) -> Any:  # noqa: ANN401 - a number, a pattern or None
        """Return the type's bound with this name, such as "ge" or "pattern", or None."""
        for meta in metas:
            if getattr(meta, name) is not None:
                return getattr(meta, name)
        return None

    if kind is bool:
        return st.booleans()
    if kind is int:
        low, high = bound("ge"), bound("le")
        return st.integers(-(2**60) if low is None else low, 2**60 if high is None else high)
    if kind is float:
        above = bound("gt")
        return st.floats(
            bound("ge") if above is None else above,
            bound("le"),
            exclude_min=above is not None,
            allow_nan=False,
        )
    if kind is str:
        pattern = bound("pattern")
        if pattern is None:
            return st.text(max_size=40) | _SENTENCES
        shortest, longest = bound("min_length") or 0, bound("max_length") or 100
        return st.from_regex(pattern).filter(lambda text: shortest <= len(text) <= longest)
    if kind is types.NoneType:
        return st.none()
    return _YAML


_SENTENCES = st.lists(
    st.sampled_from(["is", "a", "word:", "# no", "-", "cluster"]), max_size=60
).map(" ".join)
"""Texts with words that YAML could misread. Some texts are so long that YAML breaks their lines."""
