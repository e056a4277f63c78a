"""Finds the Java that Spark will start, without starting Spark.

With this module, `coordlab doctor` tells whether Spark can run here. The search looks in the same
places as Spark's own launcher, in the same order.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

MINIMUM_JAVA = 17
"""The oldest version of Java that Spark 4 supports."""
_VERSION_TIMEOUT_S = 30
"""Seconds to wait for the output of `java -version`."""
_ADVICE = (
    f"Install Java {MINIMUM_JAVA} or newer (Debian and Ubuntu: apt-get install "
    f"openjdk-{MINIMUM_JAVA}-jre-headless; macOS: brew install openjdk@{MINIMUM_JAVA}; others: "
    "https://adoptium.net), or point JAVA_HOME at one that is already there."
)
_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')
"""Finds the version in the output of `java -version`: `version "17.0.9"` gives 17 and 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JavaInfo:
    """A Java on which Spark can run. `path` is the executable, and `version` its major version."""

    path: Path
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JavaProblem:
    """Why Spark cannot start: what was found instead of a usable Java, and what to install."""

    found: str
    advice: str = _ADVICE


def find_java(environ: Mapping[str, str] | None = None) -> JavaInfo | JavaProblem:
    """Find the Java that Spark would start, and ask it for its version (`java -version`).

    This is the Java in JAVA_HOME if the variable is set, otherwise the Java on the PATH. `environ`
    has the environment variables; the default is the environment of this process.
    Source: Spark `bin/spark-class`.
    """
    variables = os.environ if environ is None else environ
    home = variables.get("JAVA_HOME")
    if home:
        path = Path(home) / "bin" / "java"
        if not os.access(path, os.X_OK):
            return JavaProblem(found=f"JAVA_HOME={home}, which has no bin/java")
    else:
        on_path = shutil.which("java", path=variables.get("PATH"))
        if on_path is None:
            return JavaProblem(found="no java on the PATH, and JAVA_HOME is not set")
        path = Path(on_path)
    return _ask_for_version(path)


def _ask_for_version(path: Path) -> JavaInfo | JavaProblem:
    """Run `java -version`, and compare the version with MINIMUM_JAVA."""
    try:
        answer = subprocess.run(
            [str(path), "-version"],
            capture_output=True,
            text=True,
            timeout=_VERSION_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return JavaProblem(found=f"{path}, which does not run: {error}")
    # Java prints its version to stderr. A script that wraps Java may print it to stdout.
    version = parse_version(answer.stderr + answer.stdout)
    if answer.returncode != 0 or version is None:
        return JavaProblem(found=f"{path}, which does not tell its version")
    if version < MINIMUM_JAVA:
        return JavaProblem(found=f"Java {version} ({path}), which is too old")
    return JavaInfo(path=path, version=version)


def parse_version(text: str) -> int | None:
    """Return the major version in the output of `java -version`; None if no version is in it.

    Java 8 and older print `1.8` instead of `8`, so their major version is the second number.
    """
    match = _VERSION.search(text)
    if match is None:
        return None
    major, minor = match.group(1), match.group(2)
    return int(minor) if major == "1" and minor is not None else int(major)
