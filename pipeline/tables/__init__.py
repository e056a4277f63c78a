"""The transforms of the tables: one module each, from events and other tables to one grain.

Reading order: `faults`, `members`; `group_states`, `coordinator_tenures`, `tenure_overlaps`,
`broker_phases`, `failovers` (the effect of each fault on each group), `client_phases`,
`availability` (commit and processing gaps after each fault), `figure_table`; `rebalances`,
`messages`; `ownership`, `ownership_overlaps`, `processing`, `commits`; `zookeeper` (sessions,
watches, attempts, operations, offsets set back), `coordinator_requests`; `felt` (times without an
owner or without processing, lag, repeated records); `metrics`, `verdicts`.
"""
