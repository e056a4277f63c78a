"""What a run's faults did, as plain values that the terminal, the report and comparisons show.

An analysis computes tables with many rows from the trace of a run. This package sums them up to one
`RunSummary` for each run. A summary tells, for example, how long each phase of a failover took, how
many rebalances there were, and for how long a partition had no owner.

Reading order:

1. The structs: `figures` (phases and gaps after each fault), `outcomes` (rebalances, times with two
   coordinators or two owners), `felt` (what the users of a group notice) and `disturbances`
   (machines that were away by accident).
2. How the structs are filled: `summary` and `outcome_summary` fill them from aggregates, which are
   small tables about all runs. `spark_aggregates` computes the aggregates with Spark, and
   `trace_aggregates` computes them in plain Python. `summary_file` stores a summary. Only
   `spark_aggregates` imports Spark.
3. What is made of the structs: `story` (sentences), `deploys` (what a rollout of new members cost),
   `caveats` (what users noticed in a run that passed), and `comparison` with `comparison_cells`
   (tables that compare several runs).
"""
