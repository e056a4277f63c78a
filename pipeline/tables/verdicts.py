"""The table `verdicts`: what each check of a run found, copied from the run's JSON files.

A check looks whether the cluster kept one of Kafka's promises, such as that no acknowledged commit
is lost. Each violation of the promise is a finding.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

MANIFEST = "manifest.json"
RESULTS = "results.json"
_MANIFEST_SCHEMA = "experiment string, runtime string, seed long"
_RESULTS_SCHEMA = (
    "verdict string, "
    "checks array<struct<check string, outcome string, findings_total long, note string>>"
)


def verdicts(documents: DataFrame) -> DataFrame:
    """List the outcomes of the checks of each run, as they are in its results.json.

    The manifest.json tells what was run. `documents` has one row per run and JSON file
    (`run_documents.read_documents`). Output grain: one row per run and check. A run of which no
    check is known has one row, in which `check` is null.
    Columns:
    - `run`, `check` (a name such as fencing);
    - `outcome` of the check (pass | violated | inconclusive | nothing_seen);
    - `findings`: the number of findings (`findings_total` in the file; the file describes only the
      first findings);
    - `note`: what the check could not judge;
    - `verdict` of the run (pass | violated | unknown), `runtime` (virtual | local | ray), `seed`,
      `experiment`.

    Nulls:
    - `check`, `outcome`, `findings`, `note` if the run was interrupted before its checks, or if its
      results file is missing or incomplete;
    - `verdict` if the results file is missing or incomplete;
    - `runtime`, `seed`, `experiment` if the manifest is missing or incomplete.

    A run that has neither of the two files has no row.
    """
    by_run = documents.groupBy("run").agg(
        _parsed(MANIFEST, _MANIFEST_SCHEMA).alias("manifest"),
        _parsed(RESULTS, _RESULTS_SCHEMA).alias("results"),
    )
    # `explode_outer` keeps the row of a run without checks; `explode` would drop it.
    return by_run.select(
        "run", "manifest", "results.verdict", F.explode_outer("results.checks").alias("report")
    ).select(
        "run",
        "report.check",
        "report.outcome",
        F.col("report.findings_total").alias("findings"),
        "report.note",
        "verdict",
        "manifest.runtime",
        "manifest.seed",
        "manifest.experiment",
    )


def _parsed(document: str, schema: str) -> Column:
    """Return a JSON file of a run as a struct; the fields are null if it is missing or damaged."""
    # A run has at most one file of each name, and `max` picks it.
    text = F.max(F.when(F.col("document") == document, F.col("text")))
    return F.from_json(text, schema, {"mode": "PERMISSIVE"})
