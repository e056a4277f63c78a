"""`make fast`: compiles the modules in which a simulation spends most of its time.

These hot modules are listed in hot_modules.txt. They become one shared library, which Python loads
in place of the sources (`cluster.compiled`):

1. mypyc, a compiler that comes with mypy, translates the modules to C.
2. The C compiler makes the library.
3. A file `record.json` says for which sources and which version of Python the library is valid. It
   comes last, so that the library of a build that broke off is never used.

Everything is written into the folder BUILD, which git ignores.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cluster.checkout import PACKAGE_ROOT
from cluster.compiled import BUILD, GROUP, RECORD, fingerprint, library_path, python_tag

HOT_MODULES_LIST = Path(__file__).with_name("hot_modules.txt")
"""The paths of the hot modules, one a line."""
_C_COMPILER_OPTIONS = ("-O1", "-g0", "-fPIC", "-DNDEBUG", "-fno-strict-overflow", "-w")
"""Options for the C compiler:

- `-O1`: few optimisations, because more of them would take longer to compile;
- `-g0`: no debug information;
- `-fPIC`: code for a shared library;
- `-DNDEBUG`: no assertions;
- `-fno-strict-overflow`: sums that are too large wrap around, as in Python's own build;
- `-w`: no warnings.
"""
_MORE_RUNTIME_FILES = ("bytes_extra_ops.c", "str_extra_ops.c")
"""C files that a library needs, too, but that are not in mypyc's list RUNTIME_C_FILES."""


class CannotCompile(RuntimeError):
    """Something is missing that a build needs, or a compiler has refused the code."""


def hot_sources() -> tuple[str, ...]:
    """Return the paths of the hot modules, relative to the checkout."""
    lines = HOT_MODULES_LIST.read_text(encoding="utf-8").splitlines()
    return tuple(line for line in lines if line and not line.startswith("#"))


def find_compiler() -> str | None:
    """Return the command of the C compiler; None if there is none.

    The environment variable CC can name the command. Otherwise three usual commands are tried.
    """
    chosen_by_user = os.environ.get("CC")
    if chosen_by_user:
        return chosen_by_user
    for command in ("cc", "gcc", "clang"):
        if shutil.which(command) is not None:
            return command
    return None


def missing_for_build() -> str | None:
    """Return what is missing for a build, and how to get it; None if nothing is missing."""
    if find_compiler() is None:
        return "no C compiler on the PATH (Debian: apt-get install gcc)"
    if not Path(sysconfig.get_path("include"), "Python.h").is_file():
        return "no Python.h (Debian: apt-get install python3-dev)"
    try:
        import mypyc.build  # noqa: F401, PLC0415
    except ImportError:
        return "no mypyc; it comes with mypy, of the `dev` extra"
    return None


def build(target: Path = BUILD) -> None:
    """Compile the hot modules into the folder `target`.

    Raises: CannotCompile.
    """
    missing = missing_for_build()
    if missing is not None:
        raise CannotCompile(missing)
    # The build takes a minute. If a module changes meanwhile, the library is out of date as
    # soon as it is made. So the digest for the record is that of the sources before the build.
    digest_of_sources = fingerprint()
    # Without its record, no process uses the old library, which is about to be replaced.
    (target / RECORD).unlink(missing_ok=True)
    c_folder = target / "c"
    shutil.rmtree(c_folder, ignore_errors=True)
    c_folder.mkdir(parents=True)
    hot_module_sources = _translate_to_c(c_folder, target / "mypy_cache")
    _compile_c((*hot_module_sources, *_runtime_sources()), c_folder, target)
    record = {
        "fingerprint": digest_of_sources,
        "python": python_tag(),
        "modules": {path.removesuffix(".py").replace("/", "."): path for path in hot_sources()},
    }
    (target / RECORD).write_text(json.dumps(record, indent=1), encoding="utf-8")


def _translate_to_c(c_folder: Path, cache: Path) -> list[Path]:
    """Have mypyc write the C code of the hot modules into `c_folder`, and return the files.

    mypyc runs in a process of its own, because it ends its process when it finds an error.
    """
    code = (
        "import sys\n"
        "from mypyc.build import mypyc_build\n"
        "from mypyc.options import CompilerOptions\n"
        "options = CompilerOptions(multi_file=True, target_dir=sys.argv[1], group_name=sys.argv[2],"
        " include_runtime_files=False)\n"
        "mypyc_build(sys.argv[3:], options)\n"
    )
    options = (str(c_folder), GROUP, f"--cache-dir={cache}")
    _run((sys.executable, "-c", code, *options, *hot_sources()))
    return sorted(c_folder.glob("*.c"))


def _runtime_sources() -> list[Path]:
    """Return the files of mypyc's own C code, which every library of mypyc contains."""
    from mypyc.build import include_dir  # noqa: PLC0415
    from mypyc.common import RUNTIME_C_FILES  # noqa: PLC0415

    return [Path(include_dir()) / name for name in (*RUNTIME_C_FILES, *_MORE_RUNTIME_FILES)]


def _compile_c(sources: Iterable[Path], c_folder: Path, target: Path) -> None:
    """Compile the C files, several at once, and link them to one library."""
    from mypyc.build import include_dir  # noqa: PLC0415

    # There is a compiler, because `build` has checked that. The variable CC may have options, too.
    compiler = shlex.split(find_compiler() or "cc")
    folders = (sysconfig.get_path("include"), include_dir(), c_folder)
    headers = [f"-I{folder}" for folder in folders]

    def compile_one(source: Path) -> str:
        object_file = str(c_folder / f"{source.stem}.o")
        _run((*compiler, *_C_COMPILER_OPTIONS, *headers, "-c", str(source), "-o", object_file))
        return object_file

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        object_files = list(pool.map(compile_one, sources))
    _run((*compiler, "-shared", *object_files, "-o", str(library_path(target))))


def _run(command: tuple[str, ...]) -> None:
    """Run a command. Raises: CannotCompile with the end of its output, if it fails."""
    finished = subprocess.run(
        command, cwd=PACKAGE_ROOT, capture_output=True, text=True, check=False
    )
    if finished.returncode != 0:
        last_lines = (finished.stdout + finished.stderr).strip().splitlines()[-20:]
        raise CannotCompile("\n".join((f"{command[0]} failed:", *last_lines)))


def main() -> None:
    """Build the library, and print how long that took."""
    began_s = time.monotonic()
    print(f"compiling {len(hot_sources())} hot modules (about a minute) ...", flush=True)
    try:
        build()
    except CannotCompile as error:
        sys.exit(f"nothing compiled, everything runs interpreted: {error}")
    print(f"compiled in {time.monotonic() - began_s:.0f} s; COORDLAB_COMPILED=0 switches it off")


if __name__ == "__main__":
    main()
