"""Results of a run: manifest, verdict, directory, and the stamp that a replay compares with.

Reading order: `manifest`, `verdict`, `run_directory`, `replay_stamp`, `trace_diff`.
"""
