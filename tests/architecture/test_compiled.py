"""Compiled and interpreted modules give equal runs; an outdated library is not loaded.

Some modules are hot, which means that runs spend most of their time there. `make fast` compiles
these modules with mypyc into one library. When a hot module is imported, an import hook decides
whether it is loaded from the library or from its source. The hook is called CompiledFinder, and is
in `cluster.compiled`. It chooses the library only if the library fits the sources and this Python.
To decide this, it reads a file beside the library, the RECORD. A user can switch the library off
with an environment variable, whose name is in the constant SWITCH.
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
"""Path of the only hot module in the small checkout with which the finder is tested."""


def _play_seeds(switch: str) -> dict[str, object]:
    """Play SEEDS seeds in another process, in which the variable SWITCH has the value `switch`.

    "1" means that the library is used, and "0" that it is not. The result has the state of the
    finder ("state"), and facts about each run ("runs"): its digest (a hash over all its recorded
    events), its verdict, and so on.
    """
    done = subprocess.run(
        (sys.executable, "-m", "tests.support.explored_digests", str(SEEDS)),
        cwd=ROOT,
        env={**os.environ, SWITCH: switch},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result: dict[str, object] = json.loads(done.stdout)
    return result


@pytest.mark.slow
def test_compiled_modules_give_the_digests_of_interpreted_ones() -> None:
    """The same seeds give the same runs.

    The test is skipped if nothing is compiled, or if the sources have changed since they were
    compiled. But in the automatic checks (CI) the library must be there and must be used.
    """
    if not (BUILD / RECORD).is_file():
        if os.environ.get("CI") == "true" and missing_for_build() is None:
            pytest.fail("nothing is compiled: .ci/run runs `make fast` before the tests")
        pytest.skip(f"`make fast` was not run; a build lacks: {missing_for_build() or 'nothing'}")
    with_library = _play_seeds("1")
    if with_library["state"] == CompiledState.STALE.name and os.environ.get("CI") != "true":
        pytest.skip("the sources changed since `make fast`")
    without_library = _play_seeds("0")
    assert with_library["state"] == CompiledState.COMPILED.name
    assert without_library["state"] == CompiledState.SWITCHED_OFF.name
    assert with_library["runs"] == without_library["runs"]


PICKLING_PROGRAM = """
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
"""A program that checks all names in the compiled modules, and pickles two values."""


@pytest.mark.slow
def test_types_of_compiled_modules_can_be_pickled_for_ray() -> None:
    """Ray pickles objects for its workers, so each type must name the module that defines it.

    The compiler could break this in two ways. A class or NewType of a compiled module could name
    the module of the finder instead of its own module. And a frozen dataclass could refuse to be
    unpickled.
    """
    if not (BUILD / RECORD).is_file():
        pytest.skip("`make fast` was not run")
    done = subprocess.run(
        (sys.executable, "-c", PICKLING_PROGRAM),
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
    """No interpreted class may inherit from a compiled class: mypyc does not allow it.

    At run time, such a class fails only when an instance is created. So this test reads the
    sources.
    """
    hot = {ROOT / source for source in hot_sources()}
    assert all(path.is_file() for path in hot)
    classes_of_modules = {
        path: [
            node
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, ast.ClassDef)
        ]
        for path in tracked_files(".py")
        if path.relative_to(ROOT).parts[0] in compiled.COMPILED_AGAINST
    }
    compiled_classes = {node.name for path in hot for node in classes_of_modules[path]}
    # Each base of an interpreted class that has the name of a compiled class.
    offenders = [
        f"{path.relative_to(ROOT)}: {node.name}({base})"
        for path, classes in classes_of_modules.items()
        if path not in hot
        for node in classes
        for base in _names_of_bases(node)
        if base in compiled_classes
    ]
    assert offenders == []


def _names_of_bases(node: ast.ClassDef) -> Iterator[str]:
    """Yield the names of a class's bases; the base `Base[T]` has the name `Base`."""
    for base in node.bases:
        unsubscripted = base.value if isinstance(base, ast.Subscript) else base
        if isinstance(unsubscripted, ast.Name):
            yield unsubscripted.id


