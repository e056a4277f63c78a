"""Coverage marks: rare situations that a search must have met before its silence means much.

Reading order: `base`, `seen_zookeeper` and `seen_cluster` (state of the cluster, from rows of the
trace), then marks by subject: `coordinators`, `members`, `servers`, `transactions`,
`administrators`, `operations`, `zookeeper`; `column_values` (a table of marks that one column
shows); `registry`.
"""
