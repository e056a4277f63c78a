"""The tables and the summary of one run in plain Python, from its rows in memory: no Spark.

Each module computes one table from the words of docs/TABLES.md with loops over sorted rows. It uses
none of the transforms that Spark runs: the tests hold the two against each other. `summary` makes
of them what a run prints at its end. Reading order: `trace` (what all of them share), `runs`, then
the tables by name (those of ZooKeeper and of offsets set back are `zookeeper`), `summary`.
"""
