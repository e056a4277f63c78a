"""Results of a run: manifest, verdict, directory, and the stamp that a replay compares with.

Reading order: `manifest`, `verdict`, `recording` (a full disk), `run_directory`, `run_trace`,
`replay_stamp`, `trace_diff`.
"""
