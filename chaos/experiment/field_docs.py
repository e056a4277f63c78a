"""What the fields of a struct mean: the strings that stand under them in its source.

They are the one place where a key of the experiment file is explained; the JSON Schema and the
reference pages are made from them.
"""

import ast
import inspect
import textwrap
from functools import cache
from itertools import pairwise

import msgspec


@cache
def field_docs(struct: type[msgspec.Struct]) -> dict[str, str]:
    """Return the meaning of each documented field by the field's name, inherited ones first."""
    docs: dict[str, str] = {}
    for each in reversed(struct.__mro__):
        if each is not msgspec.Struct and issubclass(each, msgspec.Struct):
            docs.update(_own_docs(each))
    return docs


def summary_of(struct: type) -> str:
    """Return the first paragraph of a class's docstring as one line."""
    first, _, _ = (inspect.getdoc(struct) or "").partition("\n\n")
    return " ".join(first.split())


def _own_docs(struct: type) -> dict[str, str]:
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
