"""One run: steady state, faults by plan, healing, and the final verification.

Reading order: `plan`, `conditions`, `injection` (with `link_table` and `blast_radius`), `journal`,
`status_history`, `live_checks`, `verification`, `runner`.
"""
