"""Rewrites a source so that the switch of `probes` chooses between its sound and mutated places.

A mutant is a source that differs from the sound source in one place; `n` is its number. A choice is
code that runs the mutated form if mutant `n` is on, and the sound form otherwise:

- A mutated statement becomes `if on(n): mutated`, `else: sound`.
- A mutated expression becomes `mutated if on(n) else sound`.
- A mutated expression without effects becomes
  `mutated if on_value(n) else value(n, lambda: mutated, sound)`. Here `value` compares the two
  values in a sound run. Before that, the place is widened to the largest expression without effects
  around it, because the whole can have the same value although a part of it has another one.

A path leads from the root of a source's syntax tree (module `ast`) to a node.
Data flow: source, mutated sources -> source with all choices.
"""

import ast
import copy
from collections.abc import Sequence
from dataclasses import dataclass

PROBES = "benchmarks.sight.probes"
_NAME = "_sight"
"""Name under which a rewritten source imports the probes."""
_Step = tuple[str, int | None]
"""Name of a node's field, and an index if the field is a list."""
_Path = tuple[_Step, ...]
"""Steps from the module node down to a node."""
_WITHOUT_EFFECTS = (
    ast.Compare, ast.BoolOp, ast.UnaryOp, ast.BinOp, ast.Constant, ast.Name, ast.Attribute,
    ast.Subscript, ast.IfExp, ast.Tuple, ast.operator, ast.unaryop, ast.boolop, ast.cmpop,
    ast.expr_context, ast.Load,
)  # fmt: skip
_FUNCTIONS_WITHOUT_EFFECTS = frozenset({"len", "isinstance", "min", "max", "abs", "bool", "int"})
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class NotSwitchable(Exception):
    """A change cannot become a choice; the message says why."""


@dataclass(frozen=True, slots=True)
class _Change:
    """A mutant's place in the source, and the mutated node at that place."""

    number: int
    path: _Path
    mutated: ast.AST


def changed_text(source: str, mutated: str) -> tuple[str, str]:
    """Return the smallest expression or statement that differs, as sound and as mutated text."""
    sound_tree, mutated_tree = ast.parse(source), ast.parse(mutated)
    path = _choosable(sound_tree, mutated_tree, _difference(sound_tree, mutated_tree))
    return _text(_node_at(sound_tree, path)), _text(_node_at(mutated_tree, path))


def switched_source(source: str, mutants: Sequence[tuple[int, str]]) -> str:
    """Return `source` with all `mutants` in it.

    A mutant is a pair: its number, and the whole source with its change.

    Raises: NotSwitchable if a change is at a place that cannot be a choice.
    """
    tree = ast.parse(source)
    changes = []
    # All paths lead through the unchanged tree.
    for number, mutated_source in mutants:
        mutated = ast.parse(mutated_source)
        path = _choosable(tree, mutated, _difference(tree, mutated))
        path = _widened(tree, mutated, path)
        changes.append(_Change(number, path, _node_at(mutated, path)))
    # Inner places come first: a choice at an inner place leaves the paths of outer places as they
    # are, whereas a choice at an outer place would change the paths of the inner ones.
    for change in sorted(changes, key=lambda change: -len(change.path)):
        _put(tree, change)
    _import_probes(tree)
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def _difference(sound: ast.AST, mutated: ast.AST) -> _Path:
    """Return the path to the smallest node within which two trees differ."""
    path: list[_Step] = []
    while True:
        steps = _differing_steps(sound, mutated)
        # If exactly one child differs, the difference is inside it. Otherwise this node is the
        # smallest one that contains the whole difference.
        if steps is None or len(steps) != 1:
            return tuple(path)
        path.append(steps[0])
        sound, mutated = _child(sound, steps[0]), _child(mutated, steps[0])


def _differing_steps(sound: ast.AST, mutated: ast.AST) -> list[_Step] | None:
    """Return the steps to the children that differ; None if more than children differ.

    This is so if the nodes have different types, different values such as names or numbers, or
    lists of different lengths.
    """
    if type(sound) is not type(mutated):
        return None
    steps: list[_Step] = []
    for name in sound._fields:
        before, after = getattr(sound, name, None), getattr(mutated, name, None)
        if isinstance(before, list) and isinstance(after, list):
            if len(before) != len(after):
                return None
            for index, (item_before, item_after) in enumerate(zip(before, after, strict=True)):
                if not _is_same(item_before, item_after):
                    if not isinstance(item_before, ast.AST) or not isinstance(item_after, ast.AST):
                        return None
                    steps.append((name, index))
        elif not _is_same(before, after):
            if not isinstance(before, ast.AST) or not isinstance(after, ast.AST):
                return None
            steps.append((name, None))
    return steps


def _is_same(first: object, second: object) -> bool:
    """Return True if two nodes, lists or values of fields stand for the same code."""
    if isinstance(first, ast.AST):
        return type(first) is type(second) and all(
            _is_same(getattr(first, name, None), getattr(second, name, None))
            for name in first._fields
        )
    if isinstance(first, list):
        return (
            isinstance(second, list)
            and len(first) == len(second)
            and all(_is_same(*items) for items in zip(first, second, strict=True))
        )
    return type(first) is type(second) and first == second


def _choosable(sound: ast.Module, mutated: ast.Module, path: _Path) -> _Path:
    """Return the path to the nearest node, at or above `path`, that can become a choice.

    Raises: NotSwitchable if only the whole module is left, as when two statements have changed.
    """
    while path:
        if _can_be_chosen(sound, path) and _can_be_chosen(mutated, path):
            return path
        path = path[:-1]
    raise NotSwitchable("the two sources differ in more than one place")


