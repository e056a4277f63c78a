"""Host of the group coordinator: passes it requests, loads and unloads; carries out its Results.

Reading order: `group_coordination`, `appends`, `coordinator_tasks` (one at a time), `log_loading`,
`unknown_partitions`, `static_membership`, `preload`, `coordinator_metrics`.
"""
