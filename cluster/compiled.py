"""Import finder for the compiled modules that `make fast` builds; without a build it does nothing.

Data flow: `scripts.compiled` writes one shared library and `record.json` (modules, fingerprint of
the sources, Python) into BUILD; `use_compiled` puts a finder before Python's own; the first import
of a hot module compares the fingerprint and loads the library, or leaves all of them interpreted.
All or nothing: compiled modules reach into each other's objects, which interpreted ones have not.
Compiled and interpreted code give the same digests.
"""

import copyreg
import dataclasses
import hashlib
import importlib.machinery
import importlib.util
import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from importlib.abc import Loader, MetaPathFinder
from pathlib import Path
from types import ModuleType
from typing import NewType, ParamSpec, TypeVar, TypeVarTuple

from cluster.checkout import PACKAGE_ROOT

SWITCH = "COORDLAB_COMPILED"
"""Environment variable; 0 leaves every module interpreted."""
BUILD = PACKAGE_ROOT / "build" / "compiled"
RECORD = "record.json"
GROUP = "coordlab_hot"
LIBRARY = f"{GROUP}__mypyc"
"""The module that the shared library is; mypyc makes its name from the group's."""
COMPILED_AGAINST = (
    "protocol", "partition_log", "coordinator", "cluster", "results_schema", "chaos",
)  # fmt: skip
"""Packages whose sources the fingerprint covers: constants of interpreted modules are built in."""
_MADE_BY_CALL = (NewType, ParamSpec, TypeVar, TypeVarTuple)
"""What learns its module from the frame that calls it."""


class CompiledState(StrEnum):
    """Which code a process runs, and why."""

    COMPILED = "compiled"
    NOT_BUILT = "interpreted: nothing is built"
    SWITCHED_OFF = f"interpreted: {SWITCH}=0"
    STALE = "interpreted: the sources or Python differ from what was compiled"
    TOO_LATE = "interpreted: a hot module was imported before the finder stood"


def library_path(build: Path) -> Path:
    """Return where the shared library of a build is."""
    return build / f"{LIBRARY}{importlib.machinery.EXTENSION_SUFFIXES[0]}"


def python_tag() -> str:
    """Return what a shared library must fit: the interpreter's version and binary interface."""
    return f"{sys.version.split()[0]} {importlib.machinery.EXTENSION_SUFFIXES[0]}"


def fingerprint(root: Path = PACKAGE_ROOT) -> str:
    """Return a digest of every source in COMPILED_AGAINST, of names and contents."""
    digest = hashlib.sha256()
    for package in COMPILED_AGAINST:
        for path in sorted((root / package).rglob("*.py")):
            content = path.read_bytes()
            digest.update(f"{path.relative_to(root)} {len(content)}\n".encode())
            digest.update(content)
    return digest.hexdigest()


class _Library:
    """The shared library, and which of its modules were made fit for pickle."""

    def __init__(self, path: Path, names: Iterable[str]) -> None:
        loader = importlib.machinery.ExtensionFileLoader(LIBRARY, str(path))
        spec = importlib.util.spec_from_file_location(LIBRARY, path, loader=loader)
        if spec is None:
            raise ImportError(f"no shared library at {path}", path=str(path))
        self._library = importlib.util.module_from_spec(spec)
        sys.modules[LIBRARY] = self._library
        loader.exec_module(self._library)
        self._unsettled = set(names)
        self._running = 0  # bodies that run now, one within another

    def run_body(self, name: str) -> ModuleType:
        """Run the compiled body of module `name`, which enters the module into sys.modules.

        It imports others of the library by itself, unseen: what began first settles all of them.
        """
        import ctypes  # noqa: PLC0415  # needed by nobody who runs interpreted code

        initializer = f"init_{name.replace('.', '___')}"
        pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
        pointer_of.restype = ctypes.c_void_p
        pointer_of.argtypes = (ctypes.py_object, ctypes.c_char_p)
        capsule = getattr(self._library, initializer)
        pointer = pointer_of(capsule, f"{LIBRARY}.{initializer}".encode())
        if pointer is None:
            raise ImportError(f"{LIBRARY} has no {initializer}", name=name)
        self._running += 1
        try:
            module: ModuleType = ctypes.PYFUNCTYPE(ctypes.py_object)(pointer)()
        finally:
            self._running -= 1
        if not self._running:
            self._settle()
        return module

    def _settle(self) -> None:
        """Make the modules that are there by now fit for pickle."""
        for name in sorted(self._unsettled & sys.modules.keys()):
            _name_own(sys.modules[name])
            _make_picklable(sys.modules[name])
            self._unsettled.discard(name)


