"""Spark over finished traces: from events to tables. Tables explain a run; the checkers judge it.

A run is one execution of an experiment; its trace is the recorded rows of events. A checker
(outside this package) reads a trace and reports the promises that the run broke.

Public functions:
- `engine.java.find_java` finds the Java that Spark would start;
- `run.analyze` writes `<run>/tables/*` and returns a `summary.figures.RunSummary` for each run;
- `in_memory.summary` computes the same summary without Spark;
- `summary.summary_file` reads a stored summary, and checks whether it is current.

This package imports two of the project's other packages: `protocol` and `results_schema`.

Reading order: `engine` (reads run directories, orders and runs the steps, stores tables),
`intermediate` (steps that several tables share), `tables` (one module per table), `all_tables` (the
inputs of every step), `table_columns` (the types of every table's columns); `in_memory` (the same
tables and the summary without Spark), `whole_runs` (one Spark task per run); `run` (the whole
analysis); `summary` (figures and outcomes as plain values), `report` (pages).
"""
