"""Evidence: facts that checkers follow through the trace, each in one place.

Reading order: the cluster: `coordinators`, `living_members`, `owners`, `faults_in_force`,
`lost_data`, `late_notices`, `enough_replicas`; one promise's own: `commit_registers`,
`transaction_ends`, `intervals`, `fenced_members`.
"""
