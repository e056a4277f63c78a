"""Opens Spark sessions that suit coordlab.

A session of plain PySpark prints warnings, leaves files in the working directory, and keeps its JVM
(the Java process in which Spark runs) until the process ends. A session of this module logs only
errors, keeps its files in a temporary folder, and ends its JVM when the session ends. It also has
settings with which little data is analysed in seconds.
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
"""Where Spark runs its tasks by default: on this machine, in two threads."""
TEMP_PREFIX = "coordlab-spark-"
"""The names of the temporary folders of sessions begin with this."""
LOCAL_SHUFFLE_PARTITIONS = 2
"""Number of parts into which Spark divides the rows in a local session. The trace of one run has
some 100,000 rows, so more parts would only cost more scheduling.
"""
_JVM_EXIT_S = 20
"""Seconds to wait until the JVM exits by itself. If it does not, it is killed."""

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
"""Settings for traces of a few 100,000 rows.

Spark is made for much data. With little data, most of its time goes into preparation. So these
settings turn much of the preparation off:

- `codegen`, `adaptive`: Spark generates no code and does not plan again between stages. The two
  together would take half of the time of such an analysis (measured on two cores).
- `constraintPropagation`: planning is faster without it.
- `partitions`, `minPartitionNum`: one partition is enough for little data.
- `batchSize`: cached columns are kept in small batches. So a reader can skip the batches in which
  none of its rows are.
- `compressed`: cached columns are not compressed.
"""
LONG_WORK = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.requireAllClusterKeysForCoPartition": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.inMemoryColumnarStorage.compressed": "false",
}
"""Settings for larger traces, whose rows are divided by run (`table_store.FileStore`).

- `adaptive`: no stage waits for a new plan.
- `requireAllClusterKeysForCoPartition`: a join on the run and other columns needs no shuffle (no
  redistribution of rows), because all rows of a run are in one partition.
- `codegen.wholeStage`: generating code would take a sixth of the processor time of an analysis of
  40 runs, and most of its 200 stages have too few rows to gain from it.
- `compressed`: compressing cached results would take a fifth of the processor time.
"""
_SHORT_LIVED_JVM = (
    "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m "
    "-XX:+UseSerialGC -Xms1g -Xmn500m -XX:MetaspaceSize=300m"
)
"""Options of a JVM that lives only for an analysis of a few 100,000 rows.

With these options, the JVM compiles each method with its fast compiler only, and collects garbage
rarely. The metaspace (the memory for classes) is so large that loading Spark's 20,000 classes
causes no collection.
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
"""Names of the jars that Java shall search first. Spark has 280 jars, and Java searches them in
order for each class. These few have most of the classes. If they come first, a short analysis takes
a fifteenth less time.
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
"""Settings with which Spark logs only errors, on stderr. Spark's ShutdownHookManager, which deletes
temporary folders when the JVM exits, does not even log errors.
"""


class JavaMissing(Exception):
    """No usable Java was found. The message tells what was found, and what to install."""

    def __init__(self, problem: JavaProblem) -> None:
        super().__init__(f"Spark cannot start: {problem.found}. {problem.advice}")
        self.problem = problem


class SparkStartError(Exception):
    """Spark's JVM did not start. The message has the JVM's output."""


@contextmanager
def spark_session(
    master: str | None = None, *, short_work: bool = False, name: str = "coordlab"
) -> Iterator[SparkSession]:
    """Open a Spark session on `master`, and end the session and its JVM after the block.

    If `master` is None, the session runs on this machine (is local). `short_work` tunes a local
    session for little data: the session starts sooner, but computes slower. A local session listens
    on the loopback address only.

    Spark writes its working files to a temporary folder, which is removed when the session ends. If
    the process is killed before, the next session on this machine removes the folder.
    Raises: JavaMissing if there is no usable Java; SparkStartError if Spark's JVM does not start.
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
            # By default, Spark's workers run the first `python3` of the PATH, which may not have
            # the packages that this process has.
            context.pythonExec = _python_of_workers(context)
            session = SparkSession(context)
            try:
                yield session
            finally:
                session.stop()


@contextmanager
def _preserve_sigint() -> Iterator[None]:
    """Restore the process's handler of SIGINT, which the start of Spark replaces.

    Spark's handler cancels all jobs. It is not needed, because after a KeyboardInterrupt
    `table_graph.compute` cancels its jobs, and `spark_session` ends the session.
    """
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        # Only the main thread can set a handler. `handler` is None if the handler was set by code
        # outside of Python.
        if handler is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, handler)


def _python_of_workers(context: SparkContext) -> str:
    """Return the Python for Spark's workers: that of this process if they run on this machine."""
    if context.master.startswith("local"):
        return sys.executable
    return os.environ.get("PYSPARK_PYTHON", sys.executable)


def _settings(master: str, name: str, temp: Path, *, short_work: bool) -> dict[str, str]:
    """Return Spark's settings for a session whose files are all in the folder `temp`."""
    local = master.startswith("local")
    jvm_tuning = _SHORT_LIVED_JVM if local and short_work else ""
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
            f"-Dlog4j2.configurationFile={logging.as_uri()} -Djava.io.tmpdir={temp} {jvm_tuning}"
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
        # This also replaces LOCAL_SHUFFLE_PARTITIONS by 1. Short work on a cluster keeps the
        # cluster's settings.
        settings |= _SHORT_WORK
        settings["spark.driver.extraClassPath"] = os.pathsep.join(_first_jars())
    return settings


def _first_jars() -> list[str]:
    """Return the paths of the jars in _FIRST_JARS, as far as this Spark has them."""
    jars = Path(_find_spark_home()) / "jars"
    # A version must follow the name, as in `spark-sql_2.13-4.0.0.jar`. Otherwise the name
    # `spark-sql` would also find the jar of `spark-sql-api`.
    paths_by_name = [sorted(jars.glob(f"{name}[-_][0-9]*.jar")) for name in _FIRST_JARS]
    return [str(path) for paths in paths_by_name for path in paths]


@contextmanager
def _jvm(settings: dict[str, str], log: Path) -> Iterator[JavaGateway]:
    """Start a JVM that writes its output to `log`, and end it when the block ends.

    PySpark controls the JVM through an object that it calls gateway. PySpark itself would start one
    JVM for the whole process, which prints on the terminal and does not end with the session.
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
            # SparkContext keeps the gateway in class attributes. If they were not reset, the next
            # session would use this gateway again, although it is shut down.
            SparkContext._gateway = None
            SparkContext._jvm = None
            _end_jvm(gateway.proc)


def _end_jvm(process: subprocess.Popen[bytes] | None) -> None:
    """End the JVM; kill it if it does not exit in time.

    PySpark starts a JVM in such a way that it exits when its standard input is closed.
    """
    if process is None or process.stdin is None:
        return
    process.stdin.close()
    try:
        process.wait(_JVM_EXIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
