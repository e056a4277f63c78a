"""Spark's session as a user meets it: it prints nothing, and leaves no files and no process.

The fixture `spark` opens a session in the process of the tests. If there is no Java, it skips the
test. One test starts SCRIPT, a program that opens a session of its own, to see what the session
prints and which files it leaves.
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
    working_folder = Path(spark.conf.get("spark.local.dir"))
    jvm = spark.sparkContext._gateway.proc
    print(spark.conf.get("spark.driver.host"), spark.range(10).repartition(2).count())
print(working_folder.exists(), jvm.poll() is not None)
"""
"""Prints the host of the session and a count of rows. After the session has ended, it prints
whether the folder of its working files still exists, and whether its Java process has ended."""


@pytest.mark.spark
@pytest.mark.slow
def test_session_is_quiet_and_leaves_nothing_behind(spark: SparkSession, tmp_path: Path) -> None:
    """Warnings of Java would hide what coordlab prints, and Spark's files would surprise a user."""
    assert spark.version  # the fixture found a Java, so that is not why the program below fails
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
    # The folder no longer exists ("False"), and the Java process has ended ("True").
    assert (done.stdout, done.stderr) == ("127.0.0.1 10\nFalse True\n", "")
    assert list(work.iterdir()) == []
    assert list(temp.iterdir()) == []


def test_session_without_java_names_the_version_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The program itself looks for Java, because Spark's own message explains less."""
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
    # Kafka has 50 offsets partitions by default.
    names_and_counts = [(name, count) for name in names for count in (50, 5, 3)]
    columns = [offsets_partition_of(F.lit(name), F.lit(count)) for name, count in names_and_counts]
    (partitions_by_spark,) = spark.range(1).select(*columns).collect()
    # coordlab's brokers compute the same rule in Python.
    assert list(partitions_by_spark) == [
        partition_for_in_python(name, count) for name, count in names_and_counts
    ]


def test_session_restores_the_former_handler_of_ctrl_c(spark: SparkSession) -> None:
    """When Spark starts, it sets its own handler of Ctrl-C, which would stay after the session."""
    assert spark.sparkContext.defaultParallelism > 0  # the session exists
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
