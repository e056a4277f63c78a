"""Views that several commands print: a run while it goes on, its checks, outcomes and summary.

Reading order: `live`, `run_view`, `standing_view`, `check_view`, `summary_view`, `comparison_view`.
"""
