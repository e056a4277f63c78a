"""Shrinking: makes a failing schedule smaller, so that it still fails.

A schedule is an experiment with its faults. It fails if its run has a violation.

Reading order: `edits` (plain changes of an experiment), `settings`, `steps`, `passes` (the order in
which changes are tried), `shrink`, `shrunk_file`.
"""
