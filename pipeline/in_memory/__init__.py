"""The tables and the summary of one run in plain Python, computed without Spark.

Spark needs some seconds to start, so the summary that a run prints at its end is computed here. The
tables are also a check: `pipeline.tables` computes the same tables with Spark and other code, and
tests compare the two. Most modules compute one table, with loops over the sorted rows of the run's
trace. docs/TABLES.md describes the tables.

Reading order: `trace` (used by all other modules), `runs`, then the tables in any order
(`zookeeper` has the tables about ZooKeeper, and the table of offsets that were set back),
`summary`.
"""
