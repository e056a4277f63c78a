"""Draws mutants of a package: lists every possible change, then draws a sample by a seed.

A mutant is the package with one small change, such as `<` to `<=`, which tests should notice. The
syntax tree tells where a change is possible; the change itself is made in the text of the file.
Texts for people, docstrings, raised errors and checks of invariants are not changed, because tests
need not notice changes there.
"""

import ast
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from protocol.errors import ErrorCode

LEFT_ALONE = ("invariants.py", "__init__.py")
"""Files that are not changed: checks of invariants, and files that have almost only a docstring."""
_COMPARISONS: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}
_OPERATORS: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "//"),
    ast.FloorDiv: ("//", "*"),
}
_FUNCTIONS = {"min": "max", "max": "min", "any": "all", "all": "any"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """A file with one change, and the change as a line for people."""

    file: str
    source: str
    line: int
    scope: str  # qualified name of the function or class around the change, "" for the module
    before: str
    after: str

    @property
    def name(self) -> str:
        """Return the place of the change, and the change."""
        return f"{self.file}: `{self.before}` -> `{self.after}`"


@dataclass(frozen=True, slots=True)
class _Edit:
    """A text that replaces the bytes of a file from `start` to `end`."""

    start: int
    end: int
    text: str
    scope: str = ""


def sample(package: Path, count: int, seed: int) -> list[Drawn]:
    """Return `count` mutants of a package, or all if there are fewer, ordered by their places."""
    places = [
        (path, edit)
        for path in sorted(package.glob("**/*.py"))
        if path.name not in LEFT_ALONE
        for edit in _edits(path.read_bytes())
    ]
    chosen = random.Random(seed).sample(range(len(places)), min(count, len(places)))
    return [_drawn(package, *places[index]) for index in sorted(chosen)]


def every_mutant(package: Path, path: Path) -> Iterator[Drawn]:
    """Yield all mutants of one file, in the order of their places."""
    for edit in _edits(path.read_bytes()):
        yield _drawn(package, path, edit)


def _drawn(package: Path, path: Path, edit: _Edit) -> Drawn:
    """Return the mutant of one edit; `before` and `after` are all lines that the edit touches."""
    source = path.read_bytes()
    changed = source[: edit.start] + edit.text.encode() + source[edit.end :]
    # Here lines count from 0, so the number of a line is the number of newlines before it.
    line = source.count(b"\n", 0, edit.start)
    last_before = source.count(b"\n", 0, edit.end)
    before = b" ".join(text.strip() for text in source.split(b"\n")[line : last_before + 1])
    last_after = line + edit.text.count("\n")
    after = b" ".join(text.strip() for text in changed.split(b"\n")[line : last_after + 1])
    return Drawn(
        file=path.relative_to(package).as_posix(),
        source=changed.decode(),
        line=line + 1,
        scope=edit.scope,
        before=before.decode(),
        after=after.decode(),
    )


def _edits(source: bytes) -> Iterator[_Edit]:
    """Yield every edit of a file, in the order of its places. Offsets count bytes, as in `ast`."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for node, scope in _visible(ast.parse(source), ""):
        for edit in _changes(node, source, starts):
            yield replace(edit, scope=scope)


def _visible(node: ast.AST, scope: str) -> Iterator[tuple[ast.AST, str]]:
    """Yield the syntax nodes whose change a test could notice, with their scope, in file order."""
    # Texts of errors and formatted texts are for people. A changed import fails in any case, so
    # that the mutant would show nothing.
    if isinstance(node, (ast.Raise, ast.JoinedStr, ast.Import, ast.ImportFrom)):
        return
    # Rows of the trace are texts for people.
    if isinstance(node, ast.Call) and _called(node) == "TraceEvent":
        return
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        scope = f"{scope}.{node.name}" if scope else node.name
    yield node, scope
    for name, value in ast.iter_fields(node):
        # Types have no effect at run time. Decorators are not changed either.
        if name in {"annotation", "returns", "decorator_list"}:
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _visible(child, scope)


def _changes(node: ast.AST, source: bytes, starts: list[int]) -> Iterator[_Edit]:
    """Yield the changes of one syntax node; `starts` are the offsets at which lines begin."""

    def span(part: ast.expr | ast.stmt | ast.pattern) -> tuple[int, int]:
        assert part.end_lineno is not None
        assert part.end_col_offset is not None
        start = starts[part.lineno - 1] + part.col_offset
        return start, starts[part.end_lineno - 1] + part.end_col_offset

    def between(left: ast.expr, right: ast.expr, old: str, new: str) -> _Edit:
        """Return the edit that replaces the operator `old` between two operands."""
        begin, end = span(left)[1], span(right)[0]
        at = source.index(old.encode(), begin, end)
        return _Edit(at, at + len(old), new)

    match node:
        case ast.Compare(left=left, ops=ops, comparators=rights):
            lefts = [left, *rights[:-1]]
            for a, op, b in zip(lefts, ops, rights, strict=True):
                yield between(a, b, *_COMPARISONS[type(op)])
        case ast.BoolOp(op=op, values=values):
            old, new = ("and", "or") if isinstance(op, ast.And) else ("or", "and")
            # Of `a and b and c` only the first operator is replaced.
            yield between(values[0], values[1], old, new)
        case ast.UnaryOp(op=ast.Not()):
            # The operator is removed.
            begin = span(node)[0]
            yield _Edit(begin, begin + len("not"), "")
        case ast.BinOp(op=op, left=a, right=b) if type(op) in _OPERATORS:
            yield between(a, b, *_OPERATORS[type(op)])
        case ast.Constant(value=bool(value)):
            yield _Edit(*span(node), str(not value))
        case ast.Constant(value=int(value)):
            yield _Edit(*span(node), str(value + 1))
        case ast.Attribute(value=ast.Name(id="ErrorCode"), attr=name) if (
            name in ErrorCode.__members__
        ):
            other = "NONE" if name != "NONE" else "UNKNOWN_SERVER_ERROR"
            yield _Edit(*span(node), f"ErrorCode.{other}")
        case ast.Name(id=name) if name in _FUNCTIONS:
            yield _Edit(*span(node), _FUNCTIONS[name])
        # In this case and the next an effect is removed: a call whose result is not used, or an
        # assignment to a field.
        case ast.Expr(value=ast.Call()):
            yield _Edit(*span(node), "pass")
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]) | ast.AugAssign():
            yield _Edit(*span(node), "pass")
        # A condition is negated as a whole. A comparison and a `not` are left out: the cases above
        # change their operator.
        case ast.If(test=test) | ast.IfExp(test=test) if not isinstance(
            test, (ast.Compare, ast.UnaryOp)
        ):
            begin, end = span(test)
            yield _Edit(begin, end, f"not ({source[begin:end].decode()})")
        case _:
            pass


def _called(node: ast.Call) -> str:
    """Return the name of the called function; "" if it is an attribute or an expression."""
    return node.func.id if isinstance(node.func, ast.Name) else ""
