"""The tables of ZooKeeper and of the consumers on it; and the rewound offsets of all groups.

Reading order: `sessions`, `watches`, `attempts`, `operations`, `offset_rewinds`.
"""
