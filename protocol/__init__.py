"""Kafka's vocabulary: what nodes say to each other, what they persist, what they trace.

Owns names and shapes only. Must not know who sends, stores or waits. Reading order: `ids`,
`errors`, `partitioner`, `config`, `record_batch`, the messages (`group_messages`,
`offset_messages`, `discovery_messages`, `log_messages`, `controller_messages`), `envelope`,
`consumer_protocol`, `offsets_records`, `metadata_records`, `effects`, `trace`.
"""
