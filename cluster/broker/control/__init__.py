"""The broker and its controller: registration, heartbeats, and metadata as it arrives.

Reading order: `registration`, `zookeeper_registration`, `metadata_cache`,
`metadata_fetcher`.
"""
