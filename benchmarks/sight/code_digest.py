"""A digest of the code that does not change with docstrings, comments and line numbers.

The seeds of a record are played in several sittings. In between, people often change docstrings and
comments. This changes no run, so the seeds that were played before must stay valid.
"""

import ast
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

from chaos.results.replay_stamp import NODE_PACKAGES

_DIGITS = 16


def running_code_digest(root: Path, packages: Iterable[str] = NODE_PACKAGES) -> str:
    """Return the digest of the packages in the folder `root`.

    The path of each module is part of the digest, so the digest changes if a module is moved.
    """
    digest = sha256()
    for package in packages:
        for path in sorted((root / package).rglob("*.py")):
            tree = ast.parse(path.read_bytes())
            remove_docstrings(tree)
            digest.update(f"{path.relative_to(root).as_posix()}\n{ast.dump(tree)}\n".encode())
    return digest.hexdigest()[:_DIGITS]


def remove_docstrings(tree: ast.AST) -> None:
    """Remove all docstrings, also those after a field: every statement that is only a text."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            kept = [statement for statement in body if not _is_text(statement)]
            body[:] = kept or [ast.Pass()]  # a body must not be empty


def _is_text(statement: ast.stmt) -> bool:
    """Return whether a statement is only a text."""
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )
