"""Persisted records: batches, and the keys and values of Kafka's internal topics.

Reading order: `kafka_records` (records as real clients write them), `batch`, `kafka_format`
(batches as real clients write them), `control` (transaction markers), `versioned` (values as field
tables), `offsets` (`__consumer_offsets`), `transaction` (`__transaction_state`), `metadata`
(`__cluster_metadata`).
"""
