"""`find_java` looks for a Java that Spark can use, before Spark is started."""

from pathlib import Path

import pytest

from pipeline.engine.java import JavaInfo, JavaProblem, find_java, parse_version


@pytest.mark.parametrize(
    ("printed", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment', 17),
        ('java version "1.8.0_402"', 8),
        ('openjdk version "25" 2025-09-16 LTS', 25),
        ('openjdk version "18-ea" 2022-03-22', 18),
        ("command not found", None),
    ],
)
def test_parse_version_of_each_spelling_is_the_major_version(
    printed: str, version: int | None
) -> None:
    """Java up to 8 names its version 1.x; an early access version, such as 18-ea, has no dots."""
    assert parse_version(printed) == version


def _java(folder: Path, script: str) -> Path:
    """Write a script that stands for `java`, and return its path.

    A real `java -version` prints to stderr, so the scripts do the same.
    """
    path = folder / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def test_find_java_prefers_java_home_as_spark_does(tmp_path: Path) -> None:
    """Spark's launcher ignores the PATH when JAVA_HOME is set."""
    java_21 = _java(tmp_path / "home", "echo 'openjdk version \"21.0.1\"' >&2")
    java_17 = _java(tmp_path / "other", "echo 'openjdk version \"17.0.1\"' >&2")
    environ = {"JAVA_HOME": str(tmp_path / "home"), "PATH": str(java_17.parent)}
    assert find_java(environ) == JavaInfo(path=java_21, version=21)
    assert find_java({"PATH": str(java_17.parent)}) == JavaInfo(path=java_17, version=17)


@pytest.mark.parametrize(
    ("script", "problem_text"),
    [
        ("echo 'openjdk version \"11.0.2\"' >&2", "Java 11"),
        ("echo broken >&2; exit 1", "does not tell its version"),
        (None, "no bin/java"),  # JAVA_HOME is an empty folder
    ],
)
def test_find_java_without_a_suitable_one_names_the_package(
    tmp_path: Path, script: str | None, problem_text: str
) -> None:
    """The advice must name the version that Spark needs, and how to choose another Java."""
    if script is not None:
        _java(tmp_path, script)
    problem = find_java({"JAVA_HOME": str(tmp_path)})
    assert isinstance(problem, JavaProblem)
    assert problem_text in problem.found
    assert "17" in problem.advice
    assert "JAVA_HOME" in problem.advice


def test_find_java_with_nothing_on_the_path_is_an_error() -> None:
    """A machine without Java is common when a user first tries the program."""
    problem = find_java({"PATH": ""})
    assert isinstance(problem, JavaProblem)
    assert "no java on the PATH" in problem.found
