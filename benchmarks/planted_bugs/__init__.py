"""Bugs planted in the real code, and the search that must find each of them.

To plant a bug is to change one behaviour of the real code in this process, by patches. A rollout
replaces the members of a group one after another; a scaling changes their number.

Reading order: `README.md` (the list, written down before the search was tuned), `planted_bug` (one
bug), `bugs` (the changes of each bug), `zookeeper_bugs` (bugs of ZooKeeper), `operation_bugs` (bugs
that only rollouts and scalings show), `hunt` (the search for a bug: plays seeds with and without
it, and shrinks a failing schedule), `absence` (seeds of another space, which must not show a bug),
`record` (the tables in docs/PLANTED_BUGS.md).
"""
