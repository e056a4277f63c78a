"""Targets: roles such as `coordinator-of(group)`, resolved when the fault fires.

Reading order: `base` (the interface of a role, and errors for names that a file does not define),
`servers`, `members`, `kafka_clients`, `partitions`, `machines` (the roles), `registry` (all roles
by name; parsing, checking and resolving of targets). To add a role: a class in the module of its
subject, and a line in `registry`.
"""
