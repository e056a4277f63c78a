"""Rewrites a source so that each of several mutants is a choice by the switch of `probes`.

A mutated expression becomes `mutated if on(n) else sound`, a mutated statement an `if`. Where the
expression has no effects, the choice stands around the largest such expression, and compares both
values while a sound run is recorded. Data flow: source, mutated sources -> source with choices.
"""

import ast
import copy
from collections.abc import Sequence
from dataclasses import dataclass

PROBES = "benchmarks.sight.probes"
_NAME = "_sight"
_Step = tuple[str, int | None]  # a field of a node, and the index where it is a list
_Path = tuple[_Step, ...]
_WITHOUT_EFFECTS = (
    ast.Compare, ast.BoolOp, ast.UnaryOp, ast.BinOp, ast.Constant, ast.Name, ast.Attribute,
    ast.Subscript, ast.IfExp, ast.Tuple, ast.operator, ast.unaryop, ast.boolop, ast.cmpop,
    ast.expr_context, ast.Load,
)  # fmt: skip
_FUNCTIONS_WITHOUT_EFFECTS = frozenset({"len", "isinstance", "min", "max", "abs", "bool", "int"})
_BLOCKS = (ast.FunctionDef, ast.AsyncFunctionDef)


class NotSwitchable(Exception):
    """A change that cannot become a choice; says why."""


@dataclass(frozen=True, slots=True)
class _Change:
    """Where a mutant differs from the source, and what stands there."""

    number: int
    path: _Path
    mutated: ast.AST


def changed_text(source: str, mutated: str) -> tuple[str, str]:
    """Return the smallest expression or statement that differs, as it was and as it is."""
    sound_tree, mutated_tree = ast.parse(source), ast.parse(mutated)
    path = _choosable(sound_tree, mutated_tree, _difference(sound_tree, mutated_tree))
    return _text(_node_at(sound_tree, path)), _text(_node_at(mutated_tree, path))


def switched_source(source: str, mutants: Sequence[tuple[int, str]]) -> str:
    """Return `source` with all `mutants` in it: pairs of a number and the source with the change.

    Raises: NotSwitchable if a change is at a place that cannot be a choice.
    """
    tree = ast.parse(source)
    changes = []
    for number, mutated_source in mutants:
        mutated = ast.parse(mutated_source)
        path = _choosable(tree, mutated, _difference(tree, mutated))
        path = _widened(tree, mutated, path)
        changes.append(_Change(number, path, _node_at(mutated, path)))
    # The inner ones first: what is put around them keeps the paths of the outer ones.
    for change in sorted(changes, key=lambda each: -len(each.path)):
        _put(tree, change)
    _import_probes(tree)
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def _difference(sound: ast.AST, mutated: ast.AST) -> _Path:
    """Return the path to the smallest node within which two trees differ."""
    path: list[_Step] = []
    while True:
        steps = _differing_steps(sound, mutated)
        if steps is None or len(steps) != 1:
            return tuple(path)
        path.append(steps[0])
        sound, mutated = _child(sound, steps[0]), _child(mutated, steps[0])


def _differing_steps(sound: ast.AST, mutated: ast.AST) -> list[_Step] | None:
    """Return the children in which two nodes differ; None if they differ themselves."""
    if type(sound) is not type(mutated):
        return None
    steps: list[_Step] = []
    for name in sound._fields:
        a, b = getattr(sound, name, None), getattr(mutated, name, None)
        if isinstance(a, list) and isinstance(b, list):
            if len(a) != len(b):
                return None
            for index, (x, y) in enumerate(zip(a, b, strict=True)):
                if not _is_same(x, y):
                    if not isinstance(x, ast.AST) or not isinstance(y, ast.AST):
                        return None
                    steps.append((name, index))
        elif not _is_same(a, b):
            if not isinstance(a, ast.AST) or not isinstance(b, ast.AST):
                return None
            steps.append((name, None))
    return steps


def _is_same(a: object, b: object) -> bool:
    if isinstance(a, ast.AST):
        return type(a) is type(b) and all(
            _is_same(getattr(a, name, None), getattr(b, name, None)) for name in a._fields
        )
    if isinstance(a, list):
        return (
            isinstance(b, list)
            and len(a) == len(b)
            and all(_is_same(x, y) for x, y in zip(a, b, strict=True))
        )
    return type(a) is type(b) and a == b


def _choosable(sound: ast.Module, mutated: ast.Module, path: _Path) -> _Path:
    """Return the path, or a shorter one, to what can be a choice: an expression or a statement.

    Raises: NotSwitchable.
    """
    while path:
        if _can_be_chosen(sound, path) and _can_be_chosen(mutated, path):
            return path
        path = path[:-1]
    raise NotSwitchable("the two sources differ in more than one place")


