"""Compare a table that Spark has made of a run with the table of an oracle.

An oracle is a function in plain Python that computes the same table from the rows of the trace. The
two tables are compared row by row and column by column.
"""

from collections.abc import Callable, Iterable, Sequence

from pipeline.in_memory.trace import TableRow, Trace
from tests.support.random_worlds.random_runs import AnalysedRun

Oracle = Callable[[Trace], list[TableRow]]
_SHOWN = 3
"""The number of differing rows that an error message shows."""


def check_table(
    runs: Iterable[AnalysedRun], name: str, oracle: Oracle, key: Sequence[str]
) -> list[TableRow]:
    """Compare the table `name` of each run with the table of an oracle.

    The columns `key` should identify a row. Return the rows that Spark made of the random runs. The
    caller can check that these rows contain enough cases.

    Raises: AssertionError with the first rows that differ.
    """
    rows_of_random_runs = []
    for run in runs:
        # Spark's rows have the name of the run. Add this name to the rows of the oracle.
        expected = [row | {"run": run.run} for row in oracle(Trace(run.rows))]
        spark_rows = run.table(name)
        wrong = differences(expected, spark_rows, key)
        assert not wrong, f"{name} of {run.run}: {len(wrong)} rows differ\n" + "\n".join(
            wrong[:_SHOWN]
        )
        if run.is_random:
            rows_of_random_runs += spark_rows
    return rows_of_random_runs


def differences(
    expected: Sequence[TableRow], found: Sequence[TableRow], key: Sequence[str]
) -> list[str]:
    """Return a line for each row that only one table has, or that differs in some columns."""
    oracle_rows, spark_rows = _by_key(expected, key), _by_key(found, key)
    lines = []
    # Keys may contain None beside texts and numbers, which cannot be compared. Sort by `repr`.
    for row_key in sorted({*oracle_rows, *spark_rows}, key=repr):
        # Usually a key identifies a row, and each of these lists has a single row.
        of_oracle = oracle_rows.get(row_key, [])
        of_spark = spark_rows.get(row_key, [])
        if len(of_oracle) != len(of_spark):
            lines.append(
                f"{row_key}: oracle has {len(of_oracle)}, Spark has {len(of_spark)}: "
                f"{of_oracle} {of_spark}"
            )
            continue
        for oracle_row, spark_row in zip(of_oracle, of_spark, strict=True):
            columns = _differing_columns(oracle_row, spark_row)
            if columns:
                lines.append(f"{row_key}: (oracle, Spark) {columns}")
    return lines


def _differing_columns(
    oracle_row: TableRow, spark_row: TableRow
) -> dict[str, tuple[object, object]]:
    """Return the values of the columns that differ: {"records": (12, 13)}."""
    found: dict[str, tuple[object, object]] = {}
    for column in dict.fromkeys([*oracle_row, *spark_row]):
        by_oracle = oracle_row.get(column, "no column")
        by_spark = spark_row.get(column, "no column")
        if by_oracle != by_spark:
            found[column] = (by_oracle, by_spark)
    return found


def _by_key(
    rows: Sequence[TableRow], key: Sequence[str]
) -> dict[tuple[object, ...], list[TableRow]]:
    """Return the rows by their values in the columns `key`.

    Rows with the same key are sorted by their content. So two equal tables give these rows in the
    same order.
    """
    by_key: dict[tuple[object, ...], list[TableRow]] = {}
    for row in sorted(rows, key=lambda cells: repr(sorted(cells.items()))):
        by_key.setdefault(tuple(row[name] for name in key), []).append(row)
    return by_key
