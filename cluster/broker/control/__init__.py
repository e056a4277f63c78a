"""The broker and its controller: registration, heartbeats, and metadata as it arrives.

Reading order: `identity`, `controller_channel`, `registration`, `metadata_cache`,
`metadata_fetcher`.
"""
