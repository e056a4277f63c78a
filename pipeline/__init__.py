"""From the trace of a run to tables, summaries and pages that explain what happened in it.

A run is one execution of an experiment. Its trace consists of rows, each of which is an event that
the run recorded. This package explains a run: it tells, for example, how long each phase of a
failover took, and which member owned which partition. Whether the run broke a promise of Kafka is
judged elsewhere (`chaos.checkers`).

Public functions:
- `engine.java.find_java` finds the Java that Spark would start;
- `run.analyze` writes `<run>/tables/*` and returns a `summary.figures.RunSummary` for each run;
- `in_memory.summary` computes the same summary without Spark;
- `summary.summary_file` reads a stored summary, and checks whether it is current.

This package imports two of the project's other packages: `protocol` and `results_schema`.

Reading order:

1. Tables with Spark: `engine` (reads run directories, orders and runs the steps, stores tables),
   `intermediate` (steps that several tables share), `tables` (one module per table), `all_tables`
   (the inputs of every step), `table_columns` (the types of every table's columns).
2. Tables without Spark: `in_memory` (the same tables, and the summary), `whole_runs` (one Spark
   task per run).
3. The whole analysis: `run`.
4. What is made of the tables: `summary` (figures and outcomes as plain values), `report` (pages).
"""
