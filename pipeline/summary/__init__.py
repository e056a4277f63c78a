"""A run's figures and outcomes as plain values: for the terminal, the report and comparisons.

Reading order: `figures` (phases), `outcomes` and `felt` (all else); `summary` and `outcome_summary`
(from aggregates to these), `spark_aggregates` (from tables to aggregates; the only one that imports
Spark), `trace_aggregates` (from a trace in memory), `summary_file`; `story` (in words),
`deploys` (what a rollout cost), `caveats` (beside a PASS); `comparison_cells` and `comparison`.
"""
