"""docs/TABLES.md and the docstrings agree with the written tables."""

import hashlib
import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pipeline.all_tables import STEPS, TABLE_NAMES
from pipeline.summary.summary_file import TABLES_VERSION
from pipeline.table_columns import TABLE_COLUMNS, arrow_schema
from tests.support.worlds.analysed_runs import AnalysedRuns

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

PAGE = Path(__file__).parents[3] / "docs" / "TABLES.md"


def _documented() -> dict[str, list[tuple[str, str]]]:
    """Return each section's columns with their types, in order."""
    tables: dict[str, list[tuple[str, str]]] = {}
    for line in PAGE.read_text().splitlines():
        if heading := re.fullmatch(r"## (\w+)", line):
            columns = tables.setdefault(heading[1], [])
        elif row := re.fullmatch(r"\| `(\w+)` \| (\S+) \| .*\|", line):
            columns.append((row[1], row[2]))
    return tables


def test_tables_page_lists_every_column_with_its_type() -> None:
    """The order is that of the files."""
    declared = {name: list(columns.items()) for name, columns in TABLE_COLUMNS.items()}
    assert _documented() == declared
    assert declared.keys() == set(TABLE_NAMES)


@pytest.mark.parametrize("run", ["crash", "empty"])
def test_written_tables_have_their_columns(analysed: AnalysedRuns, run: str) -> None:
    """The tables of a run without rows (`empty`) have all columns, too."""
    for name in TABLE_NAMES:
        written = pq.read_table(analysed.directories[run] / "tables" / name).schema
        assert written.names == list(TABLE_COLUMNS[name]), name
        # Arrow names the values of a list "item", Spark's files "element".
        kinds = [str(field.type).replace("element:", "item:") for field in written]
        assert kinds == [
            str(field.type).replace("element:", "item:") for field in arrow_schema(name)
        ], name


def test_version_of_the_tables_is_raised_with_their_columns() -> None:
    """Otherwise a report of a run analysed before an update reads missing columns.

    If this fails: raise TABLES_VERSION, and write the new version and digest of the columns here.
    """
    columns = hashlib.sha256(repr(_documented()).encode()).hexdigest()[:12]
    assert (TABLES_VERSION, columns) == (7, "521cdc1f438b")


def test_transforms_name_their_grain_and_every_column(analysed: AnalysedRuns) -> None:
    """A reader of the code needs no other page."""
    missing = []
    for step in STEPS:
        if step.result != "table":
            continue
        name, docstring = step.name, step.transform.__doc__ or ""
        schema = pq.read_table(analysed.directories["crash"] / "tables" / name).schema
        missing += [
            f"{name}: {word}" for word in ("Output grain:", "Nulls:") if word not in docstring
        ]
        missing += [
            f"{name}: {column}" for column in schema.names if f"`{column}`" not in docstring
        ]
    assert missing == []
