"""The consumer of a group: joins, reads, processes and commits.

Reading order: `generation`, `membership` (join, sync, leave), `heartbeat`, `assignors`,
`subscription`, `offset_commits`, `transactional_commits`, `offset_fetches`, `positions`, `fetcher`,
`consumer_coordinator` (what a poll does for the group), `group_consumer` (all of it wired), `node`
(the application).
"""
