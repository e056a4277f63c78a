"""`make fast`: compiles the hot modules into one shared library, which `cluster.compiled` loads.

The hot modules are those in which a simulation spends most of its time; hot_modules.txt lists them.
A build has three steps:

1. mypyc, a compiler that comes with mypy, translates the hot modules to C.
2. The C compiler builds the library.
3. `record.json` is written, which says for which sources and for which Python the library is valid.
   It is written last, so that the library of an interrupted build is never used.

All files are in BUILD, which git ignores.
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

LIST = Path(__file__).with_name("hot_modules.txt")
"""The list of the hot modules: a path in each line."""
OPTIONS = ("-O1", "-g0", "-fPIC", "-DNDEBUG", "-fno-strict-overflow", "-w")
"""Options of the C compiler:

- `-O1`: few optimisations, which compile faster than more of them;
- `-g0`: no debug information;
- `-fPIC`: code for a shared library;
- `-DNDEBUG`: no assertions;
- `-fno-strict-overflow`: sums that are too large wrap around, as in Python's own build;
- `-w`: no warnings.
"""
_OPERATIONS = ("bytes_extra_ops.c", "str_extra_ops.c")
"""C files of mypyc with operations on bytes and strings. A library needs them, but mypyc's list
RUNTIME_C_FILES lacks them."""


class CannotCompile(RuntimeError):
    """A compiler, Python's headers or mypyc is missing, or one of them refused the code."""


def hot_sources() -> tuple[str, ...]:
    """Return the paths of the hot modules, relative to the checkout."""
    lines = LIST.read_text(encoding="utf-8").splitlines()
    return tuple(line for line in lines if line and not line.startswith("#"))


def find_compiler() -> str | None:
    """Return the command of the C compiler; None if no compiler is found.

    The command is the environment variable CC, or else the first compiler on the PATH.
    """
    return os.environ.get("CC") or next(filter(shutil.which, ("cc", "gcc", "clang")), None)


def missing_for_build() -> str | None:
    """Describe the first missing tool of a build and how to get it; None if the tools are there."""
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
    # Take the digest of the sources before the build, which lasts a minute. If somebody edits a
    # module meanwhile, the digest does not fit the edited sources, and the library is not used.
    digest_of_sources = fingerprint()
    # Without a record, no process uses the library that is about to be replaced.
    (target / RECORD).unlink(missing_ok=True)
    c_folder = target / "c"
    shutil.rmtree(c_folder, ignore_errors=True)
    c_folder.mkdir(parents=True)
    c_of_hot_modules = _translate(c_folder, target / "mypy_cache")
    _compile_c((*c_of_hot_modules, *_runtime()), c_folder, target)
    record = {
        "fingerprint": digest_of_sources,
        "python": python_tag(),
        "modules": {path.removesuffix(".py").replace("/", "."): path for path in hot_sources()},
    }
    (target / RECORD).write_text(json.dumps(record, indent=1), encoding="utf-8")


def _translate(c_folder: Path, cache: Path) -> list[Path]:
    """Write the C code of the hot modules into `c_folder`, and return the files.

    mypyc ends its process on an error, so it runs in a process of its own.
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


def _runtime() -> list[Path]:
    """Return the files of mypyc's own C code, which every compiled library contains."""
    from mypyc.build import include_dir  # noqa: PLC0415
    from mypyc.common import RUNTIME_C_FILES  # noqa: PLC0415

    return [Path(include_dir()) / name for name in (*RUNTIME_C_FILES, *_OPERATIONS)]


def _compile_c(sources: Iterable[Path], c_folder: Path, target: Path) -> None:
    """Compile mypyc's C files, several at once, and link them as one library."""
    from mypyc.build import include_dir  # noqa: PLC0415

    # `build` has checked that there is a compiler. CC may contain options, too.
    compiler = shlex.split(find_compiler() or "cc")
    folders = (sysconfig.get_path("include"), include_dir(), c_folder)
    headers = [f"-I{folder}" for folder in folders]

    def compile_one(source: Path) -> str:
        object_file = str(c_folder / f"{source.stem}.o")
        _run((*compiler, *OPTIONS, *headers, "-c", str(source), "-o", object_file))
        return object_file

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        object_files = list(pool.map(compile_one, sources))
    _run((*compiler, "-shared", *object_files, "-o", str(library_path(target))))


def _run(command: tuple[str, ...]) -> None:
    """Run a command.

    Raises: CannotCompile if the command fails; the message has the last lines of its output.
    """
    done = subprocess.run(command, cwd=PACKAGE_ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last_lines = (done.stdout + done.stderr).strip().splitlines()[-20:]
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