def _can_be_chosen(tree: ast.Module, path: _Path) -> bool:
    node = _node_at(tree, path)
    if isinstance(node, ast.stmt):
        return True
    if not isinstance(node, ast.expr) or isinstance(node, (ast.Slice, ast.Starred)):
        return False
    if not isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
        return False
    parents = [_node_at(tree, path[:length]) for length in range(len(path))]
    statement = max(n for n, each in enumerate(parents) if isinstance(each, (ast.stmt, ast.Module)))
    return not any(isinstance(each, ast.pattern) for each in parents[statement:])


def _widened(sound: ast.Module, mutated: ast.Module, path: _Path) -> _Path:
    """Return the path of the largest expression without effects around a change, or `path`."""
    while len(path) > 1:
        outer = path[:-1]
        nodes = (_node_at(sound, outer), _node_at(mutated, outer))
        if not all(isinstance(each, ast.expr) and _is_without_effects(each) for each in nodes):
            break
        path = outer
    return path


def _is_without_effects(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        return (
            isinstance(node.func, ast.Name)
            and node.func.id in _FUNCTIONS_WITHOUT_EFFECTS
            and not node.keywords
            and all(_is_without_effects(each) for each in node.args)
        )
    return isinstance(node, _WITHOUT_EFFECTS) and all(
        _is_without_effects(each) for each in ast.iter_child_nodes(node)
    )


def _put(tree: ast.Module, change: _Change) -> None:
    """Put a choice in the place of a node."""
    parent, (name, index) = _node_at(tree, change.path[:-1]), change.path[-1]
    sound = _child(parent, (name, index))
    mutated = copy.deepcopy(change.mutated)
    choice: ast.AST
    if isinstance(sound, ast.stmt):
        if not isinstance(mutated, ast.stmt):
            raise NotSwitchable("a statement became an expression")
        choice = ast.If(test=_asked("on", change.number), body=[mutated], orelse=[sound])
    elif isinstance(sound, ast.expr) and isinstance(mutated, ast.expr):
        choice = _choice(tree, change, sound, mutated, is_test=name in {"test", "ifs"})
    else:
        raise NotSwitchable("neither an expression nor a statement differs")
    if index is None:
        setattr(parent, name, choice)
    else:
        getattr(parent, name)[index] = choice


def _choice(
    tree: ast.Module, change: _Change, sound: ast.expr, mutated: ast.expr, *, is_test: bool
) -> ast.IfExp:
    number = change.number
    # A lambda does not see the names of a class body, and at import nothing is recorded.
    if not _is_in_function(tree, change.path) or not _is_without_effects(change.mutated):
        return ast.IfExp(test=_asked("on", number), body=mutated, orelse=sound)
    if is_test:  # `x` and `not (x)` are compared as what they decide
        sound, mutated = _as_bool(sound), _as_bool(mutated)
    compared = ast.Call(
        func=_probe("value"),
        args=[ast.Constant(number), _function_of(copy.deepcopy(mutated)), sound],
        keywords=[],
    )
    return ast.IfExp(test=_asked("on_value", number), body=mutated, orelse=compared)


def _as_bool(node: ast.expr) -> ast.expr:
    return ast.UnaryOp(op=ast.Not(), operand=ast.UnaryOp(op=ast.Not(), operand=node))


def _function_of(body: ast.expr) -> ast.Lambda:
    arguments = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
    return ast.Lambda(args=arguments, body=body)


def _is_in_function(tree: ast.Module, path: _Path) -> bool:
    """Whether the nearest scope around a place is the body of a function."""
    for length in range(len(path) - 1, -1, -1):
        node, (name, _) = _node_at(tree, path[:length]), path[length]
        if isinstance(node, ast.ClassDef):
            return False
        if isinstance(node, _BLOCKS) and name == "body":
            return True
    return False


def _probe(name: str) -> ast.Attribute:
    return ast.Attribute(value=ast.Name(id=_NAME, ctx=ast.Load()), attr=name, ctx=ast.Load())


def _asked(name: str, number: int) -> ast.Call:
    return ast.Call(func=_probe(name), args=[ast.Constant(number)], keywords=[])


def _import_probes(tree: ast.Module) -> None:
    """Import the probes before everything but the docstring and `from __future__`."""
    at = 0
    for node in tree.body:
        is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not is_docstring and not (
            isinstance(node, ast.ImportFrom) and node.module == "__future__"
        ):
            break
        at += 1
    module, _, name = PROBES.rpartition(".")
    imported = ast.ImportFrom(module=module, names=[ast.alias(name=name, asname=_NAME)], level=0)
    tree.body.insert(at, imported)


def _node_at(tree: ast.AST, path: _Path) -> ast.AST:
    for step in path:
        tree = _child(tree, step)
    return tree


def _child(node: ast.AST, step: _Step) -> ast.AST:
    name, index = step
    child = getattr(node, name)
    found = child if index is None else child[index]
    if not isinstance(found, ast.AST):
        raise NotSwitchable(f"{name} of {type(node).__name__} is no node")
    return found


def _text(node: ast.AST) -> str:
    """Return a node as one line."""
    return " ".join(ast.unparse(node).split())
