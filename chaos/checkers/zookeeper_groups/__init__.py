"""Promises of each single consumer on ZooKeeper: how it gets its partitions, and what it then does.

Reading order: `consumers` (rebalances, and commits after a loss), `progress` (reading and commits).
"""
