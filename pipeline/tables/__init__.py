"""The tables of an analysis, computed with Spark, one module each.

Each table is computed by a transform: a function that takes Spark DataFrames (the events of the
trace, and other tables) and returns one DataFrame. Its docstring tells what one row is about (the
output grain, such as "one row per fault and group"), what each column means, and when a column is
null.

Many tables speak of a tenure. A tenure is the time in which one broker serves the groups of one
partition of `__consumer_offsets`. It begins when the broker has loaded the partition, and ends when
the broker unloads the partition or dies.

Reading order: `faults`, `members`; `group_states`, `coordinator_tenures`, `tenure_overlaps`,
`broker_phases`, `failovers` (the effect of each fault on each group), `client_phases`,
`availability` (commit and processing gaps after each fault), `figure_table`; `rebalances`,
`messages`; `ownership`, `ownership_overlaps`, `processing`, `commits`; `zookeeper` (sessions,
watches, attempts, operations, offsets set back), `coordinator_requests`; `felt` (times without an
owner or without processing, lag, repeated records); `metrics`, `verdicts`.
"""
