"""One run of an experiment: wait for the steady state, inject the plan's faults, heal, verify.

Reading order: `plan`, `conditions`, `injection` (with `link_table` and `blast_radius`), `journal`,
`status_history`, `live_checks`, `verification`, `runner`.
"""
