"""Host of the group coordinator, a pure state machine in the package `coordinator`.

The host gives the coordinator its inputs (requests, loads, unloads). A Result has the effects of an
input; the host carries the Result out.

Reading order:
1. `group_coordination` passes inputs to the coordinator and carries out Results. `appends` makes
the
   coordinator's appends.
2. `coordinator_tasks` loads and unloads the groups of partitions, `log_loading` reads their logs.
3. `unknown_partitions` and `static_membership` refuse requests before the coordinator gets them.
4. `preload` writes the records of an old cluster. `coordinator_metrics` has the metrics.
"""
