"""The broker and its controller: registration, heartbeats, and metadata as it arrives.

Reading order: `registration`, `zookeeper_registration`, `metadata_cache`, `metadata_fetcher`;
`topic_forwarding` and `describe_configs` (what an administrator asks of a broker).
"""
