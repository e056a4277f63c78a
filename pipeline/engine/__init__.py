"""The engine that computes tables with Spark: it opens a session, reads runs, and runs steps.

A run is one execution of an experiment. A step computes one DataFrame from others.

Reading order: `java`, `leavings` (temporary folders of killed sessions), `session`; `run_files`,
`events`, `run_documents` and `runs` (from run directories to rows); `step`, `table_graph` (orders
steps and runs several at once), `jobs` (cancels Spark jobs), `table_store` (stores results),
`table_files` (writes a table's files).
"""
