"""Tables that compare groups on ZooKeeper with groups that have a coordinator, in plain Python.

Reading order: `tables` (those of ZooKeeper, and `offset_rewinds`), `coordinator_requests`.
"""
