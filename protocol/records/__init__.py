"""Persisted records: batches, and the keys and values of Kafka's internal topics.

Reading order: `batch`, `control` (transaction markers), `versioned` (values as field tables),
`offsets` (`__consumer_offsets`), `transaction` (`__transaction_state`), `metadata`
(`__cluster_metadata`).
"""
