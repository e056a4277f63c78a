"""Writes the tables and the summary of one run, in plain Python."""

from pipeline.engine.run_files import RunFiles
from pipeline.engine.table_files import write_table
from pipeline.in_memory.summary import collecting_no_cycles, rows_of, summary_of
from pipeline.in_memory.trace import Trace
from pipeline.summary.figures import RunSummary
from pipeline.summary.summary_file import drop_summary, write_summary
from pipeline.whole_runs.tables import OF_TRACE
from pipeline.whole_runs.verdicts import verdicts_of


def analyze_whole(files: RunFiles) -> RunSummary | None:
    """Write all tables of a run, and its summary beside them; return the summary.

    Returns None, and writes nothing, if plain Python cannot read the run
    (`in_memory.summary.rows_of`).
    Raises: OSError if a file cannot be read or written.
    """
    with collecting_no_cycles():
        return _analyze(files)


def _analyze(files: RunFiles) -> RunSummary | None:
    """Do the work of `analyze_whole`."""
    run_rows = rows_of(files)
    if run_rows is None:
        return None
    trace = Trace(run_rows.good) if run_rows.good else None
    tables = {name: [] if trace is None else table_of(trace) for name, table_of in OF_TRACE.items()}
    tables["bad_rows"] = list(run_rows.bad)
    tables["verdicts"] = verdicts_of(files.directory)
    summary = summary_of(files, run_rows, trace)

    # A summary file is the sign that the tables beside it are complete. So the old summary is
    # removed before the new tables are written, and the new summary is written after the tables.
    drop_summary(files.directory)
    for name, rows in tables.items():
        write_table(files.directory, name, [row | {"run": files.run} for row in rows])
    write_summary(summary)
    return summary
