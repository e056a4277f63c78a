"""From the trace of a run to tables, summaries and pages that explain what happened in it.

A run is one execution of an experiment, and its trace is the rows of events that it recorded. This
package explains a run: how long did each phase of a failover take, which member owned which
partition. Whether the run broke a promise of Kafka is judged elsewhere (`chaos.checkers`).

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
