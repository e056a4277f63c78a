"""Coverage marks: names of rare situations, and the conditions that detect them in a run's trace.

A search that finds no violation proves nothing about situations that none of its runs reached. So a
search reports which marks it has reached. It also changes plans of faults that reached rare marks,
to reach them again.

Reading order: `base`; `seen_zookeeper` and `seen_cluster` (the state of the cluster, collected from
the rows of the trace); the marks by subject: `coordinators`, `members`, `servers`, `transactions`,
`administrators`, `operations`, `zookeeper`; `column_values` (a table of the marks that one column
of a row shows); `registry`.
"""
