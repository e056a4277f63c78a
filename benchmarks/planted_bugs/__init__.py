"""Bugs planted in the real code, and the search that must find each.

Reading order: `README.md` (the list, written down before the search was tuned), `planted_bug` (one
bug), `bugs` (the changes of each), `zookeeper_bugs` (those of ZooKeeper), `operation_bugs` (those
that only rollouts and scalings show), `hunt` (the search, the same seed without the bug, the
shrinking), `record` (the table in docs/PLANTED_BUGS.md).
"""
