"""Bugs planted in the real code, and the search that must find each of them.

For example, the bug `reply_before_high_watermark` lets a coordinator answer a commit before the
followers have it. To plant a bug is to patch the real code in this process, as tests do.

Reading order:
- `README.md` lists the bugs. It was written before the search was tuned.
- `planted_bug` has the class of a bug.
- `bugs` has the changes of each bug.
- `zookeeper_bugs` has bugs of ZooKeeper.
- `operation_bugs` has bugs that only rollouts and scalings show.
- `hunt` searches for a bug: plays seeds with and without it, and shrinks a failing schedule.
- `absence` plays seeds of another space, which must not show a bug.
- `record` makes the tables in docs/PLANTED_BUGS.md.
"""
