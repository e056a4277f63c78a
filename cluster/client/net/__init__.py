"""Networking that every client shares.

Reading order: `errors` and `futures` (how an operation ends, how a coroutine waits), `retries`
(backoff on the host's clock), `network_client`, `metadata`, `coordinator_discovery`.
"""
