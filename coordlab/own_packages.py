"""Checks that Python imports coordlab's packages, and not packages of other projects.

The packages have common names, such as `protocol` and `pipeline`. If another project has installed
a package with such a name, Python may find this foreign package first. Then the process ends with a
message.
"""

import importlib.util
import sys
from pathlib import Path

OWN_PACKAGES = (
    "protocol",
    "partition_log",
    "coordinator",
    "cluster",
    "results_schema",
    "chaos",
    "pipeline",
    "coordlab",
)
# The same number as results_schema.results.EXIT_BAD_ARGUMENTS. It cannot be imported before the
# check, because `results_schema` might be the package of another project.
_EXIT_BAD_ARGUMENTS = 254


def package_root() -> Path:
    """Return the folder that has coordlab's packages: the checkout, or `site-packages`."""
    return Path(__file__).resolve().parent.parent


def foreign_packages() -> tuple[str, ...]:
    """Return an error for each package of coordlab that is missing or would come from elsewhere."""
    root = package_root()
    problems = []
    for name in OWN_PACKAGES:
        spec = importlib.util.find_spec(name)
        # `origin` is the path of the package's __init__.py. It is None for a folder without one.
        if spec is None or spec.origin is None:
            problems.append(f"package `{name}` was not found; expected in {root}")
        elif Path(spec.origin).resolve().parent.parent != root:
            problems.append(
                f"package `{name}` would be imported from {Path(spec.origin).parent}, "
                f"not from {root}: remove that distribution or directory from the Python path"
            )
    return tuple(problems)


def require_own_packages() -> None:
    """End the process if a package is missing or would come from elsewhere."""
    problems = foreign_packages()
    if problems:
        sys.stderr.write("".join(f"coordlab: {problem}\n" for problem in problems))
        sys.exit(_EXIT_BAD_ARGUMENTS)
