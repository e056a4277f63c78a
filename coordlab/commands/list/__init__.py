"""`list`: experiments that have a name, and past runs: `command`, `past_runs`, `past_runs_view`."""
