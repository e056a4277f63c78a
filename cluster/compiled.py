"""Import finder for the compiled modules that `make fast` builds; without a build it does nothing.

Data flow: `scripts.compiled` writes one shared library and `record.json` (modules, fingerprint of
the sources, Python) into BUILD; `use_compiled` puts a finder before Python's own; the first import
of a hot module compares the fingerprint and loads the library, or leaves all of them interpreted.
All or nothing: compiled modules reach into each other's objects, which interpreted ones have not.
Compiled and interpreted code give the same digests.
"""

import hashlib
import importlib.machinery
import importlib.util
import json
import os
import sys
from collections.abc import Sequence
from enum import StrEnum
from importlib.abc import Loader, MetaPathFinder
from pathlib import Path
from types import ModuleType

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


class _CompiledLoader(Loader):
    """Makes one module from the shared library."""

    def __init__(self, library: ModuleType, source: Path) -> None:
        self._library = library
        self._source = source

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """Run the module's compiled body, which enters the module into sys.modules."""
        import ctypes  # noqa: PLC0415  # needed by nobody who runs interpreted code

        name = f"init_{spec.name.replace('.', '___')}"
        pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
        pointer_of.restype = ctypes.c_void_p
        pointer_of.argtypes = (ctypes.py_object, ctypes.c_char_p)
        pointer = pointer_of(getattr(self._library, name), f"{LIBRARY}.{name}".encode())
        if pointer is None:
            raise ImportError(f"{LIBRARY} has no {name}", name=spec.name)
        module: ModuleType = ctypes.PYFUNCTYPE(ctypes.py_object)(pointer)()
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Name the source as the module's file: its body has run."""
        module.__file__ = str(self._source)


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
        self._library: ModuleType | None = None
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
            self._library = self._load()
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

    def _load(self) -> ModuleType:
        path = str(library_path(self._build))
        loader = importlib.machinery.ExtensionFileLoader(LIBRARY, path)
        spec = importlib.util.spec_from_file_location(LIBRARY, path, loader=loader)
        if spec is None:
            raise ImportError(f"no shared library at {path}", path=path)
        library = importlib.util.module_from_spec(spec)
        sys.modules[LIBRARY] = library
        loader.exec_module(library)
        return library


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
