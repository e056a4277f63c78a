"""The figures and outcomes of runs as plain values, for the terminal, the report and comparisons.

A run is one execution of an experiment. A figure is one number about a run. An aggregate is a table
of few rows over all runs, from which figures are made. A deploy is a rollout of new members.

Reading order: `figures` (phases), `outcomes` (rebalances, times with two coordinators or two
owners), `felt` (times without service) and `disturbances` (machines that were away by accident);
`summary` and `outcome_summary` (compute all of these from aggregates), `spark_aggregates` (computes
aggregates from tables; the only module that imports Spark), `trace_aggregates` (computes them from
a trace in memory), `summary_file`; `story` (sentences), `deploys` (cost of a deploy), `caveats`
(remarks that follow a PASS); `comparison_cells` and `comparison`.
"""
