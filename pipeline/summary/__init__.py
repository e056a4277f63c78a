"""A run's figures and outcomes as plain values: for the terminal, the report and comparisons.

Reading order: `figures` (phases), `outcomes` (rebalances, double coordinators and owners),
`felt` (times without service) and `disturbances` (machines that were away by accident); `summary`
and `outcome_summary` (compute these from aggregates), `spark_aggregates` (computes aggregates from
tables; the only module that imports Spark), `trace_aggregates` (computes them from a trace in
memory), `summary_file`; `story` (sentences), `deploys` (cost of a rollout), `caveats` (what is
added to a PASS); `comparison_cells` and `comparison`.
"""
