"""Shrinking: from a failing schedule (an experiment with its faults) to a smaller failing one.

Reading order: `edits` (plain changes of an experiment), `settings`, `steps`, `passes` (the order in
which changes are tried), `shrink`, `shrunk_file`.
"""
