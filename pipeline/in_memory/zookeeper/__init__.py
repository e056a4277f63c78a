"""Tables that compare groups on ZooKeeper with groups that have a coordinator, in plain Python.

Reading order: `tables` (those of ZooKeeper, and offsets set back), `coordinator_requests`.
"""
