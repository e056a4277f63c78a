"""Tables that compare groups on ZooKeeper with groups that have a coordinator, in plain Python.

Reading order: `tables` (the tables about ZooKeeper, and the table of offsets that were set back),
`coordinator_requests` (how many requests a group with a coordinator needs).
"""
