"""Spark over finished traces: from events to tables. It explains a run and never decides about it.

Public: `engine.java.find_java`; `run.analyze(run_dirs, master=...)`, which writes `<run>/tables/*`
and returns `summary.figures.RunSummary`s; `in_memory.summary`, which computes the same without
Spark; `summary.summary_file`, which reads them back and says whether a run's tables are current.
The lab's only packages that it knows are `protocol` and `results_schema`.

Reading order: `engine` (from run directories to rows, in which order tables are computed, where
they go), `intermediate` (steps that several tables share), `tables` (one module a table),
`all_tables` (what from what), `table_columns` (of what types); `in_memory` (the same tables and the
summary without Spark), `whole_runs` (a run for a task); `run` (all of it); `summary` (figures and
outcomes as plain values), `report` (pages).
"""
