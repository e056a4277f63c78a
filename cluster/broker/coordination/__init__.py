"""Host of the group coordinator, a pure state machine in the package `coordinator`.

The host gives the coordinator its inputs (requests, loads, unloads). A Result has the effects of an
input; the host carries the Result out.
Reading order: `group_coordination`, `appends`, `coordinator_tasks` (loads, unloads), `log_loading`,
`unknown_partitions`, `static_membership`, `preload`, `coordinator_metrics`.
"""
