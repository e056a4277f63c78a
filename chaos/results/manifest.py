"""The content of a run's manifest: the experiment, the command to repeat the run, and versions.

The manifest is the file in a run's directory that says what was run. With this file the results of
the run can be read later, and the run can be repeated.
"""

import platform
import shlex
import subprocess
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import msgspec

from chaos.experiment.structs import Experiment, duration_of
from cluster.checkout import PACKAGE_ROOT
from cluster.compiled import CompiledState, compiled_state
from results_schema.manifest import Manifest

# Packages whose versions are written to the manifest.
_PACKAGES = ("coordlab", "ray", "msgspec", "msgpack", "pyarrow", "pyspark")


def config_of(experiment: Experiment) -> dict[str, Any]:
    """Return an experiment as plain data, with the keys of its file, `version` first."""
    config: dict[str, Any] = msgspec.to_builtins(experiment)  # a struct always becomes a dict
    return config


def experiment_of(manifest: Manifest) -> Experiment:
    """Return the experiment of a run.

    Raises: msgspec.ValidationError if another version wrote the manifest.
    """
    return msgspec.convert(manifest.config, Experiment)


def run_command_line(
    experiment: str,
    *,
    runtime: str,
    seed: int,
    overrides: Sequence[str] = (),
    time_limit_us: int | None = None,
    time_scale: float = 1.0,
    trace: bool = True,
    ray_address: str = "local",
) -> str:
    """Return the command that repeats the run, without options that have their default values.

    `experiment` is the name or the path of the experiment file. In virtual time the repeated run
    has exactly the same trace.
    """
    words = ["python", "-m", "coordlab", "run", experiment, "--runtime", runtime]
    words += ["--seed", str(seed)]
    for override in overrides:
        words += ["--var", override]
    if time_limit_us is not None:
        words += ["--time-limit", duration_of(time_limit_us)]
    if time_scale != 1.0:
        words += ["--time-scale", f"{time_scale:g}"]
    if not trace:
        words.append("--no-trace")
    if ray_address != "local":
        words += ["--ray-address", ray_address]
    return shlex.join(words)


def installed_versions() -> dict[str, str]:
    """Return the versions of Python and of the packages on which a run depends.

    The result also says whether the hot modules are compiled. These are the modules in which a run
    spends most of its time. They may be compiled by mypyc, which changes the speed of a run, but
    not its trace.
    """
    is_compiled = compiled_state() is CompiledState.COMPILED
    versions = {
        "python": platform.python_version(),
        "hot modules": "compiled" if is_compiled else "interpreted",
    }
    for package in _PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:  # an optional package, such as ray
            continue
    return versions


def git_commit() -> str | None:
    """Return the commit of this code.

    Return None if the code is not in a checkout of its repository, or if git fails.
    """
    # An installed copy of the code may lie in a checkout of another project. Git also searches the
    # folders above, and so would return the commit of that project.
    if not (PACKAGE_ROOT / ".git").exists():
        return None
    try:
        answer = subprocess.run(
            ["git", "-C", str(PACKAGE_ROOT), "rev-parse", "HEAD"],
            capture_output=True,
            text=True,
            timeout=5,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip()
