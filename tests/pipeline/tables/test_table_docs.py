"""What people read about the tables agrees with the files that the analysis writes.

People read docs/TABLES.md, and the docstrings of the Spark functions that compute the tables (the
transforms). Such a docstring must say what one row stands for ("Output grain:"), what nulls mean,
and name every column.
"""

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
    """Return the columns of each table with their types, as docs/TABLES.md lists them.

    For example, {"runs": [("run", "string"), ...], ...}. The page has a section for each table.
    """
    tables: dict[str, list[tuple[str, str]]] = {}
    for line in PAGE.read_text().splitlines():
        if heading := re.fullmatch(r"## (\w+)", line):
            columns = tables.setdefault(heading[1], [])
        # A row belongs to the table of the heading above.
        elif row := re.fullmatch(r"\| `(\w+)` \| (\S+) \| .*\|", line):
            columns.append((row[1], row[2]))
    return tables


def test_tables_page_lists_every_column_with_its_type() -> None:
    """The page lists the columns in the order in which the files have them."""
    declared = {name: list(columns.items()) for name, columns in TABLE_COLUMNS.items()}
    assert _documented() == declared
    assert declared.keys() == set(TABLE_NAMES)


@pytest.mark.parametrize("run", ["crash", "empty"])
def test_written_tables_have_their_columns(analysed: AnalysedRuns, run: str) -> None:
    """The run `empty` has no rows, but its tables have all columns, too."""
    for name in TABLE_NAMES:
        written = pq.read_table(analysed.directories[run] / "tables" / name).schema
        assert written.names == list(TABLE_COLUMNS[name]), name
        # Arrow names the values of a list "item", Spark's files "element".
        types = [str(field.type).replace("element:", "item:") for field in written]
        assert types == [
            str(field.type).replace("element:", "item:") for field in arrow_schema(name)
        ], name


def test_version_of_the_tables_is_raised_with_their_columns() -> None:
    """If the columns change, reports must recognise tables of older versions as outdated.

    If this fails: raise TABLES_VERSION, and write the new version and digest of the columns here.
    """
    digest_of_columns = hashlib.sha256(repr(_documented()).encode()).hexdigest()[:12]
    assert (TABLES_VERSION, digest_of_columns) == (7, "521cdc1f438b")


def test_transforms_name_their_grain_and_every_column(analysed: AnalysedRuns) -> None:
    """A docstring says what a row stands for, what nulls mean, and names every column."""
    missing = []
    for step in STEPS:
        # The results of other steps are only inputs of further steps. docs/TABLES.md omits them.
        if step.result != "table":
            continue
        name, docstring = step.name, step.transform.__doc__ or ""
        schema = pq.read_table(analysed.directories["crash"] / "tables" / name).schema
        missing += [
            f"{name}: {heading}"
            for heading in ("Output grain:", "Nulls:")
            if heading not in docstring
        ]
        missing += [
            f"{name}: {column}" for column in schema.names if f"`{column}`" not in docstring
        ]
    assert missing == []
