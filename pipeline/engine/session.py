"""Opens Spark sessions. They log only errors, and leave no files in the working directory.

Spark runs in a JVM, a Java process that PySpark controls through a "gateway". The driver is the
Python process of the session; the workers are Spark's processes for Python code. A run, the subject
of an analysis, is one execution of an experiment.
"""

import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from py4j.java_gateway import JavaGateway
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.find_spark_home import _find_spark_home
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

import pipeline
from pipeline.engine.java import JavaProblem, find_java
from pipeline.engine.leavings import mark_as_owned, remove_abandoned

LOCAL_MASTER = "local[2]"
"""Spark's master (the place where tasks run) by default: this machine, with two threads for tasks.
"""
TEMP_PREFIX = "coordlab-spark-"
"""Prefix of the names of sessions' temporary folders."""
LOCAL_SHUFFLE_PARTITIONS = 2
"""Shuffle partitions (the parts into which Spark redistributes rows) of a local session. The trace
of one run has some 100,000 rows, so more partitions would only cost their scheduling.
"""
_JVM_EXIT_S = 20
"""Longest wait until the JVM exits by itself. Then it is killed."""

_SHORT_WORK = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.constraintPropagation.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.files.minPartitionNum": "1",
    "spark.sql.inMemoryColumnarStorage.batchSize": "1000",
    "spark.sql.inMemoryColumnarStorage.compressed": "false",
    "spark.driver.memory": "1g",
}
"""Settings for inputs of a few 100,000 rows.

The keys with `codegen` turn off code generation, and `adaptive` turns off new planning between
stages. Together they would take half the time of an analysis of this size (measured on two cores).
Without `constraintPropagation`, planning is faster. There is little data, so one partition is
enough (`partitions`, `minPartitionNum`). Cached columns are kept in small batches (`batchSize`), so
that a reader skips the batches that hold none of its rows, and they are not compressed.
"""
LONG_WORK = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.requireAllClusterKeysForCoPartition": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.inMemoryColumnarStorage.compressed": "false",
}
"""Settings for inputs that are partitioned by run (`table_store.FileStore`).

With `requireAllClusterKeysForCoPartition` off, a join on the run and other columns needs no
shuffle (redistribution of rows). With `adaptive` off, no stage waits for a new plan.
The two other features would cost more than they save, as measured on an analysis of 40 runs:
- whole-stage code generation takes a sixth of the processor time, and most of the 200 stages have
  too few rows to gain from it;
- compression of cached results takes a fifth of the processor time.
"""
_SHORT_LIVED_JVM = (
    "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m "
    "-XX:+UseSerialGC -Xms1g -Xmn500m -XX:MetaspaceSize=300m"
)
"""Options of the JVM for short work (an analysis of a few 100,000 rows).

The JVM compiles each method with its fast compiler only, and collects garbage rarely. The metaspace
(the memory for classes) is so large that loading Spark's 20,000 classes causes no collection.
"""
_FIRST_JARS = (
    "spark-catalyst",
    "spark-core",
    "scala-library",
    "spark-sql-api",
    "spark-sql",
    "scala-reflect",
    "log4j-core",
    "parquet-column",
    "hadoop-client-api",
    "jackson-databind",
    "parquet-jackson",
    "janino",
    "parquet-encoding",
    "spark-network-common",
)
"""Names of the few jars, of Spark's 280, that hold most classes. For each class Java searches the
jars in order. With these jars first, a short analysis takes a fifteenth less time.
"""

