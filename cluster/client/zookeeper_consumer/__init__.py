"""Kafka's old consumer: no coordinator; each consumer computes its share from ZooKeeper.

A znode is a named piece of data in ZooKeeper. Ids such as ZK-01 name rules in
docs/kafka/ZOOKEEPER_CONSUMER.md.
Reading order: `paths` (znodes of a group), `assignment` (computes the share from what was read),
`member` (a consumer's id and settings), `streams` (queues and the iterator), `broker_channel`,
`fetchers`, `mutex`, `offset_manager`, `offset_store`, `rebalance` (the steps of an attempt),
`connector` (connects these parts; listeners and sessions), `node` (the application).
"""
