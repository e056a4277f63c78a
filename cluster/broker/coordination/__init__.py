"""Host of the group coordinator, a pure state machine in the package `coordinator`.

Gives the coordinator its inputs (requests, loads, unloads), and carries out its Results (the
effects of an input).
Reading order: `group_coordination`, `appends`, `coordinator_tasks` (one at a time), `log_loading`,
`unknown_partitions`, `static_membership`, `preload`, `coordinator_metrics`.
"""
