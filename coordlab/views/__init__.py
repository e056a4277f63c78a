"""Views that several commands print: a running experiment, its checks, outcomes and summary.

Reading order: `live`, `run_view`, `standing_view`, `check_view`, `summary_view`, `comparison_view`.
"""
