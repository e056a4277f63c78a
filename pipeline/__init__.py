"""Spark over finished traces: from events to tables. Tables explain a run; the checkers judge it.

Public functions:
- `engine.java.find_java` finds the Java that Spark would start;
- `run.analyze` writes `<run>/tables/*` and returns a `summary.figures.RunSummary` for each run;
- `in_memory.summary` computes the same summary without Spark;
- `summary.summary_file` reads a stored summary, and checks whether it is current.
Of the lab's packages, this one imports `protocol` and `results_schema` only.

Reading order: `engine` (reads run directories, orders and runs the steps, stores tables),
`intermediate` (steps that several tables share), `tables` (one module per table), `all_tables` (the
inputs of every step), `table_columns` (the types of every table's columns); `in_memory` (the same
tables and the summary without Spark), `whole_runs` (one Spark task per run); `run` (the whole
analysis); `summary` (figures and outcomes as plain values), `report` (pages).
"""
