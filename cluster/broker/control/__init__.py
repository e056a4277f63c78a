"""A broker's relation to the controller: registration, heartbeats, and received metadata.

Reading order: `registration`, `zookeeper_registration`, `metadata_cache`, `metadata_fetcher`;
`topic_forwarding` and `describe_configs` (requests of administrators to a broker).
"""
