"""Results of a run: verdict, directory, manifest, and the stamp that a replay compares with.

Reading order: `verdict`, `manifest`, `run_directory`, `replay_stamp`, `trace_diff`.
"""
