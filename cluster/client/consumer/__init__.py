"""The consumer of a group: joins, reads, processes and commits.

Reading order: `generation`, `membership` (join, sync, leave), `heartbeat`, `assignors`,
`subscription`, `offset_commits`, `transactional_commits`, `offset_fetches`, `positions`, `fetcher`,
`consumer_coordinator` (the group's part of a poll), `group_consumer` (all parts connected), `node`
(the application).
"""
