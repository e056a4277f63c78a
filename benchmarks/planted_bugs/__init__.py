"""Bugs planted in the real code, and the search that must find each of them.

For example, the bug `reply_before_high_watermark` lets a coordinator answer a commit before the
followers have it. To plant a bug is to patch the real code in this process, as tests do.

Reading order: `README.md` (the list, written down before the search was tuned), `planted_bug` (one
bug), `bugs` (the changes of each bug), `zookeeper_bugs` (bugs of ZooKeeper), `operation_bugs` (bugs
that only rollouts and scalings show), `hunt` (the search for a bug: plays seeds with and without
it, and shrinks a failing schedule), `absence` (seeds of another space, which must not show a bug),
`record` (the tables in docs/PLANTED_BUGS.md).
"""
