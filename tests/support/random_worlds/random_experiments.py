"""Any experiment that the structs allow, sensible or not, for property tests.

A strategy is what Hypothesis draws random examples from. An experiment is a msgspec Struct, and its
strategy follows the types of its fields: nested structs, unions, and the bounds of numbers, texts
and tuples (`Meta`).
"""

import types
from functools import partial
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec
from hypothesis import strategies as st
from msgspec import Meta

from chaos.experiment.structs import Experiment

MAX_SIZE = 3
"""Largest size of lists and dictionaries; larger ones would only make the tests slow."""
_YAML = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(max_size=12),
    lambda inner: (
        st.lists(inner, max_size=MAX_SIZE)
        | st.dictionaries(st.text(max_size=6), inner, max_size=MAX_SIZE)
    ),
    max_leaves=4,
)
"""Possible values of a fault's arguments."""


def experiments() -> st.SearchStrategy[Experiment]:
    """Return a strategy for experiments. A field with a default often keeps the default."""
    return values_of(Experiment)


def values_of(kind: object, metas: tuple[Meta, ...] = ()) -> st.SearchStrategy[Any]:
    """Return a strategy for the values of a field's type; `metas` has the type's bounds."""
    origin, args = get_origin(kind), get_args(kind)
    strategy: st.SearchStrategy[Any] | None = None
    if origin is Annotated:
        strategy = values_of(args[0], tuple(meta for meta in args[1:] if isinstance(meta, Meta)))
    elif origin in {Union, types.UnionType}:
        strategy = st.one_of([values_of(member) for member in args])
    elif origin is Literal:
        strategy = st.sampled_from(args)
    elif origin is tuple:
        least = max([meta.min_length or 0 for meta in metas], default=0)
        most = min([meta.max_length or MAX_SIZE for meta in metas], default=MAX_SIZE)
        strategy = st.lists(values_of(args[0]), min_size=least, max_size=most).map(tuple)
    elif origin is dict:
        strategy = st.dictionaries(values_of(args[0]), values_of(args[1]), max_size=MAX_SIZE)
    elif isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        strategy = _structs(kind)
    return strategy if strategy is not None else _leaves(kind, metas)


def _structs(struct: type[msgspec.Struct]) -> st.SearchStrategy[Any]:
    """Return a strategy for the values of a Struct."""
    # Optional fields are left out of some examples: they keep the default.
    strategies = {info.name: values_of(info.type) for info in msgspec.structs.fields(struct)}
    required = [info.name for info in msgspec.structs.fields(struct) if info.required]
    return st.fixed_dictionaries(
        {name: strategies[name] for name in required},
        optional={name: strategies[name] for name in strategies if name not in required},
    ).map(partial(_make_struct, struct))


def _make_struct(struct: type[msgspec.Struct], fields: dict[str, Any]) -> msgspec.Struct:
    """Return a Struct with these fields. `map` of a strategy calls it with the drawn fields."""
    return struct(**fields)


def _leaves(kind: object, metas: tuple[Meta, ...]) -> st.SearchStrategy[Any]:
    """Return a strategy for a number, text, bool or None; for any other type, YAML values."""

    def bound(name: str) -> Any:  # noqa: ANN401 - a number or None
        # The first of the type's bounds that has this name.
        return next(
            (getattr(meta, name) for meta in metas if getattr(meta, name) is not None), None
        )

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
        least, most = bound("min_length") or 0, bound("max_length") or 100
        return st.from_regex(pattern).filter(lambda text: least <= len(text) <= most)
    if kind is types.NoneType:
        return st.none()
    return _YAML


_SENTENCES = st.lists(
    st.sampled_from(["is", "a", "word:", "# no", "-", "cluster"]), max_size=60
).map(" ".join)
"""Texts of words that mean something in YAML; some are so long that YAML folds them."""
