"""The JSON files of run directories as rows: what the run itself said of its plan and its end."""

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipeline.engine.events import run_of_file, spark_path
from pipeline.engine.run_files import RunFiles

NAMES = ("manifest.json", "results.json")


def read_documents(spark: SparkSession, runs: Sequence[RunFiles]) -> DataFrame:
    """Read the documents in NAMES of `runs`, those that are there.

    Output grain: one row per run and file. Columns: `run`, `document` (the file's name), `text`,
    as it stands in the file: a run that broke off may have left half of one. Nulls: none.
    """
    paths = [run.directory / name for run in runs for name in NAMES]
    found = [spark_path(path) for path in paths if path.is_file()]
    if not found:
        empty = "run string, document string, text string"
        return spark.createDataFrame([], empty)
    # recursiveFileLookup keeps Spark from reading a folder called `a=b` as a column.
    read = spark.read.option("recursiveFileLookup", "true")
    return read.text(found, wholetext=True).select(
        run_of_file(1).alias("run"),
        F.element_at(F.split("_metadata.file_path", "/"), -1).alias("document"),
        F.col("value").alias("text"),
    )
