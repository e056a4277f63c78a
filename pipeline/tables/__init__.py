"""The transforms of the tables, one module each, computed from events and other tables.

A transform is a function that computes a Spark DataFrame from others. Its docstring names the grain
of the table, which says what one row is about ("one row per fault and group"). A tenure is the time
in which a broker is the active coordinator of the groups of one partition of `__consumer_offsets`.

Reading order: `faults`, `members`; `group_states`, `coordinator_tenures`, `tenure_overlaps`,
`broker_phases`, `failovers` (the effect of each fault on each group), `client_phases`,
`availability` (commit and processing gaps after each fault), `figure_table`; `rebalances`,
`messages`; `ownership`, `ownership_overlaps`, `processing`, `commits`; `zookeeper` (sessions,
watches, attempts, operations, offsets set back), `coordinator_requests`; `felt` (times without an
owner or without processing, lag, repeated records); `metrics`, `verdicts`.
"""
