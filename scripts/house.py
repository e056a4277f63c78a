"""Figures of the project's structure, to compare before and after a change of the structure.

`python -m scripts.house` reads all figures from the source files of a checkout, without importing
them. `--make-test` also runs `make test` there, and adds the processor time of the command and its
children.

A cause is the reason that a row of the trace has, as a word or as a text for people. Only the
coordinator should read such a text, so the places that parse one elsewhere are counted.
"""

import argparse
import ast
import json
import re
import resource
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import msgspec

PRODUCT_PACKAGES = (
    "protocol",
    "results_schema",
    "partition_log",
    "coordinator",
    "cluster",
    "chaos",
    "pipeline",
    "coordlab",
)
"""The packages whose figures are measured: all that users install."""
SHORT_MODULE_LINES = 60
"""A module with fewer lines counts as short."""
CRASH_PATH = Path(__file__).with_name("crash_path.txt")
"""A file with a chain of functions, one a line, each of which calls the next.

The first function carries out the plan of a run, and the last function crashes a broker on Ray.
The number of calls from the first to the last is one of the figures.
"""
_METHODS_ON_TEXT = frozenset(
    {
        "startswith",
        "endswith",
        "removeprefix",
        "removesuffix",
        "contains",
        "rlike",
        "like",
        "search",
        "match",
        "fullmatch",
        "regexp_extract",
        "partition",
        "split",
        "sub",
    }
)
"""Methods that look for something in a text: of Python's str and re, and of Spark's columns."""
_NAME_OF_A_CAUSE = re.compile(r"\bcauses?\b|cause_text")
"""If an expression has such a name, it is about the cause of an event in the trace."""


