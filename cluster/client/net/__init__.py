"""Networking shared by all clients.

Reading order: `errors` and `futures` (outcomes of an operation, waits of a coroutine), `retries`
(backoff on the host's clock), `network_client`, `metadata`, `coordinator_discovery`.
"""
