"""The tables and the summary of one run in plain Python, from its rows in memory: no Spark.

Each module computes one table as docs/TABLES.md describes it, with loops over sorted rows. No
module uses the transforms that Spark runs, so that the tests can compare the tables of both ways.
`summary` computes from the tables what a run prints at its end. Reading order: `trace` (shared by
all other modules), `runs`, then the tables by name (`zookeeper` has the tables of ZooKeeper, and
the table of offsets that were set back), `summary`.
"""
