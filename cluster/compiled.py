"""Makes Python import the modules that `make fast` has compiled, if there are any.

A run spends most of its time in some modules, which are called *hot*. mypyc can compile them to
machine code, so that runs are faster. Their results are the same. This is how it works:

1. `make fast` (`scripts.compiled`) writes two files into BUILD: a shared library, and `record.json`
   with the names of the modules, a fingerprint of the sources, and the version of Python.
2. `use_compiled` puts a CompiledFinder in front of Python's own import finders.
3. When the first hot module is imported, the finder compares the fingerprint with the present
   sources. If the fingerprint is right, all hot modules come from the library; otherwise none of
   them does. Compiled and interpreted hot modules cannot be mixed, because compiled modules use
   internals of each other.
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
"""Environment variable; 0 keeps every module interpreted."""
BUILD = PACKAGE_ROOT / "build" / "compiled"
"""Folder into which `make fast` writes."""
RECORD = "record.json"
"""File in BUILD with the names of the compiled modules and their fingerprint."""
GROUP = "coordlab_hot"
"""mypyc's name for modules that it compiles into one library."""
LIBRARY = f"{GROUP}__mypyc"
"""Module name of the shared library; mypyc derives it from the group's name."""
COMPILED_AGAINST = (
    "protocol", "partition_log", "coordinator", "cluster", "results_schema", "chaos",
)  # fmt: skip
"""The packages whose sources are in the fingerprint.

The packages include modules that are not compiled, because compiled code contains the constants of
these modules."""
_MADE_BY_CALL = (NewType, ParamSpec, TypeVar, TypeVarTuple)
"""Types whose instances take their `__module__` from the caller's frame; see `_set_own_module`."""


class CompiledState(StrEnum):
    """Whether a process runs compiled or interpreted code, and why."""

    COMPILED = "compiled"
    NOT_BUILT = "interpreted: nothing is built"
    SWITCHED_OFF = f"interpreted: {SWITCH}=0"
    STALE = "interpreted: the sources or Python differ from what was compiled"
    TOO_LATE = "interpreted: a hot module was imported before the finder was installed"


def library_path(build: Path) -> Path:
    """Return the path of a build's shared library."""
    # Python's first suffix is the one that names its version and the platform.
    return build / f"{LIBRARY}{importlib.machinery.EXTENSION_SUFFIXES[0]}"


def python_tag() -> str:
    """Return the interpreter's version and binary interface, which a shared library must match."""
    return f"{sys.version.split()[0]} {importlib.machinery.EXTENSION_SUFFIXES[0]}"


def fingerprint(root: Path = PACKAGE_ROOT) -> str:
    """Return a digest of the names and contents of all sources in COMPILED_AGAINST."""
    digest = hashlib.sha256()
    for package in COMPILED_AGAINST:
        for path in sorted((root / package).rglob("*.py")):
            content = path.read_bytes()
            digest.update(f"{path.relative_to(root)} {len(content)}\n".encode())
            digest.update(content)
    return digest.hexdigest()


class _Library:
    """The shared library, which has the compiled body of each hot module.

    Instances of compiled classes cannot be pickled until their module was prepared for this
    (`_make_imported_picklable`). So this class knows which modules are not prepared yet.
    """

    def __init__(self, path: Path, names: Iterable[str]) -> None:
        loader = importlib.machinery.ExtensionFileLoader(LIBRARY, str(path))
        spec = importlib.util.spec_from_file_location(LIBRARY, path, loader=loader)
        if spec is None:
            raise ImportError(f"no shared library at {path}", path=str(path))
        self._library = importlib.util.module_from_spec(spec)
        sys.modules[LIBRARY] = self._library
        loader.exec_module(self._library)
        self._unpicklable = set(names)  # modules that are not prepared for pickle yet
        # Number of calls of `run_body` that have not returned. There may be several, because a body
        # may import an interpreted module, which imports another hot module.
        self._running = 0

    def run_body(self, name: str) -> ModuleType:
        """Run the compiled body of module `name`, which enters the module into sys.modules.

        If the body imports another hot module directly, mypyc runs that body without this method.
        So after the outermost body, all hot modules that were imported are prepared for pickle.
        """
        import ctypes  # noqa: PLC0415  # only compiled code needs it

        # For each module, the library has a capsule (Python's wrapper of a C pointer) with a C
        # function that runs the module's body and returns the module.
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
            self._make_imported_picklable()
        return module

    def _make_imported_picklable(self) -> None:
        """Make instances of the imported modules' classes picklable."""
        for name in sorted(self._unpicklable & sys.modules.keys()):
            _set_own_module(sys.modules[name])
            _make_picklable(sys.modules[name])
            self._unpicklable.discard(name)


