"""Compiled and interpreted modules give equal runs; an outdated library is not loaded.

`make fast` compiles the hot modules (those with most of the running time) with mypyc into one
library. The finder (`cluster.compiled`), an import hook, loads the library if it fits the sources
and this Python; otherwise Python interprets the sources. SWITCH is the environment variable
COORDLAB_COMPILED. RECORD is the file that says for which sources and which Python a library was
made. A digest is a hash over all rows of a run's trace (recorded events).
"""

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from cluster import compiled
from cluster.compiled import BUILD, RECORD, SWITCH, CompiledFinder, CompiledState
from scripts.compiled import hot_sources, missing_for_build
from tests.architecture.test_layers import ROOT, tracked_files

SEEDS = 20
"""Number of seeds that are played both with compiled and with interpreted modules."""
SOURCE = ("protocol", "hot.py")
"""Path of the made-up hot module of a small checkout."""


def _explored(switch: str) -> dict[str, object]:
    """Play SEEDS seeds in another process, in which SWITCH is "1" (compiled) or "0"."""
    done = subprocess.run(
        (sys.executable, "-m", "tests.support.explored_digests", str(SEEDS)),
        cwd=ROOT,
        env={**os.environ, SWITCH: switch},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    explored: dict[str, object] = json.loads(done.stdout)
    return explored


@pytest.mark.slow
def test_compiled_modules_give_the_digests_of_interpreted_ones() -> None:
    """The same seeds give the same digests, verdicts, counts of events and coverage marks."""
    if not (BUILD / RECORD).is_file():
        if os.environ.get("CI") == "true" and missing_for_build() is None:
            pytest.fail("nothing is compiled: .ci/run runs `make fast` before the tests")
        pytest.skip(f"`make fast` was not run; a build lacks: {missing_for_build() or 'nothing'}")
    with_library = _explored("1")
    if with_library["state"] == CompiledState.STALE.name and os.environ.get("CI") != "true":
        pytest.skip("the sources changed since `make fast`")
    interpreted = _explored("0")
    assert with_library["state"] == CompiledState.COMPILED.name
    assert interpreted["state"] == CompiledState.SWITCHED_OFF.name
    assert with_library["runs"] == interpreted["runs"]


# A program that pickles values of compiled modules.
PICKLED = """
import coordlab, importlib, pickle
from cluster.compiled import compiled_state
from scripts.compiled import hot_sources

for source in hot_sources():
    module = importlib.import_module(source.removesuffix(".py").replace("/", "."))
    for name, value in vars(module).items():
        if getattr(value, "__module__", None) == "cluster.compiled":
            raise SystemExit(f"{module.__name__}.{name} says that it is of the finder")
from cluster.links.decisions import Deliver
from protocol.ids import NodeName

assert pickle.loads(pickle.dumps(Deliver(3))) == Deliver(3)
assert pickle.loads(pickle.dumps(NodeName)) is NodeName
print(compiled_state().name)
"""


@pytest.mark.slow
def test_types_of_compiled_modules_can_be_pickled_for_ray() -> None:
    """Ray pickles objects for its workers, so each type must name the module that defines it.

    The compiler could break this in two ways: a class or NewType of a compiled module could name
    the finder's module instead, and a frozen dataclass could refuse to be built again from its
    pickled form. The program PICKLED checks both.
    """
    if not (BUILD / RECORD).is_file():
        pytest.skip("`make fast` was not run")
    done = subprocess.run(
        (sys.executable, "-c", PICKLED),
        cwd=ROOT,
        env={**os.environ, SWITCH: "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() in (CompiledState.COMPILED.name, CompiledState.STALE.name)


@pytest.mark.slow
def test_a_class_outside_the_library_inherits_from_none_inside() -> None:
    """No interpreted class inherits from a compiled one, which mypyc does not allow.

    Python notices it only when an instance is created.
    """
    hot = {ROOT / source for source in hot_sources()}
    assert all(path.is_file() for path in hot)
    trees = {
        path: ast.parse(path.read_text(encoding="utf-8"))
        for path in tracked_files(".py")
        if path.relative_to(ROOT).parts[0] in compiled.COMPILED_AGAINST
    }
    compiled_classes = {
        node.name
        for path in hot
        for node in ast.walk(trees[path])
        if isinstance(node, ast.ClassDef)
    }
    offenders = [
        f"{path.relative_to(ROOT)}: {node.name}({base.id})"
        for path, tree in trees.items()
        if path not in hot
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for written in node.bases
        # `Base[T]` inherits from `Base`.
        for base in (written.value if isinstance(written, ast.Subscript) else written,)
        if isinstance(base, ast.Name) and base.id in compiled_classes
    ]
    assert offenders == []


def _own_nodes(statements: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Yield the nodes of statements, except those inside functions that the statements define."""
    for node in statements:
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            yield node
            yield from _own_nodes(ast.iter_child_nodes(node))


def test_hot_module_does_not_wait_in_a_handler() -> None:
    """No `await` or `yield` stands in an `except` or `finally` block of a hot module.

    While a handler treats an exception, interpreted Python keeps the exception in the coroutine;
    mypyc keeps it in the thread. So this can happen:

    1. A compiled coroutine waits in its handler. Its run ends, and it is never resumed.
    2. Its exception remains the one that the thread treats.
    3. Each later exception of the process refers to it, as its context. The chain of contexts grows
       with every such run, and each `raise` walks along it: after 600 runs a search took four times
       as long.
    """
    waiting = (ast.Await, ast.Yield, ast.YieldFrom, ast.AsyncFor, ast.AsyncWith)
    offenders = [
        f"{source}:{node.lineno}"
        for source in hot_sources()
        for handled in ast.walk(ast.parse((ROOT / source).read_bytes()))
        if isinstance(handled, ast.Try)
        for block in (*(handler.body for handler in handled.handlers), handled.finalbody)
        for node in _own_nodes(block)
        if isinstance(node, waiting)
    ]
    assert offenders == []


def _finder(folder: Path, **record: object) -> CompiledFinder:
    """Return a finder for a library compiled from `folder`; `record` changes fields of RECORD."""
    facts = {
        "fingerprint": compiled.fingerprint(folder),
        "python": compiled.python_tag(),
        "modules": {"protocol.hot": "/".join(SOURCE)},
    }
    (folder / RECORD).write_text(json.dumps(facts | record), encoding="utf-8")
    return CompiledFinder(folder, folder)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a small checkout: a folder with one source."""
    (tmp_path / SOURCE[0]).mkdir()
    tmp_path.joinpath(*SOURCE).write_text("ANSWER = 42\n", encoding="utf-8")
    return tmp_path


def test_a_library_of_these_sources_and_this_python_is_used(checkout: Path) -> None:
    """If sources, Python and modules agree with the record, the finder uses the library."""
    assert _finder(checkout).decide() is CompiledState.COMPILED


def test_a_changed_source_leaves_all_modules_interpreted_with_a_message(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The user is told once that the library is outdated, however many modules are imported."""
    finder = _finder(checkout)
    checkout.joinpath(*SOURCE).write_text("ANSWER = 43\n", encoding="utf-8")
    assert finder.find_spec("protocol.hot", None) is None
    assert finder.find_spec("protocol.hot", None) is None
    assert finder.decide() is CompiledState.STALE
    assert capsys.readouterr().err.count("make fast` compiles them again") == 1


def test_a_new_source_leaves_all_modules_interpreted(checkout: Path) -> None:
    """Compiled modules can import any source of their package.

    So the fingerprint, a hash by which the finder recognises the sources, covers all of them.
    """
    finder = _finder(checkout)
    (checkout / "protocol" / "new.py").write_text("", encoding="utf-8")
    assert finder.decide() is CompiledState.STALE


def test_a_library_for_another_python_is_not_loaded(checkout: Path) -> None:
    """A library fits only the version of Python for which it was compiled."""
    # The tag of a Python: its version, and the suffix of its libraries.
    assert _finder(checkout, python="3.0 .so").decide() is CompiledState.STALE


def test_a_hot_module_imported_earlier_leaves_the_others_interpreted(checkout: Path) -> None:
    """Compiled code reads fields by their place in memory, so interpreted classes do not fit it."""
    finder = _finder(checkout, modules={"protocol.ids": "protocol/ids.py"})
    assert "protocol.ids" in sys.modules
    assert finder.decide() is CompiledState.TOO_LATE


def test_the_switch_installs_no_finder(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the switch at 0 no finder is installed; without the switch, there is one."""
    _finder(checkout)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setenv(SWITCH, "0")
    compiled.use_compiled(checkout, checkout)
    assert not any(isinstance(finder, CompiledFinder) for finder in sys.meta_path)
    assert compiled.compiled_state() is CompiledState.SWITCHED_OFF
    monkeypatch.delenv(SWITCH)
    compiled.use_compiled(checkout, checkout)
    assert any(isinstance(finder, CompiledFinder) for finder in sys.meta_path)
