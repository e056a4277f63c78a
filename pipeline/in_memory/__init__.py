"""The tables and the summary of one run in plain Python, computed without Spark from its rows.

Each module computes one table as docs/TABLES.md describes it, with loops over sorted rows.
`pipeline.tables` computes the same tables with Spark. The two share no transforms, so that tests
can compare their results. `summary` computes from the tables what a run prints at its end.

Reading order: `trace` (shared by all other modules), `runs`, then the tables by name (`zookeeper`
has the tables of ZooKeeper, and the table of offsets that were set back), `summary`.
"""
