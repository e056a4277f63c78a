"""The JSON files of run directories as rows: manifest and results, as the run wrote them.

A manifest says what was run. The results say which promises (checked properties) the run kept.
"""

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipeline.engine.events import run_of_file, spark_path
from pipeline.engine.run_files import RunFiles

NAMES = ("manifest.json", "results.json")
"""Names of the JSON files (documents) from which tables are computed."""


def read_documents(spark: SparkSession, runs: Sequence[RunFiles]) -> DataFrame:
    """Read the documents of `runs` that are listed in NAMES and exist.

    Output grain: one row per run and file. Columns: `run`, `document` (the file's name), `text`
    (the file's content, which is incomplete if the run broke off while writing it). Nulls: none.
    """
    paths = [run.directory / name for run in runs for name in NAMES]
    existing = [spark_path(path) for path in paths if path.is_file()]
    if not existing:
        empty = "run string, document string, text string"
        return spark.createDataFrame([], empty)
    # recursiveFileLookup keeps Spark from reading a folder called `a=b` as a column.
    reader = spark.read.option("recursiveFileLookup", "true")
    return reader.text(existing, wholetext=True).select(
        # A document's path has one part below the run directory (the file's name), hence the 1.
        run_of_file(1).alias("run"),
        F.element_at(F.split("_metadata.file_path", "/"), -1).alias("document"),
        F.col("value").alias("text"),
    )
