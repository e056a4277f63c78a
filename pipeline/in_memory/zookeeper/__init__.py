"""Tables that compare groups on ZooKeeper with groups that have a coordinator, in plain Python.

Reading order: `tables` (the tables of ZooKeeper, and the table of offsets that were set back),
`coordinator_requests`.
"""
