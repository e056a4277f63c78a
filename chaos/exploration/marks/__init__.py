"""Coverage marks: rare situations that a search must have met before its silence means much.

Reading order: `base`, `seen_zookeeper` and `seen_cluster` (the cluster as rows of the trace show
it), then marks by subject: `coordinators`, `members`, `servers`, `transactions`, `administrators`,
`operations`, `zookeeper`; `column_values` (a table of those that one column shows); `registry`.
"""
