"""One run of an experiment.

A run waits until the cluster works normally (the steady state), injects the faults of the plan,
undoes ("heals") them, and checks whether the cluster has kept Kafka's promises.

Reading order: `plan` (the times of the faults), `conditions` (what a cluster must fulfil),
`injection` (with `link_table` and `blast_radius`), `journal` (what became of each fault),
`status_history`, `live_checks`, `verification`, `runner` (all stages of a run).
"""
