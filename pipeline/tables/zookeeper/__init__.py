"""The tables of ZooKeeper and of the consumers on it, and the rewound offsets of all groups.

An offset is rewound if a later commit of the group sets it to a lower value.

Reading order: `sessions`, `watches`, `attempts`, `operations`, `offset_rewinds`.
"""
