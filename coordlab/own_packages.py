"""A check that ends the process if Python would import one of coordlab's packages from elsewhere.

The packages have common names, such as `protocol` and `pipeline`. Without the check, Python could
import a package of this name that another project has installed.
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
# Equal to results_schema.results.EXIT_BAD_ARGUMENTS. That constant is not imported, because
# `results_schema` may be the package of another project until the check has run.
_EXIT_BAD_ARGUMENTS = 254


def package_root() -> Path:
    """Return the folder that holds coordlab's packages: the checkout, or site-packages."""
    return Path(__file__).resolve().parent.parent


def foreign_packages() -> tuple[str, ...]:
    """Check the own packages. Return an error text for each one that is missing or foreign.

    A package is foreign if Python would import it from another folder than `package_root`.
    """
    root = package_root()
    problems = []
    for name in OWN_PACKAGES:
        spec = importlib.util.find_spec(name)
        # `origin` is the path of the package's __init__.py. A folder without that file has none.
        if spec is None or spec.origin is None:
            problems.append(f"package `{name}` was not found; expected in {root}")
        elif Path(spec.origin).resolve().parent.parent != root:
            problems.append(
                f"package `{name}` would be imported from {Path(spec.origin).parent}, "
                f"not from {root}: remove that distribution or directory from the Python path"
            )
    return tuple(problems)


def require_own_packages() -> None:
    """End the process with the errors of `foreign_packages`, if there are any."""
    problems = foreign_packages()
    if problems:
        sys.stderr.write("".join(f"coordlab: {problem}\n" for problem in problems))
        sys.exit(_EXIT_BAD_ARGUMENTS)
