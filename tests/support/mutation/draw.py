"""Draw random mutants of a package: copies with one small change, which the tests should notice.

A change replaces `<` by `<=`, for example, or removes a call. The syntax tree of a file shows where
changes are possible. The change itself is made in the text of the file. Tests need not notice
changes of some code, so this code is never changed: texts for people, docstrings, raised errors,
and checks of invariants.
"""

import ast
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from protocol.errors import ErrorCode

LEFT_ALONE = ("invariants.py", "__init__.py")
"""Names of files without mutants: checks of invariants, and files with little but a docstring."""
# For each kind of operator: how the source writes it, and the operator that replaces it.
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
# A function of Python -> the function that replaces it.
_FUNCTIONS = {"min": "max", "max": "min", "any": "all", "all": "any"}


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeMutant:
    """A mutant: a file of the package with one change."""

    # The path of the file, relative to the package, such as "apis/join_group.py".
    file: str
    # The text of the whole changed file.
    source: str
    # The number of the changed line. The first line of the file has the number 1.
    line: int
    # The function or class around the change, such as "Server._answer"; "" at the top level.
    scope: str
    # The changed line before and after the change, without indentation.
    before: str
    after: str

    @property
    def name(self) -> str:
        """Return the file and the change, as a line for people."""
        return f"{self.file}: `{self.before}` -> `{self.after}`"


@dataclass(frozen=True, slots=True)
class _Edit:
    """A possible change of a file: `text` replaces its bytes from `start` to `end`."""

    start: int
    end: int
    text: str
    scope: str = ""


def sample(package: Path, count: int, seed: int) -> list[CodeMutant]:
    """Draw `count` mutants of a package, or all mutants if there are fewer.

    The same seed draws the same mutants. They are returned in the order of their places in the
    files.
    """
    possible = [
        (path, edit)
        for path in sorted(package.glob("**/*.py"))
        if path.name not in LEFT_ALONE
        for edit in _edits(path.read_bytes())
    ]
    chosen = random.Random(seed).sample(range(len(possible)), min(count, len(possible)))
    return [_with_edit(package, *possible[index]) for index in sorted(chosen)]


def every_mutant(package: Path, path: Path) -> Iterator[CodeMutant]:
    """Yield all mutants of one file, in the order of their places in the file."""
    for edit in _edits(path.read_bytes()):
        yield _with_edit(package, path, edit)


def _with_edit(package: Path, path: Path, edit: _Edit) -> CodeMutant:
    """Return the mutant with this edit of the file `path`.

    An edit may touch several lines, for example if it removes a long call. Then `before` and
    `after` are these lines, joined by spaces.
    """
    source = path.read_bytes()
    changed = source[: edit.start] + edit.text.encode() + source[edit.end :]
    # The index of a line, from 0, is the number of newlines before it.
    first_line = source.count(b"\n", 0, edit.start)
    last_line_before = source.count(b"\n", 0, edit.end)
    last_line_after = first_line + edit.text.count("\n")
    return CodeMutant(
        file=path.relative_to(package).as_posix(),
        source=changed.decode(),
        line=first_line + 1,
        scope=edit.scope,
        before=_joined_lines(source, first_line, last_line_before),
        after=_joined_lines(changed, first_line, last_line_after),
    )


def _joined_lines(source: bytes, first: int, last: int) -> str:
    """Return the lines from index `first` to `last`, without indentation, as one line."""
    lines = source.split(b"\n")[first : last + 1]
    return b" ".join(line.strip() for line in lines).decode()


def _edits(source: bytes) -> Iterator[_Edit]:
    """Yield every possible edit of a file, in the order of the file."""
    # An edit has positions in the file, but `ast` gives lines and columns. So find the position at
    # which each line begins. Positions are counted in bytes, because `ast` counts columns in bytes.
    line_starts = [0]
    for line in source.splitlines(keepends=True):
        line_starts.append(line_starts[-1] + len(line))
    for node, scope in _changeable_nodes(ast.parse(source), ""):
        for edit in _edits_of_node(node, source, line_starts):
            yield replace(edit, scope=scope)


