"""How tables are computed: a Spark session, rows of runs, a graph of steps, files.

Reading order: `java`, `leavings` (of killed sessions), `session`; `run_files`, `events`,
`run_documents` and `runs` (run directories to rows); `step`, `table_graph` (in what order,
several at once), `jobs` (how they are ended), `table_store` (where to), `table_files`.
"""