_QUIET_LOGGING = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = spark %p %c{1}: %m%n
logger.shutdown.name = org.apache.spark.util.ShutdownHookManager
logger.shutdown.level = off
"""
"""Spark logs only errors, on stderr. Its ShutdownHookManager, which deletes Spark's own temporary
folders when the JVM exits, does not log even errors.
"""


class JavaMissing(Exception):
    """No usable Java was found; the message names what was found and what to install."""

    def __init__(self, problem: JavaProblem) -> None:
        super().__init__(f"Spark cannot start: {problem.found}. {problem.advice}")
        self.problem = problem


class SparkStartError(Exception):
    """Spark's JVM did not start; the message holds the JVM's output."""


@contextmanager
def spark_session(
    master: str | None = None, *, short_work: bool = False, name: str = "coordlab"
) -> Iterator[SparkSession]:
    """Open a Spark session on `master`, and end the session and its JVM after the block.

    If `master` is None, the session runs on this machine.

    `short_work` tunes a local session for little data: the session starts sooner, but computes
    slower. A local session listens on the loopback address only. Spark writes its working files
    (shuffles, native libraries, its log) to a temporary folder. The session removes the folder when
    it ends; if the session's process was killed, the next session on this machine removes it.
    Raises: JavaMissing; SparkStartError, with the JVM's output.
    """
    java = find_java()
    if isinstance(java, JavaProblem):
        raise JavaMissing(java)
    remove_abandoned(Path(tempfile.gettempdir()), f"{TEMP_PREFIX}*")

    with tempfile.TemporaryDirectory(prefix=TEMP_PREFIX, ignore_cleanup_errors=True) as temp:
        mark_as_owned(Path(temp))
        settings = _settings(master or LOCAL_MASTER, name, Path(temp), short_work=short_work)
        with _jvm(settings, Path(temp) / "jvm.log") as gateway:
            conf = SparkConf(_jvm=gateway.jvm).setAll(list(settings.items()))
            with _preserve_sigint():
                context = SparkContext(conf=conf, gateway=gateway)
            # By default the workers run the first `python3` of the PATH, which may lack the
            # packages of this process.
            context.pythonExec = _python_of_workers(context)
            session = SparkSession(context)
            try:
                yield session
            finally:
                session.stop()


@contextmanager
def _preserve_sigint() -> Iterator[None]:
    """Restore the process's handler of SIGINT, which the start of Spark replaces.

    Spark's handler cancels all jobs. It is not needed, because on a KeyboardInterrupt
    `table_graph.compute`, which waits for the jobs, cancels them, and `spark_session` then ends the
    session.
    """
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        # Only the main thread can set a handler. `before` is None if code outside Python set it.
        if before is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


def _python_of_workers(context: SparkContext) -> str:
    """Return the Python of Spark's workers: the driver's own if the workers run on this machine."""
    if context.master.startswith("local"):
        return sys.executable
    return os.environ.get("PYSPARK_PYTHON", sys.executable)


def _settings(master: str, name: str, temp: Path, *, short_work: bool) -> dict[str, str]:
    """Return Spark's settings for a session whose files all lie in `temp`."""
    local = master.startswith("local")
    tuning = _SHORT_LIVED_JVM if local and short_work else ""
    logging = temp / "log4j2.properties"
    logging.write_text(_QUIET_LOGGING)

    settings = {
        "spark.master": master,
        "spark.app.name": name,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.warehouse.dir": (temp / "warehouse").as_uri(),
        "spark.sql.session.timeZone": "UTC",
        "spark.executorEnv.PYTHONPATH": str(Path(pipeline.__file__).parents[1]),
        "spark.driver.extraJavaOptions": (
            f"-Dlog4j2.configurationFile={logging.as_uri()} -Djava.io.tmpdir={temp} {tuning}"
        ),
    }
    if local:
        settings |= {
            "spark.local.dir": str(temp),
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.sql.shuffle.partitions": str(LOCAL_SHUFFLE_PARTITIONS),
        }

    if not short_work:
        settings |= LONG_WORK
        if local:
            settings["spark.driver.memory"] = "2g"
    elif local:
        # Short work on a cluster keeps the cluster's settings. Here one shuffle partition replaces
        # LOCAL_SHUFFLE_PARTITIONS.
        settings |= _SHORT_WORK
        settings["spark.driver.extraClassPath"] = os.pathsep.join(_first_jars())
    return settings


def _first_jars() -> list[str]:
    """Return the paths of the jars in _FIRST_JARS, as far as this Spark has them."""
    jars = Path(_find_spark_home()) / "jars"
    # The pattern demands a version after the name (`spark-sql_2.13-4.0.0.jar`), so that `spark-sql`
    # does not match the jar `spark-sql-api`.
    by_name = [sorted(jars.glob(f"{name}[-_][0-9]*.jar")) for name in _FIRST_JARS]
    return [str(path) for paths in by_name for path in paths]


@contextmanager
def _jvm(settings: dict[str, str], log: Path) -> Iterator[JavaGateway]:
    """Start a JVM that writes its output to `log`, and end it when the block ends.

    PySpark itself would start one JVM for the whole process. That JVM would print on the terminal,
    and would not end with the session.
    """
    conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    with log.open("wb") as output:
        try:
            gateway = launch_gateway(conf, {"stdout": output, "stderr": output})
        except PySparkRuntimeError as error:
            output_text = log.read_text(errors="replace").strip()
            raise SparkStartError(f"Spark's JVM did not start: {output_text or error}") from error
        try:
            yield gateway
        finally:
            gateway.shutdown()
            # SparkContext keeps the gateway in class attributes. The next session would reuse this
            # gateway, although it is shut down.
            SparkContext._gateway = None
            SparkContext._jvm = None
            _end_jvm(gateway.proc)


def _end_jvm(process: subprocess.Popen[bytes] | None) -> None:
    """End the JVM: close its standard input, and kill the JVM if it does not exit in time.

    PySpark starts the JVM in a mode in which it exits when its standard input ends.
    """
    if process is None or process.stdin is None:
        return
    process.stdin.close()
    try:
        process.wait(_JVM_EXIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
