"""Python must not run the package `protocol` or `pipeline` of another project instead of ours."""

import os
import subprocess
import sys
from pathlib import Path

from coordlab.own_packages import package_root


def test_a_package_of_the_same_name_from_elsewhere_is_refused_with_its_place(
    tmp_path: Path,
) -> None:
    """Packages of this project have plain names, which packages of other projects may have, too.

    A package of another project may come earlier on Python's path.
    """
    foreign = tmp_path / "pipeline"
    foreign.mkdir()
    (foreign / "__init__.py").write_text("")
    done = subprocess.run(
        [sys.executable, "-c", "import coordlab"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{package_root()}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 254  # EXIT_BAD_ARGUMENTS, and not a verdict of a run
    assert f"`pipeline` would be imported from {foreign}" in done.stderr
    assert done.stdout == ""
