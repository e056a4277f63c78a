"""Find uses of hash(), of id(), and of the order of sets in the code of nodes.

In virtual time (with a simulated clock) the same seed must give the same run in every process. So
the code of nodes (brokers, controllers and clients) must not depend on anything that differs
between processes. Two things differ: the order of a set, because it depends on hashes, and id(),
because it is an address. No lint rule finds such code, so a test uses this module.

The module knows types only as far as the source shows them. If a module annotates a name as a set
or assigns a set to it, the name counts as a set in this module. If any module declares an attribute
as a set in one of these ways, the attribute counts as a set in all modules. A use of a set is
allowed if the order of the set has no effect. So len(), sorted() and any() may take a set, and a
set may be made from another set.
"""

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

NODE_PACKAGES = ("protocol", "partition_log", "coordinator", "cluster")
NOT_NODES = (
    "cluster/ray/",
    "cluster/trace/",
    "cluster/virtual/tripwires",
)
"""Beginnings of paths with code that is not node code, although it is in NODE_PACKAGES.

This code is about real processes, about the files of traces, and about checks for threads.
"""
_SET_TYPES = frozenset({"set", "frozenset", "Set", "AbstractSet", "MutableSet"})
_ORDERLESS = frozenset({"sorted", "any", "all", "sum", "min", "max", "len", "set", "frozenset"})
"""Functions whose result does not depend on the order of their argument."""
_ORDERED = frozenset(
    {"list", "tuple", "iter", "enumerate", "zip", "map", "filter", "reversed", "deque", "chain"}
)
"""Functions whose result has the order of their argument."""
_ORDERED_METHODS = frozenset({"join", "fromkeys", "extend"})
"""Methods whose result has the order of their argument."""
_SET_METHODS = frozenset({"union", "intersection", "difference", "symmetric_difference"})
"""Methods of a set that return a set."""
_FORBIDDEN = {"hash": "an address, or another number in each process", "id": "an address"}
"""Function that node code must not call -> a description of its result, for a message."""


def node_files(root: Path) -> list[Path]:
    """Return the source files of node code below `root`, sorted."""
    return sorted(
        path
        for package in NODE_PACKAGES
        for path in (root / package).rglob("*.py")
        if not path.relative_to(root).as_posix().startswith(NOT_NODES)
    )


def unordered(sources: dict[str, str]) -> list[str]:
    """Return a line such as `cluster/lives.py:12: iterates a set` for each use that is not allowed.

    `sources` has the text of each module by its name.
    """
    trees = {name: ast.parse(text) for name, text in sources.items()}
    attributes = {name for tree in trees.values() for name in _set_attributes(tree)}
    return [
        f"{name}:{line}: {problem}"
        for name, tree in trees.items()
        for line, problem in sorted(_Finder(tree, attributes).find_uses())
    ]


