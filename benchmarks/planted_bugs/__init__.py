"""Bugs planted in the real code, and the search that must find each.

To plant a bug means to change one behaviour of the real code in this process, by patches.

Reading order: `README.md` (the list, written down before the search was tuned), `planted_bug` (one
bug), `bugs` (the changes of each), `zookeeper_bugs` (bugs of ZooKeeper), `operation_bugs` (bugs
that only rollouts and scalings show), `hunt` (the search, the same seed without the bug, the
shrinking), `absence` (seeds of another space, which must not show a bug), `record` (the tables in
docs/PLANTED_BUGS.md).
"""
