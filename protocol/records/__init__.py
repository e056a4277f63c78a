"""Persisted records: batches, and the keys and values of Kafka's internal topics.

Reading order: `batch`, `control` (transaction markers), `offsets` (`__consumer_offsets`),
`transaction` (`__transaction_state`), `metadata` (`__cluster_metadata`).
"""
