"""Compares a table of Spark's with an oracle's, row by row and column by column."""

from collections.abc import Callable, Iterable, Sequence

from pipeline.in_memory.trace import TableRow, Trace
from tests.support.random_worlds.random_runs import AnalysedRun

Oracle = Callable[[Trace], list[TableRow]]
_SHOWN = 3


def check_table(
    runs: Iterable[AnalysedRun], name: str, oracle: Oracle, key: Sequence[str]
) -> list[TableRow]:
    """Compare a table of all runs with its oracle; return the rows of the random runs.

    Raises: AssertionError with the first rows that differ, identified by `key`, and their
    differences.
    """
    of_random_runs = []
    for run in runs:
        expected = [row | {"run": run.run} for row in oracle(Trace(run.rows))]
        found = run.table(name)
        wrong = differences(expected, found, key)
        assert not wrong, f"{name} of {run.run}: {len(wrong)} rows differ\n" + "\n".join(
            wrong[:_SHOWN]
        )
        if run.is_random:
            of_random_runs += found
    return of_random_runs


def differences(
    expected: Sequence[TableRow], found: Sequence[TableRow], key: Sequence[str]
) -> list[str]:
    """Describe the differences of two tables: missing rows, and columns of common rows."""
    oracle_rows, spark_rows = _by_key(expected, key), _by_key(found, key)
    lines = []
    # By `repr`, because a key may have None beside texts and numbers.
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
    """Return the rows by their values in the columns `key`; rows of one key in a fixed order."""
    found: dict[tuple[object, ...], list[TableRow]] = {}
    for row in sorted(rows, key=lambda each: repr(sorted(each.items()))):
        found.setdefault(tuple(row[name] for name in key), []).append(row)
    return found
