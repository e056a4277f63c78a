"""Runs that fit into the memory of one process: a task of Spark reads each whole, in plain Python.

`tables` says which function makes which table, `verdicts` is the one that needs no trace, `write`
turns a run's files into its tables and its summary, `tasks` spreads runs over Spark's workers.
Larger runs, and those that this cannot read, are left to the transforms of `pipeline.all_tables`,
which give the same tables.
"""
