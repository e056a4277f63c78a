"""Analysis of runs that fit into the memory of one process: one Spark task for each run.

Most runs are small. For small runs, the functions of `pipeline.in_memory`, in plain Python, are
faster than Spark's transforms, and Spark only spreads the runs over its workers. The transforms of
`pipeline.all_tables` compute the same tables for larger runs, and for runs with rows that this
package cannot read.

Reading order: `tables` (the function of each table), `verdicts` (a table that is not computed from
the trace), `write` (the files of one run), `tasks` (many runs on Spark's workers).
"""
