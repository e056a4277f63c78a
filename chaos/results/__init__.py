"""Results of a run: the manifest, the verdict, and the directory with all files.

Reading order: `manifest`, `verdict`, `recording` (writes files even if the disk becomes full),
`run_directory`, `run_trace`, `replay_stamp` (with which a replay is compared), `trace_diff`.
"""