class _CompiledLoader(Loader):
    """Creates one module from the shared library."""

    def __init__(self, library: _Library, source: Path) -> None:
        self._library = library
        self._source = source

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """Run the module's compiled body."""
        return self._library.run_body(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Set the source as the module's file; `create_module` has run the body."""
        module.__file__ = str(self._source)


def _set_own_module(module: ModuleType) -> None:
    """Set `module` as the module of types and type variables that it defines.

    A TypeVar, for example, takes the name of its module from the frame of its caller. A compiled
    body has no frame, so the TypeVar got the name `cluster.compiled`, where pickle would not find
    the TypeVar.
    """
    for value in vars(module).values():
        if isinstance(value, _MADE_BY_CALL) and value.__module__ == __name__:
            value.__module__ = module.__name__


def _make_picklable(module: ModuleType) -> None:
    """Let pickle rebuild the frozen dataclasses of `module` by calling their classes.

    By default pickle sets the attributes one by one, which compiled frozen classes refuse.
    """
    for value in vars(module).values():
        if isinstance(value, type) and value.__module__ == module.__name__ and _is_frozen(value):
            copyreg.pickle(value, _reduce)


def _is_frozen(kind: type) -> bool:
    """Return True if a class is a frozen dataclass."""
    parameters = getattr(kind, "__dataclass_params__", None)
    return parameters is not None and bool(parameters.frozen)


def _reduce(value: object) -> tuple[Callable[..., object], tuple[type, dict[str, object]]]:
    """Return pickle's recipe for `value`, a frozen dataclass: its class, and its fields by name."""
    names = (each.name for each in dataclasses.fields(value))  # type: ignore[arg-type]
    fields = {name: getattr(value, name) for name in names}
    return _rebuild, (type(value), fields)


def _rebuild(kind: type, fields: dict[str, object]) -> object:
    """Return the dataclass that `_reduce` has taken apart; pickle calls this function."""
    return kind(**fields)


class CompiledFinder(MetaPathFinder):
    """Finds the hot modules in the shared library of `build`, if it matches the sources."""

    def __init__(self, build: Path, root: Path) -> None:
        record = json.loads((build / RECORD).read_text(encoding="utf-8"))
        self._build = build
        self._root = root
        self._fingerprint: str = record["fingerprint"]
        self._python: str = record["python"]
        self.sources: dict[str, str] = record["modules"]
        """Path of each module's source, relative to the root."""
        self._library: _Library | None = None
        self.state: CompiledState | None = None
        """None until the first import of a hot module."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the spec of a hot module; None leaves a module to Python's own finders."""
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
        """Decide once per process whether the library is used; report a stale library on stderr."""
        if self.state is None:
            self.state = self._examine()
            if self.state is CompiledState.STALE:
                sys.stderr.write(
                    "coordlab: the sources changed since `make fast`, so that they run interpreted;"
                    " `make fast` compiles them again\n"
                )
        return self.state

    def _examine(self) -> CompiledState:
        """Return COMPILED if the library fits the sources, or the reason against it."""
        if any(name in sys.modules for name in self.sources):  # one already runs interpreted
            return CompiledState.TOO_LATE
        if self._python != python_tag() or self._fingerprint != fingerprint(self._root):
            return CompiledState.STALE
        return CompiledState.COMPILED


def _find_installed() -> CompiledFinder | None:
    """Return the finder that `use_compiled` has installed, if any."""
    return next((each for each in sys.meta_path if isinstance(each, CompiledFinder)), None)


def use_compiled(build: Path = BUILD, root: Path = PACKAGE_ROOT) -> None:
    """Import hot modules from the library in `build` from now on, if a library was built."""
    if os.environ.get(SWITCH) == "0" or _find_installed() is not None:
        return
    if (build / RECORD).is_file():
        sys.meta_path.insert(0, CompiledFinder(build, root))


def compiled_state() -> CompiledState:
    """Return which code this process runs."""
    finder = _find_installed()
    if finder is not None:
        return finder.decide()
    if os.environ.get(SWITCH) == "0":
        return CompiledState.SWITCHED_OFF
    return CompiledState.NOT_BUILT