class _CompiledLoader(Loader):
    """Makes one module from the shared library."""

    def __init__(self, library: _Library, source: Path) -> None:
        self._library = library
        self._source = source

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """Run the module's compiled body."""
        return self._library.run_body(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Name the source as the module's file: its body has run."""
        module.__file__ = str(self._source)


def _name_own(module: ModuleType) -> None:
    """Name `module` as the home of what looked for its home in the frame that made it.

    A compiled body has no frame, so that new types and type variables found this module; pickle
    looks for them by that name.
    """
    for value in vars(module).values():
        if isinstance(value, _MADE_BY_CALL) and value.__module__ == __name__:
            value.__module__ = module.__name__


def _make_picklable(module: ModuleType) -> None:
    """Let pickle build the frozen dataclasses of `module` anew.

    Its own way is to set their attributes one by one, which compiled frozen classes refuse.
    """
    for value in vars(module).values():
        if isinstance(value, type) and value.__module__ == module.__name__ and _is_frozen(value):
            copyreg.pickle(value, _reduced)


def _is_frozen(kind: type) -> bool:
    parameters = getattr(kind, "__dataclass_params__", None)
    return parameters is not None and bool(parameters.frozen)


def _reduced(value: object) -> tuple[Callable[..., object], tuple[type, dict[str, object]]]:
    """Return how pickle makes `value`, a frozen dataclass: its class, and its fields by name."""
    names = (each.name for each in dataclasses.fields(value))  # type: ignore[arg-type]
    fields = {name: getattr(value, name) for name in names}
    return _rebuilt, (type(value), fields)


def _rebuilt(kind: type, fields: dict[str, object]) -> object:
    return kind(**fields)


class CompiledFinder(MetaPathFinder):
    """Finds the hot modules in the shared library of `build`, if that is of today's sources."""

    def __init__(self, build: Path, root: Path) -> None:
        record = json.loads((build / RECORD).read_text(encoding="utf-8"))
        self._build = build
        self._root = root
        self._fingerprint: str = record["fingerprint"]
        self._python: str = record["python"]
        self.sources: dict[str, str] = record["modules"]
        """Module -> its source, relative to the root."""
        self._library: _Library | None = None
        self.state: CompiledState | None = None
        """None until the first hot module is asked for."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        """Return where a hot module is; None leaves it to Python's own finders."""
        source = self.sources.get(fullname)
        if source is None:
            return None
        if self.decide() is not CompiledState.COMPILED:
            return None
        if self._library is None:
            self._library = _Library(library_path(self._build), self.sources)
        loader = _CompiledLoader(self._library, self._root / source)
        return importlib.machinery.ModuleSpec(fullname, loader, origin=str(self._root / source))

    def decide(self) -> CompiledState:
        """Say whether the library is used, once for the process; tell of a stale one on stderr."""
        if self.state is None:
            self.state = self._examine()
            if self.state is CompiledState.STALE:
                sys.stderr.write(
                    "coordlab: the sources changed since `make fast`, so that they run interpreted;"
                    " `make fast` compiles them again\n"
                )
        return self.state

    def _examine(self) -> CompiledState:
        if any(name in sys.modules for name in self.sources):
            return CompiledState.TOO_LATE
        if self._python != python_tag() or self._fingerprint != fingerprint(self._root):
            return CompiledState.STALE
        return CompiledState.COMPILED


def _installed() -> CompiledFinder | None:
    return next((each for each in sys.meta_path if isinstance(each, CompiledFinder)), None)


def use_compiled(build: Path = BUILD, root: Path = PACKAGE_ROOT) -> None:
    """Import hot modules from the library in `build` from now on; does nothing without one."""
    if os.environ.get(SWITCH) == "0" or _installed() is not None:
        return
    if (build / RECORD).is_file():
        sys.meta_path.insert(0, CompiledFinder(build, root))


def compiled_state() -> CompiledState:
    """Return which code this process runs."""
    finder = _installed()
    if finder is not None:
        return finder.decide()
    if os.environ.get(SWITCH) == "0":
        return CompiledState.SWITCHED_OFF
    return CompiledState.NOT_BUILT
