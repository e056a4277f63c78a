"""Coverage marks: names of rare situations, and the conditions that detect them in a run's trace.

A search without findings proves nothing about a situation that none of its runs reached. So a
search reports which marks it has reached, and mutates plans that reached rare marks.

Reading order: `base`, `seen_zookeeper` and `seen_cluster` (state of the cluster, from rows of the
trace), then marks by subject: `coordinators`, `members`, `servers`, `transactions`,
`administrators`, `operations`, `zookeeper`; `column_values` (a table of marks that one column
shows); `registry`.
"""
