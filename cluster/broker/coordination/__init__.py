"""What a broker does around the group coordinator, which is a pure state machine.

The coordinator itself is in the package `coordinator`. The modules here give it its inputs
(requests, loads, unloads, timers) and carry out the Results that it returns.

Reading order:
1. `group_coordination` passes inputs to the coordinator and carries out Results. `appends` does the
   coordinator's appends.
2. `coordinator_tasks` loads and unloads the groups of partitions, `log_loading` reads their logs.
3. `unknown_partitions` and `static_membership` refuse requests before the coordinator gets them.
4. `preload` writes the records of an old cluster. `coordinator_metrics` has the metrics.
"""
