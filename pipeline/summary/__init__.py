"""A run's figures and outcomes as plain values: for the terminal, the report and comparisons.

Reading order: `figures` (phases), `outcomes` (all else); `summary` and `outcome_summary` (from
tables to these), `summary_file`; `story` (in words); `comparison_cells` and `comparison`. Only
`summary` and `outcome_summary` import Spark.
"""
