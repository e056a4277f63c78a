"""Targets: roles such as `coordinator-of(group)`, resolved when the fault fires.

Reading order: `base` (what a target is, and the errors of names that a file does not define),
`servers`, `members`, `partitions` (the roles), `registry` (every role by name, and how a target is
read, checked and resolved). To add a role: a class in the module of its subject and a line in
`registry`.
"""
