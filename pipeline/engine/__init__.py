"""The engine that computes tables: a Spark session, rows of runs, a graph of steps, files.

A step computes one DataFrame from others; a run is one execution of an experiment.

Reading order: `java`, `leavings` (temporary folders of killed sessions), `session`; `run_files`,
`events`, `run_documents` and `runs` (from run directories to rows); `step`, `table_graph` (orders
steps and runs several at once), `jobs` (cancels Spark jobs), `table_store` (stores results),
`table_files` (writes a table's files).
"""
