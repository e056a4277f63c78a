"""The tables of ZooKeeper and of the consumers on it; and the offsets that any group set back.

Reading order: `sessions`, `watches`, `attempts`, `operations`, `offset_rewinds`.
"""
