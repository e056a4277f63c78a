"""Kafka's classic clients on a Host: the consumer of a group, a producer, an administrator.

Reading order: `errors` and `futures` (what an operation ends with, how a coroutine waits),
`retries` (backoff; tenacity on the host's clock), `network_client` and `metadata`,
`coordinator_discovery`, `generation`, `membership` (join, sync, leave), `heartbeat`, `assignors`,
`subscription`, `offset_commits`, `offset_fetches`, `positions`, `fetcher`, `consumer_coordinator`
(what a poll does for the group), `group_consumer` (all of it wired), `consumer` (the application),
`producer`; an administrator's `admin_driver` (many keys, each asked where it belongs),
`admin_calls`, `admin` (elections, moves, topics), `partition_offsets`, `group_answers`,
`group_admin`, `offset_reset`. Answers are handled in callbacks, as Kafka's client handles them
inside poll; only the application, the heartbeats and a lookup wait, and what an administrator asks.
"""
