"""Compares Spark's table of a run with an oracle's, row by row and column by column.

An oracle computes the same table in plain Python from the rows of the trace (recorded events).
"""

from collections.abc import Callable, Iterable, Sequence

from pipeline.in_memory.trace import TableRow, Trace
from tests.support.random_worlds.random_runs import AnalysedRun

Oracle = Callable[[Trace], list[TableRow]]
_SHOWN = 3
"""Number of differing rows in an error message."""


def check_table(
    runs: Iterable[AnalysedRun], name: str, oracle: Oracle, key: Sequence[str]
) -> list[TableRow]:
    """Compare the table `name` of all runs with its oracle; return Spark's rows of random runs.

    Raises: AssertionError with the first rows that differ, identified by `key`, and their
    differences.
    """
    of_random_runs = []
    for run in runs:
        # The oracle's rows lack the column with the run's name.
        expected = [row | {"run": run.run} for row in oracle(Trace(run.rows))]
        spark_rows = run.table(name)
        wrong = differences(expected, spark_rows, key)
        assert not wrong, f"{name} of {run.run}: {len(wrong)} rows differ\n" + "\n".join(
            wrong[:_SHOWN]
        )
        if run.is_random:
            of_random_runs += spark_rows
    return of_random_runs


def differences(
    expected: Sequence[TableRow], found: Sequence[TableRow], key: Sequence[str]
) -> list[str]:
    """Describe the differences of two tables: missing rows, and columns of common rows."""
    oracle_rows, spark_rows = _by_key(expected, key), _by_key(found, key)
    lines = []
    # Sorted by `repr`, because a key may have None, texts and numbers, which have no order.
    for place in sorted({*oracle_rows, *spark_rows}, key=repr):
        oracles, sparks = oracle_rows.get(place, []), spark_rows.get(place, [])
        if len(oracles) != len(sparks):
            lines.append(
                f"{place}: oracle has {len(oracles)}, Spark has {len(sparks)}: {oracles} {sparks}"
            )
            continue
        for oracle_row, spark_row in zip(oracles, sparks, strict=True):
            columns = {
                column: (oracle_row.get(column, "no column"), spark_row.get(column, "no column"))
                for column in dict.fromkeys([*oracle_row, *spark_row])
                if oracle_row.get(column, "no column") != spark_row.get(column, "no column")
            }
            if columns:
                lines.append(f"{place}: (oracle, Spark) {columns}")
    return lines


def _by_key(
    rows: Sequence[TableRow], key: Sequence[str]
) -> dict[tuple[object, ...], list[TableRow]]:
    """Return the rows by their values in the columns `key`.

    Rows with the same key are sorted by their content, so that both tables have the same order.
    """
    by_key: dict[tuple[object, ...], list[TableRow]] = {}
    for row in sorted(rows, key=lambda cells: repr(sorted(cells.items()))):
        by_key.setdefault(tuple(row[name] for name in key), []).append(row)
    return by_key
