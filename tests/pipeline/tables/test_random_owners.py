"""Spark's tables of owners, overlaps and repeated records equal a model in plain Python.

The traces of these tests are random, and about members only. The traces have cases that a person
would hardly write down: members are assigned partitions that they own already, revoke partitions of
other members, die while they are paused, and process partitions that they never owned. The model
reads the rows of a trace one by one, and remembers which member owns which partition.
"""

import pytest

from tests.support.random_worlds.random_runs import AnalysedRun
from tests.support.reference.ownership_model import Owned, owned_by

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def runs(random_runs: tuple[AnalysedRun, ...]) -> list[tuple[Owned, AnalysedRun]]:
    """Return pairs of the model's result and Spark's analysis, for the runs named `owners/...`."""
    return [(owned_by(run.rows), run) for run in random_runs if run.run.startswith("owners/")]


def test_ownership_of_random_members_equals_the_model(
    runs: list[tuple[Owned, AnalysedRun]],
) -> None:
    """Each interval of ownership occurs once, with its end, its pauses and its records."""
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
    for model, run in runs:
        expected = [
            tuple(getattr(interval, name) for name in columns) for interval in model.intervals
        ]
        rows_by_spark = [tuple(row[name] for name in columns) for row in run.table("ownership")]
        # The rows are sorted as texts, because a row may have None in place of a number.
        assert sorted(rows_by_spark, key=str) == sorted(expected, key=str)
    # With only a few intervals the comparison would prove little.
    assert sum(len(model.intervals) for model, _ in runs) > 100


def test_ownership_overlaps_of_random_members_equal_the_model(
    runs: list[tuple[Owned, AnalysedRun]],
) -> None:
    """Each pair of owners occurs once, the earlier owner first, with the records of both."""
    key = ("partition", "first_consumer", "second_consumer", "from_us", "to_us")
    for model, run in runs:
        rows = run.table("ownership_overlaps")
        overlaps = {tuple(row[name] for name in key): row["records_both"] for row in rows}
        assert len(overlaps) == len(rows)  # each key occurs once
        assert overlaps == model.overlaps
    # In some overlaps, both owners processed the same records.
    assert any(records_both for model, _ in runs for records_both in model.overlaps.values())


def test_processing_of_random_members_equals_the_model(
    runs: list[tuple[Owned, AnalysedRun]],
) -> None:
    """A record that two members process counts as repeated for the later member, owner or not."""
    for model, run in runs:
        counts_by_spark = {
            (row["partition"], row["consumer"]): {
                "records": row["records"],
                "repeated": row["repeated"],
            }
            for row in run.table("processing")
        }
        assert counts_by_spark == model.processing
    # In some runs, records were processed again.
    assert any(counts["repeated"] for model, _ in runs for counts in model.processing.values())
