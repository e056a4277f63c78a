"""The tables and the summary of one run in plain Python, from its rows in memory: no Spark.

Each module computes one table from the words of docs/TABLES.md with loops over sorted rows. It uses
none of the transforms that Spark runs: the tests compare the tables of both. `summary` computes
from the tables what a run prints at its end. Reading order: `trace` (shared by all other modules),
`runs`, then the tables by name (`zookeeper` has those of ZooKeeper, and the offsets set back),
`summary`.
"""