def _nodes_outside_inner_functions(statements: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Yield the nodes of statements, except those inside functions that the statements define."""
    for node in statements:
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            yield node
            yield from _nodes_outside_inner_functions(ast.iter_child_nodes(node))


def test_hot_module_does_not_wait_in_a_handler() -> None:
    """No `await` or `yield` stands in an `except` or `finally` block of a hot module.

    While such a block runs, Python keeps the exception that is being handled. Interpreted Python
    keeps this exception with the coroutine, but mypyc keeps it with the thread. So the following
    can happen:

    1. A compiled coroutine waits in such a block. The run ends, and the coroutine is never resumed.
    2. The thread still keeps the exception of this coroutine as the one that is being handled.
    3. So Python makes this exception the context of each later exception. The chain of contexts
       grows with every such run, and each `raise` walks along the chain. After 600 runs, a search
       took four times as long.
    """
    waiting = (ast.Await, ast.Yield, ast.YieldFrom, ast.AsyncFor, ast.AsyncWith)
    # Each node of a kind in `waiting` in an `except` or `finally` block of any `try` statement.
    offenders = [
        f"{source}:{node.lineno}"
        for source in hot_sources()
        for statement in ast.walk(ast.parse((ROOT / source).read_bytes()))
        if isinstance(statement, ast.Try)
        for block in (*(handler.body for handler in statement.handlers), statement.finalbody)
        for node in _nodes_outside_inner_functions(block)
        if isinstance(node, waiting)
    ]
    assert offenders == []


def _finder(folder: Path, **record: object) -> CompiledFinder:
    """Return a finder for a library that was compiled from `folder`.

    The finder does not need the library itself, only the RECORD. The arguments `record` replace
    facts of the RECORD.
    """
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
    """The message that the library is outdated comes once, however many modules are imported."""
    finder = _finder(checkout)
    checkout.joinpath(*SOURCE).write_text("ANSWER = 43\n", encoding="utf-8")
    assert finder.find_spec("protocol.hot", None) is None
    assert finder.find_spec("protocol.hot", None) is None
    assert finder.decide() is CompiledState.STALE
    assert capsys.readouterr().err.count("make fast` compiles them again") == 1


def test_a_new_source_leaves_all_modules_interpreted(checkout: Path) -> None:
    """The finder recognises the sources by a fingerprint, which is a hash over them.

    The fingerprint covers all sources of the packages, because compiled modules can import any of
    them.
    """
    finder = _finder(checkout)
    (checkout / "protocol" / "new.py").write_text("", encoding="utf-8")
    assert finder.decide() is CompiledState.STALE


def test_a_library_for_another_python_is_not_loaded(checkout: Path) -> None:
    """A library fits only the version of Python for which it was compiled."""
    tag_of_another_python = "3.0 .so"  # its version, and the suffix of its libraries
    assert _finder(checkout, python=tag_of_another_python).decide() is CompiledState.STALE


def test_a_hot_module_imported_earlier_leaves_the_others_interpreted(checkout: Path) -> None:
    """Compiled code does not work with instances of interpreted classes.

    Compiled code reads a field of an instance by its place in memory. So if a hot module was
    already imported before the finder was installed, no module is loaded from the library.
    """
    finder = _finder(checkout, modules={"protocol.ids": "protocol/ids.py"})
    assert "protocol.ids" in sys.modules
    assert finder.decide() is CompiledState.TOO_LATE


def test_the_switch_installs_no_finder(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the variable SWITCH is 0, no finder is installed. If it is not set, a finder is."""
    _finder(checkout)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setenv(SWITCH, "0")
    compiled.use_compiled(checkout, checkout)
    assert not any(isinstance(finder, CompiledFinder) for finder in sys.meta_path)
    assert compiled.compiled_state() is CompiledState.SWITCHED_OFF
    monkeypatch.delenv(SWITCH)
    compiled.use_compiled(checkout, checkout)
    assert any(isinstance(finder, CompiledFinder) for finder in sys.meta_path)
