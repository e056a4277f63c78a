"""Finds in node code what no lint rule sees: hash(), id(), and the order of sets.

Node code is the code of brokers, controllers and clients. It runs in virtual time (a simulated
clock), where one seed must give the same trace in every process. The order of a set depends on
hashes, and id() depends on addresses; both differ between processes.

This module does not infer types. A name counts as a set in a module that annotates it as a set or
assigns a set to it. If a module does this with an attribute, attributes with this name count as
sets in all modules. A use in which the order has no effect (len, sorted, any, another set) is
allowed.
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
"""Code for real processes, the trace's files, and checks for threads.

None of it is a part of a run in virtual time.
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
"""Functions that node code must not call, and what their result depends on."""


def node_files(root: Path) -> list[Path]:
    """Return the sources of node code below `root`, sorted."""
    return sorted(
        path
        for package in NODE_PACKAGES
        for path in (root / package).rglob("*.py")
        if not path.relative_to(root).as_posix().startswith(NOT_NODES)
    )


def unordered(sources: dict[str, str]) -> list[str]:
    """Return `file:line: problem` for each place whose outcome depends on addresses or hashes.

    sources: the text of each module, by its name.
    """
    trees = {name: ast.parse(text) for name, text in sources.items()}
    attributes = {name for tree in trees.values() for name in _set_attributes(tree)}
    return [
        f"{name}:{line}: {problem}"
        for name, tree in trees.items()
        for line, problem in sorted(_Finder(tree, attributes).find_uses())
    ]


def _set_attributes(tree: ast.Module) -> Iterator[str]:
    """Yield the attributes that a module declares as sets, in a class or on self.

    An attribute counts in all modules, because the type of an object is not known.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            for statement in node.body:
                if isinstance(statement, ast.AnnAssign) and _is_set_type(statement.annotation):
                    yield from _names(statement.target)
        target, value, annotation = _assignment(node)
        # No names or attributes are known to be sets yet: only what `value` itself says counts.
        if isinstance(target, ast.Attribute) and (
            _is_set_type(annotation) or _makes_set(value, frozenset(), frozenset())
        ):
            yield target.attr


def _assignment(node: ast.AST) -> tuple[ast.expr | None, ast.expr | None, ast.expr | None]:
    """Return target, value and annotation of an assignment with one target.

    For any other node all three are None.
    """
    match node:
        case ast.AnnAssign(target=target, value=value, annotation=annotation):
            return target, value, annotation
        case ast.Assign(targets=[target], value=value):
            return target, value, None
        case _:
            return None, None, None


def _names(target: ast.expr) -> Iterator[str]:
    """Yield the name of an assignment's target, if it is a plain name."""
    if isinstance(target, ast.Name):
        yield target.id


def _is_set_type(annotation: ast.expr | None) -> bool:
    match annotation:
        case ast.Subscript(value=ast.Name(id=name)) | ast.Name(id=name):
            return name in _SET_TYPES
        # `set[str] | None`: only the left side counts.
        case ast.BinOp(left=left, op=ast.BitOr()):
            return _is_set_type(left)
        # An annotation in quotes.
        case ast.Constant(value=str(text)):
            return text.partition("[")[0] in _SET_TYPES
        case _:
            return False


def _makes_set(node: ast.expr | None, names: Iterable[str], attributes: Iterable[str]) -> bool:
    """Return True if an expression is known to be a set.

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
        # Names count in the whole module, in whichever function they are declared.
        self._names = {name for node in ast.walk(tree) for name in self._declared(node)}
        # Two syntax nodes are never equal, so the address of a node serves as its key.
        self._orderless_arguments = {
            id(argument)
            for node in ast.walk(tree)
            if isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in _ORDERLESS
            for argument in node.args
        }
        """Arguments of functions for which their order has no effect."""

    def find_uses(self) -> Iterator[tuple[int, str]]:
        """Yield line and description of each use."""
        for node in ast.walk(self._tree):
            match node:
                case ast.For(iter=iterated) if self._is_set(iterated):
                    yield node.lineno, "iterates a set"
                # Not a SetComp: its result has no order.
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
            _is_set_type(annotation) or _makes_set(value, frozenset(), self._attributes)
        ):
            yield target.id
