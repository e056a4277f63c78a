"""The tables: one module each, from events and other tables to one documented grain.

Reading order: `faults`, `members`; `group_states`, `coordinator_tenures`, `tenure_overlaps`,
`broker_phases`, `failovers` (a fault as each group meets it), `client_phases`, `availability`
(commit and processing gaps after each fault), `figure_table`; `rebalances`, `messages`;
`ownership`, `ownership_overlaps`, `processing`, `commits`; `zookeeper` (sessions, watches,
attempts, operations, offsets set back), `coordinator_requests`; `felt` (what consumers were
without); `metrics`, `verdicts`.
"""
