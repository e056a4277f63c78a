"""Targets of faults, such as `coordinator-of(readers)`.

A target names a role. Which node has the role is found out when the fault is injected.

Reading order: `base` (the interface of a role, and errors of names that a file does not define);
the roles: `servers`, `members`, `kafka_clients`, `partitions`, `machines`; `registry` (all roles by
name, and functions that parse, check and resolve targets). To add a role, write a class in the
module of its subject, and add a line to `registry`.
"""
