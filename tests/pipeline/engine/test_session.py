"""Spark's session as a user meets it: no output, no files left, no process left.

The fixture `spark` is a session in this process; it skips the test if there is no Java. SCRIPT
opens a session of its own in another process. In SCRIPT, `folder` is the folder of Spark's working
files, and `process` is the JVM (the Java process in which Spark runs).
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pipeline.engine.run_files import RunNameClash, find_run_files
from pipeline.engine.session import JavaMissing, spark_session
from pipeline.intermediate.groups import offsets_partition_of
from pipeline.run import analyze
from protocol.partitioner import partition_for as partition_for_in_python

ROOT = Path(__file__).parents[3]
SCRIPT = """
import tempfile
from pathlib import Path
from pipeline.engine.session import spark_session
with spark_session(short_work=True) as spark:
    folder = Path(spark.conf.get("spark.local.dir"))
    process = spark.sparkContext._gateway.proc
    print(spark.conf.get("spark.driver.host"), spark.range(10).repartition(2).count())
print(folder.exists(), process.poll() is not None)
"""
"""A program that opens a session and prints its host and a count; then, after the end of the
session, whether its folder exists and whether its JVM has ended."""


@pytest.mark.spark
@pytest.mark.slow
def test_session_is_quiet_and_leaves_nothing_behind(spark: SparkSession, tmp_path: Path) -> None:
    """JVM warnings would hide a summary on the terminal; files of a metastore must not be left."""
    assert spark.version  # a Java exists here, so a failure below is a fault of the project
    temp, work = tmp_path / "temp", tmp_path / "work"
    temp.mkdir()
    work.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=work,
        env=os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": str(temp)},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    # The last line says: the folder no longer exists, and the JVM has ended.
    assert (done.stdout, done.stderr) == ("127.0.0.1 10\nFalse True\n", "")
    assert list(work.iterdir()) == []
    assert list(temp.iterdir()) == []


def test_session_without_java_names_the_version_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The session is refused before the JVM's launcher prints its message, which explains less."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaMissing, match="Install Java 17"), spark_session():
        pytest.fail("a session without Java")


def test_analyze_of_a_missing_directory_is_refused_immediately(tmp_path: Path) -> None:
    """A misspelt path must not look like an empty run."""
    with pytest.raises(FileNotFoundError, match="no run directory"):
        analyze([tmp_path / "nowhere"])
    assert analyze([]) == ()  # nothing to analyse is no error


def test_two_runs_of_one_name_are_refused(tmp_path: Path) -> None:
    """In one table, the rows of the two runs could not be distinguished."""
    for root in ("a", "b"):
        (tmp_path / root / "crash" / "1").mkdir(parents=True)
    with pytest.raises(RunNameClash, match="crash/1"):
        find_run_files([tmp_path / "a" / "crash" / "1", tmp_path / "b" / "crash" / "1"])


@pytest.mark.spark
def test_partition_for_in_spark_is_kafkas(spark: SparkSession) -> None:
    """A group's offsets partition is `abs(hashCode(name)) % count` (BEHAVIOUR 2.1).

    The hash code of "polygenelubricants" is -2**31, which has no positive counterpart in 32 bits.
    The emoji is two UTF-16 units (a surrogate pair) in Java, but one character in Python.
    """
    names = [
        "a",
        "group-1",
        "my-group",
        "polygenelubricants",
        "DESIGNING WORKHOUSES",
        "消费组",
        "😀grp",
    ]
    # `count` is the number of offsets partitions; Kafka's default is 50.
    columns = [
        offsets_partition_of(F.lit(name), F.lit(count)) for name in names for count in (50, 5, 3)
    ]
    [row] = spark.range(1).select(*columns).collect()
    # The other computation of the same rule, in Python.
    assert list(row) == [
        partition_for_in_python(name, count) for name in names for count in (50, 5, 3)
    ]


def test_session_restores_the_former_handler_of_ctrl_c(spark: SparkSession) -> None:
    """Spark's own handler would stay after the session, and handle a later run's Ctrl-C."""
    assert spark.sparkContext.defaultParallelism > 0  # the session exists
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