def _can_be_chosen(tree: ast.Module, path: _Path) -> bool:
    """Return True for a statement, and for an expression where any expression is possible.

    Not every expression is allowed in slices, starred arguments, targets of assignments, and match
    patterns.
    """
    node = _node_at(tree, path)
    if isinstance(node, ast.stmt):
        return True
    if not isinstance(node, ast.expr) or isinstance(node, (ast.Slice, ast.Starred)):
        return False
    # Only names, attributes, subscripts, lists and tuples have a `ctx`.
    if not isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
        return False
    parents = [_node_at(tree, path[:length]) for length in range(len(path))]
    nearest_statement = max(
        index for index, node in enumerate(parents) if isinstance(node, (ast.stmt, ast.Module))
    )
    return not any(isinstance(node, ast.pattern) for node in parents[nearest_statement:])


def _widened(sound: ast.Module, mutated: ast.Module, path: _Path) -> _Path:
    """Return the path of the largest expression without effects around a change, else `path`."""
    while len(path) > 1:
        outer = path[:-1]
        nodes = (_node_at(sound, outer), _node_at(mutated, outer))
        if not all(isinstance(node, ast.expr) and _is_without_effects(node) for node in nodes):
            break
        path = outer
    return path


def _is_without_effects(node: ast.AST) -> bool:
    """Return True if an evaluation of the expression changes nothing, however often it happens."""
    if isinstance(node, ast.Call):
        return (
            isinstance(node.func, ast.Name)
            and node.func.id in _FUNCTIONS_WITHOUT_EFFECTS
            and not node.keywords
            and all(_is_without_effects(argument) for argument in node.args)
        )
    return isinstance(node, _WITHOUT_EFFECTS) and all(
        _is_without_effects(child) for child in ast.iter_child_nodes(node)
    )


def _put(tree: ast.Module, change: _Change) -> None:
    """Replace the node at a change's place by a choice."""
    parent, (name, index) = _node_at(tree, change.path[:-1]), change.path[-1]
    sound = _child(parent, (name, index))
    mutated = copy.deepcopy(change.mutated)
    choice: ast.AST
    if isinstance(sound, ast.stmt):
        if not isinstance(mutated, ast.stmt):
            raise NotSwitchable("a statement became an expression")
        choice = ast.If(test=_probe_call("on", change.number), body=[mutated], orelse=[sound])
    elif isinstance(sound, ast.expr) and isinstance(mutated, ast.expr):
        # These fields hold conditions, such as those of `if`, `while` and a comprehension.
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
    """Return the choice between two expressions, with a comparison of their values if possible.

    Only a mutated expression without effects can be compared, because a sound run evaluates it.
    """
    number = change.number
    # Outside a function there is no comparison: a lambda there does not see the names of a class
    # body, and values are not recorded during imports.
    if not _is_in_function(tree, change.path) or not _is_without_effects(change.mutated):
        return ast.IfExp(test=_probe_call("on", number), body=mutated, orelse=sound)
    if is_test:  # only the truth of a condition matters
        sound, mutated = _as_bool(sound), _as_bool(mutated)
    compared = ast.Call(
        func=_probe("value"),
        args=[ast.Constant(number), _function_of(copy.deepcopy(mutated)), sound],
        keywords=[],
    )
    return ast.IfExp(test=_probe_call("on_value", number), body=mutated, orelse=compared)


def _as_bool(node: ast.expr) -> ast.expr:
    """Return `not not node`, the truth of `node`."""
    return ast.UnaryOp(op=ast.Not(), operand=ast.UnaryOp(op=ast.Not(), operand=node))


def _function_of(body: ast.expr) -> ast.Lambda:
    arguments = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
    return ast.Lambda(args=arguments, body=body)


def _is_in_function(tree: ast.Module, path: _Path) -> bool:
    """Return True if the nearest scope around a place is the body of a function."""
    for length in range(len(path) - 1, -1, -1):
        node, (name, _) = _node_at(tree, path[:length]), path[length]
        if isinstance(node, ast.ClassDef):
            return False
        if isinstance(node, _FUNCTIONS) and name == "body":
            return True
    return False


def _probe(name: str) -> ast.Attribute:
    return ast.Attribute(value=ast.Name(id=_NAME, ctx=ast.Load()), attr=name, ctx=ast.Load())


def _probe_call(name: str, number: int) -> ast.Call:
    return ast.Call(func=_probe(name), args=[ast.Constant(number)], keywords=[])


def _import_probes(tree: ast.Module) -> None:
    """Insert the import of the probes after the docstring and imports from `__future__`."""
    position = 0
    for node in tree.body:
        is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not is_docstring and not (
            isinstance(node, ast.ImportFrom) and node.module == "__future__"
        ):
            break
        position += 1
    module, _, name = PROBES.rpartition(".")
    imported = ast.ImportFrom(module=module, names=[ast.alias(name=name, asname=_NAME)], level=0)
    tree.body.insert(position, imported)


def _node_at(tree: ast.AST, path: _Path) -> ast.AST:
    for step in path:
        tree = _child(tree, step)
    return tree


def _child(node: ast.AST, step: _Step) -> ast.AST:
    name, index = step
    field = getattr(node, name)
    child = field if index is None else field[index]
    if not isinstance(child, ast.AST):
        raise NotSwitchable(f"{name} of {type(node).__name__} is no node")
    return child


def _text(node: ast.AST) -> str:
    """Return a node as one line."""
    return " ".join(ast.unparse(node).split())
