"""Evidence: facts that checkers follow through the trace, each in one place.

Reading order: the cluster, as all checkers and the coverage marks of a run share it:
`coordinators`, `living_members`, `fenced_members`, `owners`, `faults_in_force`, `lost_data`,
`replicas`, `half_loads`, `open_transactions`, `undisturbed`, `zookeeper_tree`, `turning_points`
(what led to a finding) and `board` (all of them, fed together); one promise's own: `session_ends`,
`late_notices`, `enough_replicas`, `commit_registers`, `transaction_ends`, `forgotten_commits`,
`intervals`.
"""