def _set_attributes(tree: ast.Module) -> Iterator[str]:
    """Yield the names of the attributes that a module declares as sets.

    A module may do so in the body of a class (`names: set[str]`) or in a method
    (`self.names = set()`).
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            for statement in node.body:
                if isinstance(statement, ast.AnnAssign) and _is_set_type(statement.annotation):
                    yield from _names(statement.target)
        target, value, annotation = _assignment(node)
        # No names are known to be sets yet. So only the value itself can show that it is a set.
        if isinstance(target, ast.Attribute) and (
            _is_set_type(annotation) or _makes_set(value, names=frozenset(), attributes=frozenset())
        ):
            yield target.attr


def _assignment(node: ast.AST) -> tuple[ast.expr | None, ast.expr | None, ast.expr | None]:
    """Return target, value and annotation of an assignment with one target.

    For any other syntax node, all three results are None.
    """
    match node:
        case ast.AnnAssign(target=target, value=value, annotation=annotation):
            return target, value, annotation
        case ast.Assign(targets=[target], value=value):
            return target, value, None
        case _:
            return None, None, None


def _names(target: ast.expr) -> Iterator[str]:
    """Yield the name that is assigned to, if the target is a plain name."""
    if isinstance(target, ast.Name):
        yield target.id


def _is_set_type(annotation: ast.expr | None) -> bool:
    """Return True if an annotation such as `set[str]` or `AbstractSet[int] | None` means a set."""
    match annotation:
        case ast.Subscript(value=ast.Name(id=name)) | ast.Name(id=name):
            return name in _SET_TYPES
        # In `set[str] | None`, the left side counts.
        case ast.BinOp(left=left, op=ast.BitOr()):
            return _is_set_type(left)
        # The annotation is in quotes: "set[str]".
        case ast.Constant(value=str(text)):
            return text.partition("[")[0] in _SET_TYPES
        case _:
            return False


def _makes_set(node: ast.expr | None, names: Iterable[str], attributes: Iterable[str]) -> bool:
    """Return True if the value of an expression is certainly a set.

    `names` and `attributes` are the names and attributes that are known to be sets.
    """
    match node:
        case ast.Set() | ast.SetComp():
            return True
        case ast.Call(func=ast.Name(id="set" | "frozenset")):
            return True
        case ast.Call(func=ast.Attribute(value=value, attr=method)) if method in _SET_METHODS:
            return _makes_set(value, names, attributes)
        case ast.BinOp(left=left, op=ast.BitOr() | ast.BitAnd() | ast.Sub() | ast.BitXor()):
            return _makes_set(left, names, attributes)
        case ast.IfExp(body=body, orelse=orelse):
            return _makes_set(body, names, attributes) or _makes_set(orelse, names, attributes)
        case ast.Name(id=name):
            return name in names
        case ast.Attribute(attr=name):
            return name in attributes
        case _:
            return False


class _Finder:
    """Finds in one module the uses of sets whose order has an effect, and forbidden calls."""

    def __init__(self, tree: ast.Module, attributes: set[str]) -> None:
        self._tree = tree
        self._attributes = attributes
        # A name that is declared in one function counts in the whole module.
        self._names = {name for node in ast.walk(tree) for name in self._declared(node)}
        # The arguments of functions such as sorted(), whose order has no effect. They are syntax
        # nodes, and are kept by their addresses, id(node).
        self._orderless_arguments = {
            id(argument)
            for node in ast.walk(tree)
            if isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in _ORDERLESS
            for argument in node.args
        }

    def find_uses(self) -> Iterator[tuple[int, str]]:
        """Yield the line and a description of each use or call that is not allowed."""
        for node in ast.walk(self._tree):
            match node:
                case ast.For(iter=iterated) if self._is_set(iterated):
                    yield node.lineno, "iterates a set"
                # A SetComp is left out, because its result is a set again.
                case ast.ListComp() | ast.DictComp():
                    yield from self._comprehension(node.lineno, node.generators)
                case ast.GeneratorExp() if id(node) not in self._orderless_arguments:
                    yield from self._comprehension(node.lineno, node.generators)
                case ast.Starred(value=value) if self._is_set(value):
                    yield node.lineno, "unpacks a set"
                case ast.YieldFrom(value=value) if self._is_set(value):
                    yield node.lineno, "yields from a set"
                case ast.Call(func=ast.Name(id=name), args=args):
                    if name in _FORBIDDEN:
                        yield node.lineno, f"calls {name}(): {_FORBIDDEN[name]}"
                    elif name in _ORDERED and any(map(self._is_set, args)):
                        yield node.lineno, f"gives a set to {name}()"
                case ast.Call(func=ast.Attribute(value=value, attr=method), args=args):
                    if method == "pop" and not args and self._is_set(value):
                        yield node.lineno, "pops from a set"
                    elif method in _ORDERED_METHODS and any(map(self._is_set, args)):
                        yield node.lineno, f"gives a set to {method}()"
                case _:
                    pass

    def _comprehension(
        self, line: int, generators: list[ast.comprehension]
    ) -> Iterator[tuple[int, str]]:
        """Yield a use if a comprehension iterates over a set."""
        if any(self._is_set(generator.iter) for generator in generators):
            yield line, "iterates a set"

    def _is_set(self, node: ast.expr) -> bool:
        return _makes_set(node, self._names, self._attributes)

    def _declared(self, node: ast.AST) -> Iterator[str]:
        """Yield the name that a parameter or an assignment declares as a set."""
        if isinstance(node, ast.arg) and _is_set_type(node.annotation):
            yield node.arg
        target, value, annotation = _assignment(node)
        if isinstance(target, ast.Name) and (
            _is_set_type(annotation)
            or _makes_set(value, names=frozenset(), attributes=self._attributes)
        ):
            yield target.id
