"""The consumer before the group coordinator: each computes its share alone, from ZooKeeper.

Reading order: `paths` (znodes of a group), `assignment` (what one view leads to), `member` (who a
consumer is), `streams` (queues and the iterator), `broker_channel`, `fetchers`, `mutex`,
`offset_manager`, `offset_store`, `rebalance` (the steps of an attempt), `connector` (all of it
wired, listeners and sessions), `node` (the application).
"""
