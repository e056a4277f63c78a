"""Hosts the group coordinator: requests, loads and unloads in, appends and replies out.

Reading order: `group_coordination`, `appends`, `coordinator_tasks` (one at a time), `log_loading`,
`unknown_partitions`, `static_membership`, `preload`, `coordinator_metrics`.
"""
