"""Spark sessions: quiet, local by default, leaving nothing in the working directory."""

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
TEMP_PREFIX = "coordlab-spark-"
"""Begins the name of a session's temporary folder."""
LOCAL_SHUFFLE_PARTITIONS = 2
"""A run has some 100,000 rows: more partitions only cost their scheduling."""
_JVM_EXIT_S = 20

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
"""For inputs of a few 100,000 rows, where generating and compiling code, and planning anew between
stages, takes longer than the work: half the time of an analysis, as measured on two cores. Small
batches of cached columns let a reader skip those that hold no row that it wants.
"""
LONG_WORK = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.requireAllClusterKeysForCoPartition": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.inMemoryColumnarStorage.compressed": "false",
}
"""For inputs that lie by run (`table_store.FileStore`): a join on the run and other columns needs
no shuffle, and no stage waits for a new plan. Of an analysis of 40 runs whole-stage code took a
sixth of the processor time: 200 stages are compiled, and most have few rows. Compressing what is
kept took another fifth.
"""
_SHORT_LIVED_JVM = (
    "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m "
    "-XX:+UseSerialGC -Xms1g -Xmn500m -XX:MetaspaceSize=300m"
)
"""Compile once and never again; collect rarely, and not because 20,000 classes are loaded."""
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
"""Most classes come from these of Spark's 280 jars, which Java searches one after another for each
class: put first, they save a fifteenth of a short analysis.
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


class JavaMissing(Exception):
    """There is no Java for Spark; says what was found and what to install."""

    def __init__(self, problem: JavaProblem) -> None:
        super().__init__(f"Spark cannot start: {problem.found}. {problem.advice}")
        self.problem = problem


class SparkStartError(Exception):
    """Spark's JVM did not start; says what it printed."""


@contextmanager
def spark_session(
    master: str | None = None, *, short_work: bool = False, name: str = "coordlab"
) -> Iterator[SparkSession]:
    """Open a Spark session on `master` (None: on this machine) and end it, its JVM included.

    `short_work` tunes a local one for little data: it starts sooner and runs slower. A local
    session listens on the loopback address only. Everything that Spark writes while it works
    (shuffles, native libraries, its own log) goes to a temporary folder that is removed, at
    the latest by the next session on this machine.
    Raises: JavaMissing; SparkStartError, with what the JVM said.
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
            with _keeping_sigint():
                context = SparkContext(conf=conf, gateway=gateway)
            context.pythonExec = _python_of_workers(context)
            session = SparkSession(context)
            try:
                yield session
            finally:
                session.stop()


@contextmanager
def _keeping_sigint() -> Iterator[None]:
    """Let the process's own handler of Ctrl-C outlive the start of Spark, which puts its own there.

    Whoever is interrupted ends Spark's jobs by itself (`table_graph`), and the session after them.
    """
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if before is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


def _python_of_workers(context: SparkContext) -> str:
    """Return the Python that runs this package's own functions: on this machine the driver's."""
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
    if local and not short_work:
        settings |= {"spark.driver.memory": "2g"}
    if local and short_work:
        settings |= _SHORT_WORK
        settings["spark.driver.extraClassPath"] = os.pathsep.join(_first_jars())
    return settings


def _first_jars() -> list[str]:
    """Return those of Spark's own jars that are searched first; those not found are left out."""
    jars = Path(_find_spark_home()) / "jars"
    # A version follows the name, `spark-sql_2.13-4.0.0.jar`: it tells spark-sql from spark-sql-api.
    found = [sorted(jars.glob(f"{name}[-_][0-9]*.jar")) for name in _FIRST_JARS]
    return [str(path) for paths in found for path in paths]


@contextmanager
def _jvm(settings: dict[str, str], log: Path) -> Iterator[JavaGateway]:
    """Start a JVM that writes to `log` instead of the terminal, and end it at the end.

    PySpark by itself starts one JVM per process, lets it print on our terminal and keeps it.
    """
    conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    with log.open("wb") as output:
        try:
            gateway = launch_gateway(conf, {"stdout": output, "stderr": output})
        except PySparkRuntimeError as error:
            said = log.read_text(errors="replace").strip()
            raise SparkStartError(f"Spark's JVM did not start: {said or error}") from error
        try:
            yield gateway
        finally:
            gateway.shutdown()
            # The class remembers the gateway; the next session must not find the dead one.
            SparkContext._gateway = None
            SparkContext._jvm = None
            _end(gateway.proc)


def _end(process: subprocess.Popen[bytes] | None) -> None:
    """End the JVM as PySpark's launcher means it: it exits when its standard input closes."""
    if process is None or process.stdin is None:
        return
    process.stdin.close()
    try:
        process.wait(_JVM_EXIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
