"""The engine that computes tables with Spark. It does not know what the tables are about.

Reading order:

1. From nothing to a Spark session: `java` (finds Java), `leavings` (temporary folders of killed
   sessions), `session`.
2. From run directories to DataFrames: `run_files`, `events`, `run_documents`, `runs`.
3. From DataFrames to tables: `step` (one DataFrame that is computed from others), `table_graph`
   (computes steps in the order of their inputs, several at once), `jobs` (cancels the Spark jobs of
   steps), `table_store` (keeps the results of steps), `table_files` (writes a table's files).
"""
