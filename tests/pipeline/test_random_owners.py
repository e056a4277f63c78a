"""Owners, overlaps and duplicates of random traces, against a model in plain Python.

The traces hold what no hand-written story thinks of: members that are assigned what they own, give
up what they do not, die paused, and process what they never owned.
"""

import pytest
from pyspark.sql import SparkSession

from pipeline.tables import analyze
from tests.support.ownership_model import Owned, owned_by, random_owners
from tests.support.trace_builder import read_table, write_run

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

SEEDS = range(24)


@pytest.fixture(scope="module")
def runs(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> list[tuple[Owned, dict[str, list[dict[str, object]]]]]:
    """Analyse all random runs in one call: each as the model has it, and as Spark does."""
    base = tmp_path_factory.mktemp("random")
    traces = [random_owners(seed) for seed in SEEDS]
    directories = [
        write_run(base / "random" / str(seed), rows)
        for seed, rows in zip(SEEDS, traces, strict=True)
    ]
    analyze(directories, spark=spark)
    names = ("ownership", "ownership_overlaps", "processing")
    return [
        (owned_by(rows), {name: read_table(directory, name) for name in names})
        for rows, directory in zip(traces, directories, strict=True)
    ]


def test_ownership_of_random_members_is_the_models(
    runs: list[tuple[Owned, dict[str, list[dict[str, object]]]]],
) -> None:
    """Each interval once, with its end, its pauses and its records."""
    columns = (
        "partition",
        "consumer",
        "incarnation",
        "from_us",
        "to_us",
        "ended_by",
        "paused_us",
        "records",
    )
    for model, tables in runs:
        expected = [tuple(getattr(each, name) for name in columns) for each in model.intervals]
        found = [tuple(row[name] for name in columns) for row in tables["ownership"]]
        assert sorted(found, key=str) == sorted(expected, key=str)
    assert sum(len(model.intervals) for model, _ in runs) > 100


def test_ownership_overlaps_of_random_members_are_the_models(
    runs: list[tuple[Owned, dict[str, list[dict[str, object]]]]],
) -> None:
    """Each pair once, in the order in which they began, with the records that both processed."""
    key = ("partition", "first_consumer", "second_consumer", "from_us", "to_us")
    for model, tables in runs:
        rows = tables["ownership_overlaps"]
        found = {tuple(row[name] for name in key): row["records_both"] for row in rows}
        assert len(found) == len(rows)
        assert found == model.overlaps
    assert any(both for model, _ in runs for both in model.overlaps.values())


def test_processing_of_random_members_is_the_models(
    runs: list[tuple[Owned, dict[str, list[dict[str, object]]]]],
) -> None:
    """A record is repeated for whoever processed it later, owner or not."""
    for model, tables in runs:
        found = {
            (row["partition"], row["consumer"]): {
                "records": row["records"],
                "repeated": row["repeated"],
            }
            for row in tables["processing"]
        }
        assert found == model.processing
    assert any(counts["repeated"] for model, _ in runs for counts in model.processing.values())
