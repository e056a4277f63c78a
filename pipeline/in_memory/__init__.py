"""The tables and the summary of one run in plain Python, computed without Spark.

Spark needs some seconds to start, so the summary that a run prints at its end is computed here. The
tables are also a check: `pipeline.tables` computes the same tables with Spark and other code, and
tests compare the two. Each module has one table, which docs/TABLES.md describes, and computes it
with loops over the sorted rows of the run's trace.

Reading order: `trace` (used by all other modules), `runs`, then the tables in any order
(`zookeeper` has those about ZooKeeper, and the table of offsets that were set back), `summary`.
"""
