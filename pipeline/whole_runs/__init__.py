"""Analysis of runs that fit into the memory of one process: one Spark task per run, plain Python.

A run is one execution of an experiment; its trace is its recorded rows of events. Reading order:
`tables` maps each table to its function, `verdicts` computes the one table that needs no trace,
`write` turns a run's files into its tables and its summary, `tasks` spreads runs over Spark's
workers. The transforms of `pipeline.all_tables` give the same tables for larger runs, and for runs
whose rows this package cannot read.
"""