def _changeable_nodes(node: ast.AST, scope: str) -> Iterator[tuple[ast.AST, str]]:
    """Yield `node` and the nodes below it, but only nodes whose change a test should notice.

    The nodes come in the order of the file. With each node comes its scope: the name of the
    function or class around the node.
    """
    # Raised errors and f-strings are mostly texts for people, which tests need not check. A changed
    # import fails in every test, so it would say nothing about the tests.
    if isinstance(node, (ast.Raise, ast.JoinedStr, ast.Import, ast.ImportFrom)):
        return
    # Calls of TraceEvent make rows of the trace, which are texts for people as well.
    if isinstance(node, ast.Call) and _called_name(node) == "TraceEvent":
        return
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        scope = f"{scope}.{node.name}" if scope else node.name
    yield node, scope
    for name, value in ast.iter_fields(node):
        # Annotations have no effect at run time. A changed decorator would mostly fail at once.
        if name in {"annotation", "returns", "decorator_list"}:
            continue
        children = value if isinstance(value, list) else [value]
        for child in children:
            if isinstance(child, ast.AST):
                yield from _changeable_nodes(child, scope)


def _edits_of_node(node: ast.AST, source: bytes, line_starts: list[int]) -> Iterator[_Edit]:
    """Yield the possible edits of one node. The nodes below it have edits of their own.

    `line_starts` has the position in `source` at which each line begins.
    """

    def span(part: ast.expr | ast.stmt | ast.pattern) -> tuple[int, int]:
        """Return the positions in `source` at which the part begins and ends."""
        assert part.end_lineno is not None
        assert part.end_col_offset is not None
        begin = line_starts[part.lineno - 1] + part.col_offset
        return begin, line_starts[part.end_lineno - 1] + part.end_col_offset

    def between(left: ast.expr, right: ast.expr, old: str, new: str) -> _Edit:
        """Return the edit that replaces the operator `old` between two operands."""
        begin, end = span(left)[1], span(right)[0]
        position = source.index(old.encode(), begin, end)
        return _Edit(position, position + len(old), new)

    match node:
        case ast.Compare(left=left, ops=ops, comparators=rights):
            # `a < b < c` has two operators. The first operator is between a and b, and the second
            # operator is between b and c. So `lefts` is (a, b), and `rights` is (b, c).
            lefts = [left, *rights[:-1]]
            for a, op, b in zip(lefts, ops, rights, strict=True):
                yield between(a, b, *_COMPARISONS[type(op)])
        case ast.BoolOp(op=op, values=values):
            # Of `a and b and c` only the first operator is replaced.
            if isinstance(op, ast.And):
                yield between(values[0], values[1], "and", "or")
            else:
                yield between(values[0], values[1], "or", "and")
        case ast.UnaryOp(op=ast.Not()):
            # The `not` is removed.
            begin = span(node)[0]
            yield _Edit(begin, begin + len("not"), "")
        case ast.BinOp(op=op, left=a, right=b) if type(op) in _OPERATORS:
            yield between(a, b, *_OPERATORS[type(op)])
        case ast.Constant(value=bool(value)):
            yield _Edit(*span(node), str(not value))
        case ast.Constant(value=int(value)):
            yield _Edit(*span(node), str(value + 1))
        # `ErrorCode` has the error codes of Kafka, which are in the answers to requests. A mutant
        # answers without an error where the code has one, and the other way round.
        case ast.Attribute(value=ast.Name(id="ErrorCode"), attr=name) if (
            name in ErrorCode.__members__
        ):
            other = "NONE" if name != "NONE" else "UNKNOWN_SERVER_ERROR"
            yield _Edit(*span(node), f"ErrorCode.{other}")
        case ast.Name(id=name) if name in _FUNCTIONS:
            yield _Edit(*span(node), _FUNCTIONS[name])
        # A call whose result is not used is replaced by `pass`.
        case ast.Expr(value=ast.Call()):
            yield _Edit(*span(node), "pass")
        # An assignment to a field is replaced by `pass`, too.
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]) | ast.AugAssign():
            yield _Edit(*span(node), "pass")
        # The condition of an `if` is negated as a whole.
        case ast.If(test=condition) | ast.IfExp(test=condition):
            # The cases above already change the operator of a comparison, and remove a `not`.
            is_changed_above = isinstance(condition, (ast.Compare, ast.UnaryOp))
            if not is_changed_above:
                begin, end = span(condition)
                yield _Edit(begin, end, f"not ({source[begin:end].decode()})")
        case _:
            pass


def _called_name(node: ast.Call) -> str:
    """Return the name of the called function: `f(x)` -> `f`.

    Return "" if the function is not called by its name alone: `a.f(x)` -> "".
    """
    return node.func.id if isinstance(node.func, ast.Name) else ""