class House(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one checkout.

    - `largest_folder`: the folder with most modules, and how many it has.
    - `modules`: the number of modules, without `__init__`.
    - `short_modules`: the number of modules that have fewer than SHORT_MODULE_LINES lines.
    - `repeated_names`: name of a public function or class -> the modules that define it, if there
      are several.
    - `product_lines`: the number of lines of all modules that are not tests.
    - `test_lines`: the number of lines of the tests.
    - `parsed_causes`: the places that parse the text of a cause, as `file:line`.
    - `crash_path`: the lines of CRASH_PATH; () if there is no such file.
    - `make_test_cpu_minutes`: the processor time of `make test`; None if it was not run.
    """

    largest_folder: tuple[str, int]
    modules: int
    short_modules: int
    repeated_names: dict[str, tuple[str, ...]]
    product_lines: int
    test_lines: int
    parsed_causes: tuple[str, ...]
    crash_path: tuple[str, ...]
    make_test_cpu_minutes: float | None = None


def main() -> None:
    """Print the figures as a table, or as JSON with every name and place."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[1])
    parser.add_argument("--json", action="store_true", help="every name and place, as JSON")
    parser.add_argument(
        "--make-test", action="store_true", help="run `make test`, for its CPU time"
    )
    arguments = parser.parse_args()
    house = measure(arguments.root)
    if arguments.make_test:
        minutes = make_test_cpu_minutes(arguments.root)
        house = msgspec.structs.replace(house, make_test_cpu_minutes=minutes)
    if arguments.json:
        sys.stdout.write(json.dumps(msgspec.to_builtins(house), indent=1) + "\n")
        return
    for meaning, figure in table(house):
        sys.stdout.write(f"{meaning:<58}{figure}\n")


def table(house: House) -> Iterator[tuple[str, str]]:
    """Yield each figure with what it means, the meaning first."""
    folder, count = house.largest_folder
    yield "largest number of modules in a folder", f"{count} ({folder})"
    yield f"modules under {SHORT_MODULE_LINES} lines", f"{house.short_modules} of {house.modules}"
    yield "public top-level names in more than one module", str(len(house.repeated_names))
    yield "lines of product", f"{house.product_lines:,}"
    yield "lines of tests", f"{house.test_lines:,}"
    yield "cause phrases parsed outside the coordinator", str(len(house.parsed_causes))
    # Between n functions there are n - 1 calls.
    yield "calls from the plan to the crash on Ray", str(len(house.crash_path) - 1)
    minutes = house.make_test_cpu_minutes
    yield "CPU minutes of make test", "-" if minutes is None else f"{minutes:.1f}"


def measure(root: Path) -> House:
    """Return the figures of the checkout at `root`."""
    sources = {
        path.relative_to(root).as_posix(): path.read_text(encoding="utf-8")
        for package in PRODUCT_PACKAGES
        for path in sorted((root / package).rglob("*.py"))
    }
    modules = {name: text for name, text in sources.items() if not name.endswith("__init__.py")}
    folders: dict[str, int] = defaultdict(int)
    for name in modules:
        folders[name.rpartition("/")[0]] += 1
    # Of several folders with as many modules, the last one by name is taken.
    largest = max(folders, key=lambda folder: (folders[folder], folder))
    trees = {name: ast.parse(text) for name, text in modules.items()}
    parsed_causes: list[str] = []
    for name, tree in trees.items():
        # The texts of causes are defined in `protocol`, and only the coordinator may read them.
        if not name.startswith(("coordinator/", "protocol/")):
            # A line counts once, even if it parses several causes.
            lines = sorted(set(_lines_that_parse_a_cause(tree)))
            parsed_causes += [f"{name}:{line}" for line in lines]
    return House(
        largest_folder=(largest, folders[largest]),
        modules=len(modules),
        short_modules=sum(_count_lines(text) < SHORT_MODULE_LINES for text in modules.values()),
        repeated_names=_repeated_names(trees),
        product_lines=sum(map(_count_lines, sources.values())),
        test_lines=sum(
            _count_lines(path.read_text(encoding="utf-8"))
            for path in (root / "tests").rglob("*.py")
        ),
        parsed_causes=tuple(parsed_causes),
        crash_path=_crash_path(root),
    )


def make_test_cpu_minutes(root: Path) -> float:
    """Run `make test` in `root`, and return the processor time of all its processes in minutes.

    Raises: CalledProcessError if the command fails.
    """
    before = _children_cpu_s()
    subprocess.run(["make", "test"], cwd=root, check=True, stdout=subprocess.DEVNULL)
    return (_children_cpu_s() - before) / 60


def _children_cpu_s() -> float:
    """Return the processor time of the child processes that have ended, in seconds."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _count_lines(text: str) -> int:
    return len(text.splitlines())


def _crash_path(root: Path) -> tuple[str, ...]:
    """Return the lines of the file CRASH_PATH, but of the checkout at `root`."""
    path = root / CRASH_PATH.relative_to(CRASH_PATH.parents[1])
    if not path.exists():
        return ()
    return tuple(path.read_text(encoding="utf-8").split())


def _repeated_names(trees: dict[str, ast.Module]) -> dict[str, tuple[str, ...]]:
    """Return the public names that several modules define, each with these modules."""
    modules_by_name: dict[str, list[str]] = defaultdict(list)
    for module, tree in trees.items():
        # Each name once, even if a module defines it twice.
        for name in dict.fromkeys(_public_names(tree)):
            modules_by_name[name].append(module)
    repeated = {
        name: modules for name, modules in sorted(modules_by_name.items()) if len(modules) > 1
    }
    return {name: tuple(modules) for name, modules in repeated.items()}


def _public_names(tree: ast.Module) -> Iterator[str]:
    """Yield the public functions and classes that a module defines at its top level."""
    for node in tree.body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        if not node.name.startswith("_"):
            yield node.name


def _lines_that_parse_a_cause(tree: ast.Module) -> Iterator[int]:
    """Yield the numbers of the lines that parse a cause as text.

    Such a line calls a method like `startswith` or `search` on a cause, or compares a cause with a
    phrase, a text of several words. Code should compare a cause with a member of an enum instead.
    """
    # Constants of the module whose values are phrases.
    phrase_constants = {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign) and _is_phrase(node.value)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(attr=attr)) if attr in _METHODS_ON_TEXT:
                if _NAME_OF_A_CAUSE.search(ast.unparse(node)):
                    yield node.lineno
            case ast.Compare(left=left, ops=ops, comparators=rights):
                sides = [left, *rights]
                names_cause = any(_NAME_OF_A_CAUSE.search(ast.unparse(side)) for side in sides)
                has_phrase = any(
                    _is_phrase(side) or (isinstance(side, ast.Name) and side.id in phrase_constants)
                    for side in sides
                )
                # Code also looks for a word in a cause that may be None: `"word" in (cause or "")`.
                searches_text = isinstance(ops[0], (ast.In, ast.NotIn)) and (
                    "cause or" in ast.unparse(rights[0])
                )
                if names_cause and (has_phrase or searches_text):
                    yield node.lineno
            case _:
                pass


def _is_phrase(node: ast.expr) -> bool:
    """Return whether an expression is a string literal with several words."""
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value


if __name__ == "__main__":
    main()
