"""What a run's faults did, as plain values that the terminal, the report and comparisons show.

An analysis computes tables with many rows from the trace of a run. This package sums them up to one
`RunSummary` for each run: how long did each phase of the failover take, how many rebalances were
there, for how long had a partition no owner.

Reading order:

1. The structs: `figures` (phases and gaps after each fault), `outcomes` (rebalances, times with two
   coordinators or two owners), `felt` (what the users of a group notice) and `disturbances`
   (machines that were away by accident).
2. How they are filled: `summary` and `outcome_summary` fill them from aggregates, which are small
   tables about all runs. `spark_aggregates` computes the aggregates with Spark (no other module
   here imports it), and `trace_aggregates` in plain Python. `summary_file` stores a summary.
3. What is made of them: `story` (sentences), `deploys` (what a rollout of new members cost),
   `caveats` (what users noticed in a run that passed), and `comparison` with `comparison_cells`
   (tables that compare several runs).
"""
