"""Targets: roles such as `coordinator-of(group)`, resolved when the fault fires.

Reading order: `base` (what a target is), `servers`, `members`, `partitions` (the roles), `registry`
(every role by name, and how a target is read, checked and resolved).
"""
