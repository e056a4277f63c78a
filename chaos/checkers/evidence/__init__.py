"""Evidence: facts that checkers compute from the trace (the run's recorded rows), one per module.

Reading order:
- facts shared by all checkers and coverage marks of a run: `coordinators`, `living_members`,
  `fenced_members`, `owners`, `faults_in_force`, `lost_data`, `replicas`, `half_loads`,
  `stranded_clients`, `undisturbed`, `zookeeper_tree` and `turning_points` (events that led to a
  finding);
- `board`: these shared facts together;
- facts of a single checker: `session_ends`, `late_notices`, `enough_replicas`, `commit_registers`,
  `intervals`, `acknowledged_records`, `deliveries`;
- `transactions`: the folder of all evidence on transactions, shared or not;
- `orders`: the folder of evidence on orders of an administrator.
"""
