"""Kafka's old consumer, without a group coordinator: each computes its own share from ZooKeeper.

ZK-01 and the like are rules in docs/kafka/ZOOKEEPER_CONSUMER.md.
Reading order: `paths` (znodes of a group), `assignment` (computes the share from what was read),
`member` (a consumer's id and settings), `streams` (queues and the iterator), `broker_channel`,
`fetchers`, `mutex`, `offset_manager`, `offset_store`, `rebalance` (the steps of an attempt),
`connector` (connects these parts; listeners and sessions), `node` (the application).
"""
