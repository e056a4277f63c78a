"""Kafka's old consumer: no coordinator; each consumer computes its share from ZooKeeper.

Kafka had this consumer until version 1.1. It registers in ZooKeeper, reads there which other
consumers its group has, and claims its share of the partitions by creating znodes. Ids such as
ZK-01 are rules in docs/kafka/ZOOKEEPER_CONSUMER.md, which describes its behaviour.

Reading order: `paths` (znodes of a group), `assignment` (computes the share from what was read),
`member` (a consumer's id and settings), `streams` (queues of fetched records), `broker_channel`,
`fetchers`, `mutex`, `offset_manager`, `offset_store`, `rebalance` (the steps of an attempt),
`connector` (connects these parts; listeners and sessions), `node` (the application).
"""
