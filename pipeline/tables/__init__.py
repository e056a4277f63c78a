"""The transforms of the tables, one module each, computed from events and other tables.

A transform is a function that takes Spark DataFrames and returns one: a table of the analysis, or a
step that several tables need. Its docstring says what one row is about (the grain, such as "one row
per fault and group"), and what each column means.

Many tables speak of a tenure: the time in which one broker serves the groups of one partition of
`__consumer_offsets`, from the end of its load to its unloading or death.

Reading order: `faults`, `members`; `group_states`, `coordinator_tenures`, `tenure_overlaps`,
`broker_phases`, `failovers` (the effect of each fault on each group), `client_phases`,
`availability` (commit and processing gaps after each fault), `figure_table`; `rebalances`,
`messages`; `ownership`, `ownership_overlaps`, `processing`, `commits`; `zookeeper` (sessions,
watches, attempts, operations, offsets set back), `coordinator_requests`; `felt` (times without an
owner or without processing, lag, repeated records); `metrics`, `verdicts`.
"""
