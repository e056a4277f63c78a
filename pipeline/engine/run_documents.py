"""Reads the JSON files of runs with Spark: the manifest and the results.

The manifest tells what was run, and the results tell what the checks of the run found. The table
`verdicts` is computed from them.
"""

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipeline.engine.events import run_of_file, spark_path
from pipeline.engine.run_files import RunFiles

NAMES = ("manifest.json", "results.json")
"""Names of the JSON files that are read."""


def read_documents(spark: SparkSession, runs: Sequence[RunFiles]) -> DataFrame:
    """Read the JSON files in NAMES of all `runs`. Files that do not exist are left out.

    Output grain: one row per run and file. Columns: `run`, `document` (the file's name), `text`
    (the file's content, which is not whole if the run broke off while it wrote the file). Nulls:
    none.
    """
    paths = [run.directory / name for run in runs for name in NAMES]
    existing = [spark_path(path) for path in paths if path.is_file()]
    if not existing:
        empty = "run string, document string, text string"
        return spark.createDataFrame([], empty)
    # recursiveFileLookup keeps Spark from reading a folder called `a=b` as a column.
    reader = spark.read.option("recursiveFileLookup", "true")
    return reader.text(existing, wholetext=True).select(
        run_of_file(depth=1).alias("run"),  # these files are in the run directory itself
        F.element_at(F.split("_metadata.file_path", "/"), -1).alias("document"),
        F.col("value").alias("text"),
    )
